//! This process's place among the processes of its run: what launchers say, and which of them counts.
//!
//! A launcher may be started by another one: `mpirun` starts its helpers by `srun` when it is in a job of
//! Slurm, and `torchrun` is often started once on each host by any of the others. The inner one has started
//! this process, so it counts. From the inside to the outside:
//!
//! 1. `torchrun`, which marks its processes;
//! 2. `jsrun`, PALS or MVAPICH, which set the variables of other MPI launchers too;
//! 3. `mpirun` or `mpiexec`;
//! 4. `srun`, then Flux;
//! 5. an indexed Job of Kubernetes, if its description says how many pods there are.
//!
//! `RANK` and `WORLD_SIZE` that are set by hand have no such place. They have to say the same as `mpirun` or
//! `srun`, unless that has started only one process, as `srun --pty bash` does. In a Job of Kubernetes,
//! `RANK` comes before the number of the pod.

mod by_hand;
mod clusters;
mod found;
mod kubernetes;
mod mpi;
mod slurm;
mod token;
mod torchrun;
use super::variables;

use std::time::Duration;

use toml::Value;

use super::{Config, keys};
use crate::error::{ConfigError, Result};
use pipewright::fabric::Membership;

pub use found::{Launched, Launcher};

/// After how many seconds of silence another machine counts as gone.
const SILENCE: &str = "PIPEWRIGHT_SILENCE";

/// The longest silence, in seconds. Systems allow about as much between two probes of a connection.
const DAY: u32 = 24 * 3600;

/// This process's place, as a launcher says it in the environment. `None` if it runs alone.
///
/// # Errors
/// [`ConfigError`] when a variable is not a number, is missing, or is out of range, and when two
/// launchers say different things.
pub fn launched(environment: &[(String, String)]) -> Result<Option<Launched>> {
    match innermost(environment)?.filter(|found| found.processes > 1) {
        Some(found) => by_hand::meeting(environment, found).map(Some),
        None => Ok(None),
    }
}

/// This process's number and the number of processes. `None` if it runs alone.
///
/// # Errors
/// As for [`launched`].
pub fn processes(environment: &[(String, String)]) -> Result<Option<[u32; 2]>> {
    let found = launched(environment)?;
    Ok(found.map(|found| [found.process, found.processes]))
}

/// How long another process or machine may be silent.
pub(super) fn silence(environment: &[(String, String)]) -> Result<Duration> {
    match variables::number(environment, SILENCE)? {
        None => Ok(Membership::SILENCE),
        Some(seconds @ 1..=DAY) => Ok(Duration::from_secs(seconds.into())),
        Some(seconds) => Err(ConfigError::Other(format!(
            "{SILENCE} is {seconds}: give 1 to {DAY} seconds, after which a silent process counts as gone"
        ))
        .into()),
    }
}

type Reader = fn(&variables::Environment) -> Result<Option<Launched>>;

/// Launchers that start a process on each core or host, from the inside to the outside.
const OUTWARD: [Reader; 6] = [
    |environment| clusters::read(environment, Launcher::Jsrun),
    |environment| clusters::read(environment, Launcher::Pals),
    |environment| clusters::read(environment, Launcher::Mvapich),
    mpi::read,
    slurm::read,
    |environment| clusters::read(environment, Launcher::Flux),
];

fn innermost(environment: &variables::Environment) -> Result<Option<Launched>> {
    if let Some(found) = torchrun::read(environment)? {
        return Ok(Some(found));
    }
    let mut found = None;
    for read in OUTWARD {
        if found.is_none() {
            found = read(environment)?;
        }
    }
    match found.filter(|found| found.processes > 1) {
        Some(found) => by_hand::confirms(environment, &found).map(|()| Some(found)),
        None => match kubernetes::read(environment)? {
            Some(found) => Ok(Some(found)),
            None => by_hand::read(environment),
        },
    }
}

impl Config {
    /// This process's place in a run, from the environment. `None` if it runs alone. `launch.address`
    /// overrides the environment's address, and `launch.token_file` its secret.
    ///
    /// # Errors
    /// As for [`launched`]. Also when neither the config nor the environment says where process 0 listens,
    /// and when the secret cannot be read or used.
    pub fn membership(&self, environment: &[(String, String)]) -> Result<Option<Membership>> {
        let Some(found) = launched(environment)? else {
            return Ok(None);
        };
        let address = self.launch.address.clone().or_else(|| found.address());
        let address = address.ok_or_else(|| {
            let (name, processes) = (found.launcher.names()[1], found.processes);
            ConfigError::Other(format!(
                "{name} is {processes}, but nobody says where process 0 listens: set MASTER_ADDR and \
                 MASTER_PORT, or launch.address = \"host:port\""
            ))
        })?;
        Ok(Some(Membership {
            process: found.process,
            processes: found.processes,
            address,
            deadline: Duration::from_secs(self.launch.deadline),
            silence: silence(environment)?,
            secret: token::secret(self.launch.token_file.as_deref(), environment)?,
            tls: self.launch.tls,
            replaces: self.train.restarts > 0,
            fewest: self.launch.fewest.map_or(found.processes, |fewest| fewest.min(found.processes)),
        }))
    }

    /// The membership of a spare, which waits beside a run: it has no number yet. `launch.address` or
    /// `MASTER_ADDR` and `MASTER_PORT` say where process 0 listens.
    ///
    /// # Errors
    /// As for [`Config::membership`]. Also when the run replaces no processes.
    pub fn spare_membership(&self, environment: &[(String, String)]) -> Result<Membership> {
        if self.train.restarts == 0 {
            let problem = "a spare takes the place of a process that is lost, but with train.restarts = 0 a \
                           lost process ends the run";
            return Err(ConfigError::Other(problem.to_owned()).into());
        }
        let counts =
            |name: &str| matches!(name, "MASTER_ADDR" | "MASTER_PORT") || name.starts_with("PIPEWRIGHT_");
        let mut own: Vec<_> = environment.iter().filter(|(name, _)| counts(name)).cloned().collect();
        own.extend(
            [("RANK", "1"), ("WORLD_SIZE", "2")].map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        Ok(self.membership(&own)?.expect("two processes are several"))
    }

    /// What must be equal in all processes of a run: every key that counts, except where the processes find
    /// each other and what is served.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn in_common(&self) -> Result<String> {
        let mut table = self.kept()?;
        for (section, key) in keys::all().filter(|(_, key)| key.is_local) {
            if let Some(Value::Table(values)) = table.get_mut(section) {
                values.remove(key.name);
            }
        }
        Ok(table.to_string())
    }
}
