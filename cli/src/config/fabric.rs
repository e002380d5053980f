//! Which fabric connects the processes of a run: `launch.fabric`, or what the process was started by.

use super::launch::launched;
use super::variables::{Environment, number};
use super::{Config, FabricKind};
use crate::error::{ConfigError, Error, Result};
use pipewright::error::FabricError;
use pipewright::fabric::Membership;
#[cfg(feature = "mpi")]
use pipewright_mpi::MpiMembership;

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

const NO_PLACE: &str = "launch.fabric is \"sockets\", but nothing says which of several processes this is: \
                        set WORLD_SIZE and RANK, or leave launch.fabric out";
const NOT_BY_MPI: &str = "launch.fabric is \"mpi\", but no MPI launcher has started several processes: start \
                          them with `mpirun -n 4 pipewright train ...` or `srun --mpi=pmix pipewright train \
                          ...`";
const NO_MPI: &str = "launch.fabric is \"mpi\", but this program was built without MPI: install Open MPI or \
                      MPICH with its headers, and libclang, and build it with `cargo build --release \
                      --features mpi`";

fn refused(problem: &str) -> Error {
    ConfigError::Other(problem.to_owned()).into()
}

impl Config {
    /// How this process reaches the others, and one line that says why.
    ///
    /// # Errors
    /// [`ConfigError`] when `launch.fabric` asks for what this process was not started by, or for what
    /// this build does not have. [`FabricError::Refused`] where MPI should encrypt. Also as for [`launched`]
    /// and [`Config::membership`].
    pub fn fabric(&self, environment: &Environment) -> Result<(Fabric, String)> {
        let has_mpi = cfg!(feature = "mpi");
        let asked = self.launch.fabric;
        let Some(found) = launched(environment)? else {
            let problem = match asked {
                FabricKind::Auto => {
                    let said = "channels: one process; nothing says that there are more";
                    return Ok((Fabric::Alone, said.to_owned()));
                }
                FabricKind::Sockets => NO_PLACE,
                FabricKind::Mpi if has_mpi => NOT_BY_MPI,
                FabricKind::Mpi => NO_MPI,
            };
            return Err(refused(problem));
        };
        let place = [found.process, found.processes];
        let mpi = mpi_place(environment)?;
        let mpi = mpi.filter(|mpi| mpi.place == place);
        match (asked, mpi) {
            (FabricKind::Mpi, None) if has_mpi => Err(refused(NOT_BY_MPI)),
            (FabricKind::Mpi, None) => Err(refused(NO_MPI)),
            (FabricKind::Mpi, Some(_)) => self.by_mpi(environment, place, "launch.fabric says so"),
            (FabricKind::Auto, Some(mpi)) if has_mpi => {
                let why = format!("{} is set, so an MPI launcher has started it", mpi.by);
                self.by_mpi(environment, place, &why)
            }
            (FabricKind::Auto, Some(_)) => self.by_sockets(environment, "this build has no MPI"),
            (FabricKind::Auto, None) => self.by_sockets(environment, "no MPI launcher has started it"),
            (FabricKind::Sockets, _) => self.by_sockets(environment, "launch.fabric says so"),
        }
    }

    fn by_sockets(&self, environment: &Environment, why: &str) -> Result<(Fabric, String)> {
        let membership = self.membership(environment)?;
        let membership = membership.expect("a launcher has started several processes");
        let encrypted = if membership.tls { ", encrypted between hosts" } else { "" };
        let said = format!("sockets between {} processes{encrypted}: {why}", membership.processes);
        Ok((Fabric::Sockets(membership), said))
    }

    fn by_mpi(&self, environment: &Environment, place: [u32; 2], why: &str) -> Result<(Fabric, String)> {
        if self.launch.tls {
            return Err(FabricError::refused(
                "launch.tls is true, but MPI connects the processes, and encrypts nothing that it is told \
                 to: set launch.fabric = \"sockets\", or leave launch.tls out",
            )
            .into());
        }
        let said = format!("mpi between {} processes: {why}", place[1]);
        Ok((self.mpi_membership(environment, place)?, said))
    }

    #[cfg(feature = "mpi")]
    fn mpi_membership(&self, environment: &Environment, [process, processes]: [u32; 2]) -> Result<Fabric> {
        Ok(Fabric::Mpi(MpiMembership {
            process,
            processes,
            deadline: std::time::Duration::from_secs(self.launch.deadline),
            silence: super::launch::silence(environment)?,
        }))
    }

    #[cfg(not(feature = "mpi"))]
    #[allow(clippy::unused_self, reason = "the build with MPI needs it")]
    fn mpi_membership(&self, _: &Environment, _: [u32; 2]) -> Result<Fabric> {
        Err(refused(NO_MPI))
    }
}

/// What MPI launchers tell a process: its number and the number of processes. `mpirun` of Open MPI; `mpirun`
/// of MPICH, and `srun --mpi=pmi2`; `srun --mpi=pmix`.
const LAUNCHERS: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["PMIX_RANK", "SLURM_STEP_NUM_TASKS"],
];

/// A process's place, as an MPI launcher says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MpiPlace {
    /// Its number and the number of processes, which are several.
    place: [u32; 2],
    /// The variable with the number of processes.
    by: &'static str,
}

/// The place of a process that an MPI launcher has started with others.
fn mpi_place(environment: &Environment) -> Result<Option<MpiPlace>> {
    for [own, size] in LAUNCHERS {
        let place = [number(environment, own)?, number(environment, size)?];
        if let [Some(process), Some(processes)] = place {
            let place = [process, processes];
            return Ok((processes > 1).then_some(MpiPlace { place, by: size }));
        }
    }
    Ok(None)
}
