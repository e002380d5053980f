//! The place of a process that an MPI launcher has started.

use super::variables::{Environment, number};
use crate::error::Result;

/// What MPI launchers tell a process: its number and the number of processes. `mpirun` of Open MPI; `mpirun`
/// of MPICH, and `srun --mpi=pmi2`; `srun --mpi=pmix`.
const LAUNCHERS: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
    ["PMI_RANK", "PMI_SIZE"],
    ["PMIX_RANK", "SLURM_STEP_NUM_TASKS"],
];

/// A process's place, as an MPI launcher says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MpiPlace {
    /// Its number and the number of processes, which are several.
    pub(super) place: [u32; 2],
    /// The variable with the number of processes.
    pub(super) by: &'static str,
}

/// The place of a process that an MPI launcher has started with others.
pub(super) fn by_mpi(environment: &Environment) -> Result<Option<MpiPlace>> {
    for [own, size] in LAUNCHERS {
        let place = [number(environment, own)?, number(environment, size)?];
        if let [Some(process), Some(processes)] = place {
            let place = [process, processes];
            return Ok((processes > 1).then_some(MpiPlace { place, by: size }));
        }
    }
    Ok(None)
}
