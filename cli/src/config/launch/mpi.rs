//! `mpirun` of Open MPI, and `mpiexec` of MPICH and others with its process manager Hydra.

use super::found::{Launched, Launcher, contradiction, port};
use super::variables::{Environment, Names, number, position, text};
use crate::error::Result;

/// How many of the processes are on this host.
const OPEN_MPI_HERE: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
const MPICH_HERE: &str = "MPI_LOCALNRANKS";

/// The name of Open MPI's job: the same in all processes, and different for each `mpirun`.
const JOB: &str = "PMIX_NAMESPACE";

/// What an MPI launcher says. Neither tells where process 0 is. But if all processes are on one host, that is
/// this host.
pub(super) fn read(environment: &Environment) -> Result<Option<Launched>> {
    let open_mpi = said(environment, Launcher::OpenMpi, OPEN_MPI_HERE, text(environment, JOB))?;
    if is_of_slurm(environment) {
        return Ok(open_mpi);
    }
    // Hydra names no job.
    let mpich = said(environment, Launcher::Mpich, MPICH_HERE, Some(""))?;
    match (open_mpi, mpich) {
        (Some(one), Some(other)) if one.processes > 1 && other.processes > 1 => {
            let [first, second] = [&one, &other].map(Launched::said);
            match [one.process, one.processes] == [other.process, other.processes] {
                true => Ok(Some(one)),
                false => Err(contradiction(&first, &second)),
            }
        }
        (one, other) => Ok(one.or(other)),
    }
}

fn said(
    environment: &Environment,
    launcher: Launcher,
    here: &'static str,
    job: Option<&str>,
) -> Result<Option<Launched>> {
    let Some([process, processes]) = position(environment, launcher.names())? else {
        return Ok(None);
    };
    let is_one_host = number(environment, here)? == Some(processes);
    Ok(Some(Launched {
        process,
        processes,
        launcher,
        host: is_one_host.then(|| "127.0.0.1".to_owned()),
        port: job.map(port),
    }))
}

/// Whether `PMI_RANK` and `PMI_SIZE` are Slurm's, which sets them too (`srun --mpi=pmi2`).
fn is_of_slurm(environment: &Environment) -> bool {
    let equal =
        |[a, b]: Names| text(environment, a).is_some() && text(environment, a) == text(environment, b);
    equal(["PMI_RANK", "SLURM_PROCID"]) && equal(["PMI_SIZE", "SLURM_STEP_NUM_TASKS"])
}
