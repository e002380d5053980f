//! Runs of several processes: real ones, as a launcher starts them, and threads of one process, through the
//! library.

#[path = "../../../tests/common/mod.rs"]
mod common;
#[path = "../../../tests/common/has.rs"]
mod has;
#[path = "../common/place.rs"]
mod place;
#[path = "../../../tests/common/skipped.rs"]
mod skipped;
#[path = "../../../tests/common/worlds.rs"]
mod worlds;

mod alike;
mod ends;
mod gpus;
mod held_up;
mod hosts;
mod inputs;
mod launchers;
mod leaving;
mod library;
mod loading;
mod losses;
mod memory;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(feature = "mpi")]
mod mpi_reductions;
mod peers;
mod profiles;
mod refusals;
mod runs;
mod secrets;
mod servers;
mod shapes;
mod shrinking;
mod sizes;
mod spares;
mod stalls;
mod throttled;
mod training;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use common::*;
use has::has;
use pipewright::data::DataSource;
use pipewright::fabric::World;
use pipewright::id::MicroBatch;
use pipewright::run::Run;
use pipewright::schedule::Schedule;
use pipewright::stages::models::Gpt;
use pipewright::stages::{Sequential, Shape, Tensor};
use pipewright::{Error, Pipeline};
use place::{Place, signal};
use tempfile::TempDir;
use worlds::in_processes;

/// Small enough to train quickly, for up to eight stages. Dropout is on, weights are tied.
const CONFIG: &str = "\
[model]
dim = 16
layers = 3
heads = 2
dropout = 0.1
tied = true

[data]
path = 'text.txt'
seq = 16

[pipeline]
micro_batches = 4
micro_batch_size = 2
gradient_groups = 8

[train]
name = 'small'
steps = 4
validate_every = 2
print_every = 1

[checkpoint]
every = 2
";

impl Place {
    fn new() -> Self {
        Self::with(CONFIG)
    }

    /// `train` in one process.
    fn alone(&self, args: &[&str]) -> Ended {
        Started::new(self.train(args)).end()
    }

    /// `train` as one process of several: with its number and the address of the first one.
    fn member(&self, rank: u32, size: u32, address: &str, args: &[&str]) -> Command {
        let mut command = self.train(args);
        let (host, port) = address.rsplit_once(':').unwrap();
        command
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", size.to_string())
            .env("MASTER_ADDR", host)
            .env("MASTER_PORT", port);
        command
    }

    /// `train` in this many processes, each with these arguments. Returns how each ended.
    fn several(&self, size: u32, args: &[&str]) -> Vec<Ended> {
        end_all(self.start(size, args))
    }

    fn start(&self, size: u32, args: &[&str]) -> Vec<Started> {
        let address = worlds::free_address();
        let member = |rank| Started::new(self.member(rank, size, &address, args));
        (0..size).map(member).collect()
    }

    /// Starts a long run and waits until it has done some steps.
    fn start_long(&self, size: u32, args: &[&str]) -> Vec<Started> {
        let started = self.start(size, &[&LONG[..], args].concat());
        self.await_steps();
        started
    }

    /// Waits until a run has done some steps.
    fn await_steps(&self) {
        self.await_steps_after(4);
    }

