//! The `pipewright` command.
//!
//! Exit status: 0 done; 2 bad arguments, config or schedule, nothing was started; 1 a run failed; 130
//! interrupted, saved.

mod check;
mod costs;
mod cuda_env;
mod devices;
mod forecast;
mod generate;
mod out;
mod picture;
mod plan;
mod processes;
mod profile;
mod progress;
mod run_dir;
mod sample;
mod trace;
mod train;
mod trainer;
mod tune;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::schedule::Schedule;
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
    Devices(devices::Args),
}

/// Runs the command that the process was started with and gives its exit status.
pub fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    let result = match Cli::parse().command {
        Command::Train(args) => train::run(args),
        Command::Sample(args) => processes::refuse("sample")
            .and_then(|()| sample::run(args))
            .map(done),
        Command::Plan(args) => plan::run(args).map(done),
        Command::Profile(args) => processes::refuse("profile")
            .and_then(|()| profile::run(&args))
            .map(done),
        Command::Tune(args) => processes::refuse("tune")
            .and_then(|()| tune::run(&args))
            .map(done),
        Command::Check(args) => check::run(args).map(done),
        Command::Devices(args) => devices::run(&args).map(done),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}error: {error}", processes::prefix());
            ExitCode::from(if error.is_refusal() { 2 } else { 1 })
        }
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

/// What a picture of a schedule is called.
fn title(schedule: &Schedule) -> String {
    format!(
        "{}: ranks {}, stages {}, micro-batches {}",
        schedule.name(),
        schedule.ranks(),
        schedule.stages(),
        schedule.micro_batches()
    )
}
