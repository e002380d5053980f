//! The commands train and sample, as a person or a script runs them.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use tempfile::TempDir;

use free_address::free_address;

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

/// A folder with a config and a text to train on.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("my.toml"), CONFIG).unwrap();
        fs::write(folder.path().join("text.txt"), "the quick brown fox jumps over the lazy dog. ".repeat(40))
            .unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("pipewright"));
        command.current_dir(self.0.path()).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run(self.command(args).output().unwrap())
    }

    /// The steps in `metrics.jsonl`.
    fn steps(&self, run: &str) -> Vec<u64> {
        self.lines(run).iter().map(|line| line["step"].as_u64().unwrap()).collect()
    }

    fn lines(&self, run: &str) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn checkpoints(&self, run: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(run).join("checkpoints")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
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
    child: Child,
    stdout: File,
    stderr: File,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let [stdout, stderr] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        command.stdout(stdout.try_clone().unwrap());
        command.stderr(stderr.try_clone().unwrap());
        Self { child: command.spawn().unwrap(), stdout, stderr }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn end(mut self) -> Run {
        let status = self.child.wait().unwrap();
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

fn wait_until(holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "it took too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[path = "../../../tests/common/free_address.rs"]
mod free_address;
#[path = "../../../tests/common/gguf.rs"]
mod gguf;

mod adapters;

mod forms;

mod models;

mod train;

mod planned;

mod ports;

mod replicas;

mod refusals;

mod memory;

mod safety;

mod sample;
mod samples;
mod stacks;

mod documents;

mod tokenize;

mod trace;

mod schedules;

mod out;

mod tune;

mod dtypes;
mod evaluate;
mod gpus;
mod groups;

mod verify;

#[cfg(target_os = "linux")]
mod devices;