    /// Waits until a run has done more than `steps` steps.
    fn await_steps_after(&self, steps: usize) {
        let metrics = self.path("runs/small/metrics.jsonl");
        let since = Instant::now();
        while !fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() > steps) {
            assert!(since.elapsed() < PATIENCE, "it does not train");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn train(&self, args: &[&str]) -> Command {
        self.command(&[&["train", "my.toml"], args].concat())
    }

    /// The figures of all steps that do not depend on time.
    fn numbers(&self, run: &str) -> Vec<[serde_json::Value; 4]> {
        let keys = ["step", "loss", "grad_norm", "validation_loss"];
        self.lines(run).iter().map(|line| keys.map(|key| line[key].clone())).collect()
    }
}

/// Arguments of a run that does not end by itself.
const LONG: [&str; 6] =
    ["--set", "train.steps=1000000", "--set", "train.validate_every=0", "--set", "checkpoint.every=1000000"];

/// Longer than any of these runs takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process. It is killed when this is dropped.
struct Started {
    child: Child,
    /// What it writes, where no test reads it at once: a pipe that nobody reads holds it up when it is full.
    stdout: Option<File>,
}

impl Started {
    fn new(mut command: Command) -> Self {
        let stdout = tempfile::tempfile().unwrap();
        command.stdout(stdout.try_clone().unwrap());
        let mut started = Self::with_stdout(command);
        started.stdout = Some(stdout);
        started
    }

    /// Starts what has a standard output already.
    fn with_stdout(mut command: Command) -> Self {
        Self { child: command.stderr(Stdio::piped()).spawn().unwrap(), stdout: None }
    }

    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// Waits until it has said this on its standard error. Returns what it has said since this was called
    /// last.
    fn await_said(&mut self, words: &str) -> String {
        let (from, mut said, mut byte) = (self.child.stderr.as_mut().unwrap(), String::new(), [0]);
        while !said.contains(words) {
            from.read_exact(&mut byte).unwrap_or_else(|_| panic!("it ends without `{words}`: {said}"));
            said.push(char::from(byte[0]));
        }
        said
    }

    /// Waits until its standard output has this. Returns all of it.
    fn await_printed(&self, words: &str) -> String {
        let since = Instant::now();
        loop {
            let all = printed(self.stdout.as_ref().expect("no test reads it at once"));
            if all.contains(words) {
                return all;
            }
            assert!(since.elapsed() < PATIENCE, "it printed {all:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(mut self) -> Ended {
        let since = Instant::now();
        while self.child.try_wait().unwrap().is_none() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let late = self.child.try_wait().unwrap().is_none();
        // It may have ended already.
        let _ = self.child.kill();
        let read = |from: &mut dyn Read| {
            let mut text = String::new();
            from.read_to_string(&mut text).unwrap();
            text
        };
        let ended = Ended {
            stdout: self.stdout.as_ref().map_or_else(String::new, printed),
            stderr: read(&mut self.child.stderr.take().unwrap()),
            status: self.child.wait().unwrap().code(),
        };
        assert!(!late, "it does not end: {}{}", ended.stdout, ended.stderr);
        ended
    }
}

/// All of a file, in which a process may still write.
fn printed(file: &File) -> String {
    let mut all = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut all, 0).unwrap();
    String::from_utf8(all).unwrap()
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn end_all(started: Vec<Started>) -> Vec<Ended> {
    started.into_iter().map(Started::end).collect()
}

/// How a process ended.
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.status, Some(0), "{}{}", self.stdout, self.stderr);
        self
    }

    /// The standard error of a process that failed with this status.
    #[track_caller]
    fn failed(self, status: i32) -> String {
        assert_eq!(self.status, Some(status), "{}{}", self.stdout, self.stderr);
        self.stderr
    }

    /// The standard error of a process that failed before or after its first step.
    #[track_caller]
    fn failed_somehow(self) -> String {
        assert!(matches!(self.status, Some(1 | 2)), "{}{}", self.stdout, self.stderr);
        self.stderr
    }

    fn hash(&self) -> String {
        let line = self.stdout.lines().find_map(|line| line.strip_prefix("weights "));
        line.unwrap_or_else(|| panic!("{}{}", self.stdout, self.stderr)).to_owned()
    }
}

/// Asserts that all succeeded. Returns the first one.
#[track_caller]
fn all_done(ended: Vec<Ended>) -> Ended {
    let mut done = ended.into_iter().map(Ended::done);
    let first = done.next().expect("one process at least");
    for other in done {
        assert_eq!([&other.stdout[..], &other.stderr], ["", ""], "only process 0 speaks");
    }
    first
}
