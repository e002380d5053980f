//! The `pipewright` command.
//!
//! Exit status:
//! * 0: done.
//! * 1: a run failed.
//! * 2: the arguments, the config or the schedule are wrong. Nothing was started.
//! * 130: interrupted, and the state was saved.

mod bars;
mod belongings;
mod check;
mod cuda_env;
mod devices;
mod evaluate;
mod export;
mod import;
mod key;
mod memory;
mod out;
mod plan;
mod processes;
mod profile;
mod replan;
mod report;
mod sample;
mod saved;
mod serve;
mod stalls;
mod tokenize;
mod train;
mod tune;
mod verify;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::config::Config;
use crate::{Error, Result};
use pipewright::error::RunError;
use pipewright::plan::AUTO;
use pipewright::run::title;
use pipewright::system;

/// Pipeline-parallel training: a model is cut into stages, and micro-batches go through them.
#[derive(Debug, Parser)]
#[command(
    name = "pipewright",
    version,
    after_help = "\
First steps:
  pipewright train                                              train a small GPT on a built-in text
  pipewright report runs/first                                  see how it went, as a page
  pipewright sample runs/first --prompt \"First Citizen:\"        write text with it
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b   see what a schedule does
  pipewright help COMMAND                                       more about a command, with examples"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Args),
    Evaluate(evaluate::Args),
    Sample(sample::Args),
    Serve(serve::Args),
    Import(import::Args),
    Export(export::Args),
    Plan(plan::Args),
    Profile(profile::Args),
    Tune(tune::Args),
    Tokenize(tokenize::Args),
    Report(report::Args),
    Replan(replan::Args),
    Check(check::Args),
    Verify(verify::Args),
    Devices(devices::Args),
}

/// The exit status of a process that was asked to end.
const INTERRUPTED: u8 = 130;

/// A failed command and its exit status.
struct Failure {
    error: Box<Error>,
    status: u8,
}

impl Failure {
    /// Nothing was started.
    fn refused(error: impl Into<Error>) -> Self {
        Self { error: Box::new(error.into()), status: 2 }
    }

    /// Something was started.
    fn failed(error: impl Into<Error>) -> Self {
        Self { error: Box::new(error.into()), status: 1 }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.is_refusal() {
            true => Self::refused(error),
            false => Self::failed(error),
        }
    }
}

/// The stack of a program's first thread, in bytes.
const STACK: usize = 8 << 20;

/// Runs the command of this process's arguments and returns its exit status.
///
/// It runs on a thread of its own. A signal goes to the first thread of a process if that does not block it.
/// If that thread hung in a disk, it would not be heard.
pub fn main() -> ExitCode {
    let thread = thread::Builder::new().name("command".to_owned()).stack_size(STACK);
    match thread.spawn(command) {
        // A panic was printed.
        Ok(command) => command.join().unwrap_or(ExitCode::from(101)),
        Err(_) => command(),
    }
}

fn command() -> ExitCode {
    refuse_apart(std::env::args_os());
    let result = report_file_limit().map_err(Failure::failed).and_then(|()| run(Cli::parse().command));
    result.unwrap_or_else(|Failure { error, status }| {
        // In one piece, because a launcher may mix what its processes print.
        let said = format!("{}error: {error}\n", processes::prefix());
        // If nobody can read it, the status still tells that it failed.
        let _ = io::stderr().write_all(said.as_bytes());
        ExitCode::from(status)
    })
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error, where it would end the
/// process.
fn report_file_limit() -> Result<()> {
    system::heed_file_limit().map_err(|source| RunError::no_signals(source).into())
}

fn run(command: Command) -> std::result::Result<ExitCode, Failure> {
    match command {
        Command::Train(args) => return train::run(&args),
        Command::Evaluate(args) => processes::refuse("evaluate").and_then(|()| evaluate::run(&args))?,
        Command::Sample(args) => processes::refuse("sample").and_then(|()| sample::run(&args))?,
        Command::Serve(args) => processes::refuse("serve").and_then(|()| serve::run(&args))?,
        Command::Import(args) => processes::refuse("import").and_then(|()| import::run(&args))?,
        Command::Export(args) => processes::refuse("export").and_then(|()| export::run(&args))?,
        Command::Plan(args) => plan::run(args)?,
        Command::Profile(args) => profile::run(&args)?,
        Command::Tune(args) => processes::refuse("tune").and_then(|()| tune::run(&args))?,
        Command::Tokenize(args) => processes::refuse("tokenize").and_then(|()| tokenize::run(&args))?,
        Command::Report(args) => processes::refuse("report").and_then(|()| report::run(&args))?,
        Command::Check(args) => check::run(args)?,
        Command::Replan(args) => return Ok(processes::refuse("replan").and_then(|()| replan::run(&args))?),
        Command::Verify(args) => return Ok(processes::refuse("verify").and_then(|()| verify::run(&args))?),
        Command::Devices(args) => devices::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses `--trace 5` with a space: `5` would be taken for the config.
fn refuse_apart(args: impl Iterator<Item = OsString>) {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    let apart = args.windows(2).find(|pair| pair[0] == "--trace" && is_number(&pair[1]));
    if let Some([_, number]) = apart {
        let message = format!("write `--trace={number}`, with an equals sign and no space");
        Cli::command().error(ErrorKind::InvalidValue, message).exit();
    }
}

/// The number of cells that `auto` searches in a moment.
const FEW_CELLS: u64 = 1 << 10;

/// Says on the error stream that `auto` searches, where this takes longer than a moment.
fn tell_search(ranks: u32, micro_batches: u32) {
    if u64::from(ranks) * u64::from(micro_batches) > FEW_CELLS {
        eprintln!(
            "auto compares schedules for {ranks} ranks and {micro_batches} micro-batches, which may take \
             minutes"
        );
    }
}

/// The same for a config.
fn tell_search_of(config: &Config) {
    if config.pipeline.schedule == AUTO {
        let stages = u32::try_from(config.pipeline.stages).unwrap_or(u32::MAX);
        tell_search(stages / config.pipeline.chunks.unwrap_or(1), config.pipeline.micro_batches);
    }
}

/// Prints lines about files that do not do what they say, to standard error.
fn warn<L: std::fmt::Display>(lines: impl IntoIterator<Item = L>) {
    for line in lines {
        eprintln!("warning: {line}");
    }
}

/// A line of JSON, for scripts.
fn json(value: &impl serde::Serialize) -> Result<String> {
    match serde_json::to_string(value) {
        Ok(text) => Ok(text + "\n"),
        Err(error) => Err(Error::refused(format!("cannot write JSON: {error}"))),
    }
}

/// Prints to standard output. If its reader stops early, as `head` does, that is no error.
fn print(text: &str) -> Result<()> {
    write(text.as_bytes()).map(|_| ())
}

/// Writes to standard output at once. Returns `false` if its reader has stopped.
fn write(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::io("write to", "standard output")(error)),
    }
}
