//! Where the processes of a run find each other, and what must be equal in all of them.

use std::time::Duration;

use super::Config;
use super::mpi_place::by_mpi;
use super::variables::{Environment, number, text};
use crate::error::{ConfigError, ProcessesProblem, Result};
use crate::fabric::Membership;

/// The number of processes of a run.
const SIZE: &str = "WORLD_SIZE";

/// This process's number.
const NUMBER: &str = "RANK";

/// Where process 0 is, if the config does not say it.
const HOST: &str = "MASTER_ADDR";
const PORT: &str = "MASTER_PORT";

/// After how many seconds of silence another machine counts as gone.
const SILENCE: &str = "PIPEWRIGHT_SILENCE";

/// This process's number and the number of processes, from the environment. `None` if it runs alone.
///
/// # Errors
/// When a variable is not a number, is missing, or is out of range.
pub fn processes(environment: &Environment) -> Result<Option<[u32; 2]>> {
    let mpi = by_mpi(environment).map_err(ConfigError::Processes)?;
    let mpi = mpi.filter(|_| cfg!(feature = "mpi")).map(|mpi| mpi.place);
    let said = processes_of(environment).map_err(ConfigError::Processes)?;
    Ok(said.or(mpi))
}

fn processes_of(environment: &Environment) -> std::result::Result<Option<[u32; 2]>, ProcessesProblem> {
    let Some(count) = number(environment, SIZE)? else {
        return Ok(None);
    };
    match (count, number(environment, NUMBER)?) {
        (0, _) => Err(ProcessesProblem::NoProcesses),
        (1, None | Some(0)) => Ok(None),
        (processes, None) => Err(ProcessesProblem::NotNumbered { processes }),
        (processes, Some(process)) if process < processes => Ok(Some([process, processes])),
        (processes, Some(process)) => Err(ProcessesProblem::OutOfRange { process, processes }),
    }
}

impl Config {
    /// This process's place in a run by sockets, from the environment. `None` if it runs alone.
    /// `launch.address` overrides the environment's address, because a launcher may use its own port itself.
    ///
    /// # Errors
    /// As for [`processes`]. Also when neither the config nor the environment says where process 0 listens.
    pub fn membership(&self, environment: &Environment) -> Result<Option<Membership>> {
        let place = processes_of(environment).map_err(ConfigError::Processes)?;
        let Some([process, processes]) = place else {
            return Ok(None);
        };
        let given = match (text(environment, HOST), text(environment, PORT)) {
            // An IPv6 address itself contains colons.
            (Some(host), Some(port)) if host.contains(':') => Some(format!("[{host}]:{port}")),
            (Some(host), Some(port)) => Some(format!("{host}:{port}")),
            _ => None,
        };
        let address = self.launch.address.clone().or(given);
        let address = address.ok_or(ConfigError::Processes(ProcessesProblem::NoAddress { processes }))?;
        Ok(Some(Membership {
            process,
            processes,
            address,
            deadline: Duration::from_secs(self.launch.deadline),
            silence: silence(environment).map_err(ConfigError::Processes)?,
        }))
    }

    /// What must be equal in all processes of a run: every key that counts, except where the processes find
    /// each other and what is served.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn in_common(&self) -> Result<String> {
        let mut table = self.kept()?;
        table.remove("launch");
        table.remove("metrics");
        Ok(table.to_string())
    }
}

/// How long another process or machine may be silent.
pub(super) fn silence(environment: &Environment) -> std::result::Result<Duration, ProcessesProblem> {
    let seconds = number(environment, SILENCE)?;
    Ok(seconds.map_or(Membership::SILENCE, |seconds| Duration::from_secs(seconds.into())))
}

/// Whether the environment has a number of processes.
pub(super) fn is_counted(environment: &Environment) -> bool {
    text(environment, SIZE).is_some()
}

/// The process's number and the number of processes, as `RANK` and `WORLD_SIZE` say them, if any is set.
pub(super) fn said(environment: &Environment) -> std::result::Result<Option<[u32; 2]>, ProcessesProblem> {
    let (process, processes) = (number(environment, NUMBER)?, number(environment, SIZE)?);
    Ok(match (process, processes) {
        (None, None) => None,
        (process, processes) => Some([process.unwrap_or(0), processes.unwrap_or(1)]),
    })
}
