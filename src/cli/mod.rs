//! The `pipewright` command.
//!
//! Exit status: 0 done; 2 bad arguments, config or schedule, nothing was started; 1 a run failed; 130
//! interrupted, saved.

mod check;
mod costs;
mod cuda_env;
mod devices;
mod file_limit;
mod generate;
mod introduction;
mod memory;
mod out;
mod plan;
mod processes;
mod profile;
mod sample;
mod train;
mod tune;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::run::title;
use crate::{Error, Result};

/// Pipeline-parallel training: a model cut into stages, micro-batches flowing through them.
#[derive(Debug, Parser)]
#[command(name = "pipewright", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(train::Args),
    Sample(sample::Args),
    Plan(plan::Args),
    Profile(profile::Args),
    Tune(tune::Args),
    Check(check::Args),
    Verify(verify::Args),
    Devices(devices::Args),
}

/// A command that failed, and the exit status that says so.
struct Failure {
    error: Box<Error>,
    status: u8,
}

impl Failure {
    /// Nothing was started.
    fn refused(error: Error) -> Self {
        Self {
            error: Box::new(error),
            status: 2,
        }
    }

    /// Something was started.
    fn failed(error: Error) -> Self {
        Self {
            error: Box::new(error),
            status: 1,
        }
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

/// Runs the command that the process was started with and gives its exit status.
pub fn main() -> ExitCode {
    refuse_apart(std::env::args());
    let result = file_limit::report()
        .map_err(Failure::failed)
        .and_then(|()| run(Cli::parse().command));
    result.unwrap_or_else(|Failure { error, status }| {
        eprintln!("{}error: {error}", processes::prefix());
        ExitCode::from(status)
    })
}

fn run(command: Command) -> std::result::Result<ExitCode, Failure> {
    match command {
        Command::Train(args) => return train::run(&args),
        Command::Sample(args) => processes::refuse("sample").and_then(|()| sample::run(args))?,
        Command::Plan(args) => plan::run(args)?,
        Command::Profile(args) => processes::refuse("profile").and_then(|()| profile::run(&args))?,
        Command::Tune(args) => processes::refuse("tune").and_then(|()| tune::run(&args))?,
        Command::Check(args) => check::run(args)?,
        Command::Verify(args) => return Ok(processes::refuse("verify").and_then(|()| verify::run(&args))?),
        Command::Devices(args) => devices::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses `--trace 5`: the number would be taken for the config.
fn refuse_apart(args: impl Iterator<Item = String>) {
    let args: Vec<String> = args.collect();
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    let apart = args
        .windows(2)
        .find(|pair| pair[0] == "--trace" && is_number(&pair[1]));
    if let Some([_, number]) = apart {
        let message = format!("write `--trace={number}`, with an equals sign and no space");
        Cli::command().error(ErrorKind::InvalidValue, message).exit();
    }
}

/// Prints to standard output. A reader that has seen enough, such as `head`, is no error.
fn print(text: &str) -> Result<()> {
    write(text.as_bytes()).map(|_| ())
}

/// Writes to standard output at once; false when its reader has seen enough.
fn write(bytes: &[u8]) -> Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Error::io("write to", "standard output")(error)),
    }
}
