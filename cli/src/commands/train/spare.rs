//! `pipewright train --spare`: waits beside a run, and takes the place of a process that is lost.

use std::io::ErrorKind;
use std::process::{Command, ExitCode};

use crate::commands::print;
use crate::config::{Config, environment};
use crate::error::{Error, Result};
use pipewright::fabric::World;
use pipewright::system;

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
    let error = system::become_program(&mut command);
    // A system that cannot do it runs the command beside this process.
    if error.kind() != ErrorKind::Unsupported {
        return Err(Error::io("start", program)(error));
    }
    let status = command.status().map_err(Error::io("start", program))?;
    Ok(ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or(1)))
}
