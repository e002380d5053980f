//! The commands train and sample, as a person or a script runs them.

#[path = "../../../tests/common/free_address.rs"]
mod free_address;
#[path = "../../../tests/common/gguf.rs"]
mod gguf;
#[path = "../../../tests/common/has.rs"]
mod has;
#[path = "../common/place.rs"]
mod place;

mod adapters;
#[cfg(target_os = "linux")]
mod devices;
mod documents;
mod dtypes;
mod encrypted;
mod evaluate;
mod forms;
mod gpus;
mod groups;
#[cfg(target_os = "linux")]
mod large;
mod memory;
mod mixed;
mod models;
mod out;
mod own_program;
mod planned;
mod plans;
mod ports;
mod preferences;
mod privacy;
mod refusals;
mod replan;
mod replicas;
mod report;
mod safety;
mod sample;
mod samples;
mod schedules;
mod serve;
mod stacks;
mod stores;
mod talk;
mod tokenize;
mod trace;
mod train;
mod tune;
mod verify;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use free_address::free_address;
use has::has;
use pipewright::schedule::Schedule;
use place::{Place, signal};
use tempfile::TempDir;

/// The small tokenizer.
const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/tokenizer");

/// A folder of a small model, as transformers wrote it.
fn llama() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/hf/llama")).to_owned()
}

/// Small enough to train quickly. Dropout is on.
const CONFIG: &str = "\
[model]
dim = 16
layers = 2
heads = 2
dropout = 0.1

[data]
path = 'text.txt'
seq = 16

[pipeline]
micro_batches = 3
micro_batch_size = 2

[train]
name = 'small'
steps = 6
validate_every = 3
print_every = 1

[checkpoint]
every = 2
";

impl Place {
    fn new() -> Self {
        Self::with(CONFIG)
    }

    /// A folder with nothing in it.
    fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn run(&self, args: &[&str]) -> Run {
        Run(self.command(args).output().unwrap())
    }

    /// Runs a command with these settings.
    fn run_with(&self, args: &[&str], sets: &[impl AsRef<str>]) -> Run {
        let sets: Vec<&str> = sets.iter().map(AsRef::as_ref).collect();
        self.run(&[args, &set(&sets)].concat())
    }

    /// The steps in `metrics.jsonl`.
    fn steps(&self, run: &str) -> Vec<u64> {
        self.lines(run).iter().map(|line| line["step"].as_u64().unwrap()).collect()
    }

    /// Starts a long run and waits until it has done some steps.
    fn start(&self, args: &[&str]) -> Running {
        self.start_as(args, |command| {
            let mut same = Command::new(command.get_program());
            same.current_dir(self.0.path()).args(command.get_args());
            same
        })
    }

    /// Starts a long run by what is made of its command.
    fn start_as(&self, args: &[&str], made: impl FnOnce(&Command) -> Command) -> Running {
        let long = ["train", "my.toml", "--set", "train.steps=1000000", "--set", "train.validate_every=0"];
        let running = Running::new(made(&self.command(&[&long[..], args].concat())));
        let metrics = self.path("runs/small/metrics.jsonl");
        wait_until(|| fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() > 4));
        running
    }
}

/// A command that runs. It writes into files: a pipe that nobody reads would hold it up when it is full.
struct Running {
    child: Alive,
    stdout: File,
    stderr: File,
}

/// A process that does not live longer than the test that began it, also if the test fails.
struct Alive(Child);

impl Drop for Alive {
    fn drop(&mut self) {
        // It has ended already, most often.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn new(mut command: Command) -> Self {
        let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        command.stdout(stdout.try_clone().unwrap());
        command.stderr(stderr.try_clone().unwrap());
        Self { child: Alive(command.spawn().unwrap()), stdout, stderr }
    }

    fn signal(&self, name: &str) {
        signal(&self.child.0, name);
    }

    fn kill(mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
    }

    fn end(mut self) -> Run {
        let status = self.child.0.wait().unwrap();
        let [stdout, stderr] = [self.stdout, self.stderr].map(|mut file| {
            let mut said = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut said).unwrap();
            said
        });
        Run(Output { status, stdout, stderr })
    }
}

struct Run(Output);

impl Run {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.0.status.code(), Some(0), "{}{}", self.stdout(), self.stderr());
        self
    }

    /// The message of a refusal, which is one line and starts nothing.
    #[track_caller]
    fn refused(self) -> String {
        assert_eq!(self.0.status.code(), Some(2), "{}{}", self.stdout(), self.stderr());
        assert_eq!(self.stdout(), "");
        self.stderr()
    }

    fn hash(&self) -> String {
        let stdout = self.stdout();
        stdout
            .lines()
            .find_map(|line| line.strip_prefix("weights "))
            .unwrap_or_else(|| panic!("{stdout}"))
            .to_owned()
    }
}

/// The arguments for these settings.
fn set<'a>(sets: &[&'a str]) -> Vec<&'a str> {
    sets.iter().flat_map(|set| ["--set", set]).collect()
}

fn wait_until(holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "it took too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}
