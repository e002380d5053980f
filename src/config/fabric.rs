//! Which fabric connects the processes of a run: `launch.fabric`, or what the process was started by.

use super::launch;
use super::mpi_place::{MpiPlace, by_mpi};
use super::variables::Environment;
use super::{Config, FabricKind};
use crate::error::{ConfigError, ProcessesProblem, Result};
use crate::fabric::Membership;
#[cfg(feature = "mpi")]
use crate::fabric::MpiMembership;

/// How a process reaches the others of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fabric {
    /// It is alone.
    Alone,
    /// By sockets.
    Sockets(Membership),
    /// By MPI.
    #[cfg(feature = "mpi")]
    Mpi(MpiMembership),
}

impl Config {
    /// How this process reaches the others, and one line that says why.
    ///
    /// # Errors
    /// [`ProcessesProblem`] when `launch.fabric` asks for what this process was not started by, or what this
    /// build does not have, and when `RANK` and `WORLD_SIZE` contradict the MPI launcher. Also as for
    /// [`Config::membership`].
    pub fn fabric(&self, environment: &Environment) -> Result<(Fabric, String)> {
        let mpi = by_mpi(environment).map_err(ConfigError::Processes)?;
        let chosen = match (self.launch.fabric, mpi) {
            (FabricKind::Sockets, _) => {
                if !launch::is_counted(environment) {
                    return Err(ConfigError::Processes(ProcessesProblem::NoPlace).into());
                }
                self.by_sockets(environment, "launch.fabric says so")?
            }
            (FabricKind::Mpi, None) if cfg!(feature = "mpi") => {
                return Err(ConfigError::Processes(ProcessesProblem::NotByMpi).into());
            }
            (FabricKind::Mpi, None) => return Err(ConfigError::Processes(ProcessesProblem::NoMpi).into()),
            (FabricKind::Mpi, Some(place)) => self.by_mpi(environment, place)?,
            (FabricKind::Auto, Some(place)) if cfg!(feature = "mpi") => self.by_mpi(environment, place)?,
            (FabricKind::Auto, Some(_)) => {
                self.by_sockets(environment, "WORLD_SIZE is set, and this build has no MPI")?
            }
            (FabricKind::Auto, None) => self.by_sockets(environment, "WORLD_SIZE is set")?,
        };
        Ok(chosen)
    }

    fn by_sockets(&self, environment: &Environment, why: &str) -> Result<(Fabric, String)> {
        Ok(match self.membership(environment)? {
            Some(membership) => {
                let said = format!("sockets between {} processes: {why}", membership.processes);
                (Fabric::Sockets(membership), said)
            }
            None => (
                Fabric::Alone,
                "channels: one process; nothing says that there are more".to_owned(),
            ),
        })
    }

    fn by_mpi(&self, environment: &Environment, mpi: MpiPlace) -> Result<(Fabric, String)> {
        let MpiPlace { place, by } = mpi;
        if let Some(said) = launch::said(environment).map_err(ConfigError::Processes)?
            && said != place
        {
            let mpi = place;
            return Err(ConfigError::Processes(ProcessesProblem::TwoFabrics { said, mpi, by }).into());
        }
        let why = match self.launch.fabric {
            FabricKind::Mpi => "launch.fabric says so".to_owned(),
            _ => format!("{by} is set, so an MPI launcher has started it"),
        };
        let said = format!("mpi between {} processes: {why}", place[1]);
        Ok((self.mpi_membership(environment, place)?, said))
    }

    #[cfg(feature = "mpi")]
    fn mpi_membership(&self, environment: &Environment, [process, processes]: [u32; 2]) -> Result<Fabric> {
        Ok(Fabric::Mpi(MpiMembership {
            process,
            processes,
            deadline: std::time::Duration::from_secs(self.launch.deadline),
            silence: launch::silence(environment).map_err(ConfigError::Processes)?,
        }))
    }

    #[cfg(not(feature = "mpi"))]
    #[allow(clippy::unused_self, reason = "the build with MPI needs it")]
    fn mpi_membership(&self, _: &Environment, _: [u32; 2]) -> Result<Fabric> {
        Err(ConfigError::Processes(ProcessesProblem::NoMpi).into())
    }
}
