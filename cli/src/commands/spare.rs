//! `pipewright train --spare`: waits beside a run, and takes the place of a process that is lost.

use std::process::{Command, ExitCode};

use super::print;
use crate::config::{Config, environment};
use crate::error::{Error, Result};
use pipewright::fabric::World;

/// Waits until a process is lost, and then becomes that process: the same command runs again, with its
/// number. Returns when the run has ended. `program` is what must be equal in all processes.
pub(super) fn wait(config: &Config, program: &str) -> Result<ExitCode> {
    let membership = config.spare_membership(&environment())?;
    let known = || {
        // If nobody can read it, it waits all the same.
        let _ = print(&format!("a spare of the run at {}\n", membership.address));
    };
    match World::stand_by(&membership, program, known)? {
        None => {
            print("the run has ended\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Some([process, processes]) => {
            print(&format!("takes the place of process {process}\n"))?;
            begin_as(process, processes)
        }
    }
}

/// Runs this command again, as process `process` of `processes`.
fn begin_as(process: u32, processes: u32) -> Result<ExitCode> {
    let program = std::env::current_exe().map_err(Error::io("find", "this program"))?;
    let args = std::env::args_os().skip(1).filter(|arg| arg != "--spare");
    let mut command = Command::new(&program);
    command.args(args).env("RANK", process.to_string()).env("WORLD_SIZE", processes.to_string());
    replace_by(&mut command).map_err(Error::io("start", program))
}

#[cfg(unix)]
fn replace_by(command: &mut Command) -> std::io::Result<ExitCode> {
    use std::os::unix::process::CommandExt;

    Err(command.exec())
}

/// Other systems cannot replace a process.
#[cfg(not(unix))]
fn replace_by(command: &mut Command) -> std::io::Result<ExitCode> {
    let code = command.status()?.code();
    Ok(ExitCode::from(code.and_then(|code| code.try_into().ok()).unwrap_or(1)))
}
