//! The `pipewright` command.
//!
//! Exit status: 0 done; 2 bad arguments, config or schedule, nothing was started; 1 a run failed.

mod check;
mod plan;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Plan(plan::Args),
    Check(check::Args),
}

/// Runs the command that the process was started with and gives its exit status.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Plan(args) => plan::run(args),
        Command::Check(args) => check::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if matches!(error, Error::Invalid(_)) { 2 } else { 1 })
        }
    }
}

/// Prints to standard output. A reader that has seen enough, such as `head`, is no error.
fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("write to", "standard output")(error))
        }
        _ => Ok(()),
    }
}
