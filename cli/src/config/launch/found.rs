//! What is known of a process that a launcher has started.

use std::fmt;

use crate::error::{ConfigError, Error};

/// The first of the 10,000 ports from which one is taken where nobody names one.
const FIRST_PORT: u16 = 20_000;
const PORTS: u32 = 10_000;

/// A process's place among the processes of its run, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// This process's number, from 0.
    pub process: u32,
    /// How many processes there are.
    pub processes: u32,
    /// What started them.
    pub launcher: Launcher,
    /// The host of process 0. `None` if nobody says it.
    pub host: Option<String>,
    /// The port at which process 0 listens. `None` if nobody says it, and there is nothing to take it from.
    pub port: Option<u16>,
}

impl Launched {
    /// Where process 0 listens: host and port. `None` if nobody says it.
    pub fn address(&self) -> Option<String> {
        let host = self.host.as_deref().map(|host| host.trim_matches(['[', ']']));
        match (host, self.port) {
            // An IPv6 address itself contains colons.
            (Some(host), Some(port)) if host.contains(':') => Some(format!("[{host}]:{port}")),
            (Some(host), Some(port)) => Some(format!("{host}:{port}")),
            _ => None,
        }
    }

    /// The variables that say it.
    pub(super) fn said(&self) -> Vec<(&'static str, u32)> {
        let values = [self.process, self.processes];
        self.launcher.names().into_iter().zip(values).collect()
    }
}

/// What starts the processes of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// A person or a script, by `RANK` and `WORLD_SIZE`.
    Variables,
    /// PyTorch's `torchrun`.
    Torchrun {
        /// The run's name.
        run: String,
    },
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH, and of others with its process manager Hydra.
    Mpich,
    /// `srun` of Slurm.
    Slurm {
        /// The job's and the step's number, such as `1234.0`.
        step: String,
    },
    /// `jsrun` of IBM's LSF.
    Jsrun,
    /// `mpiexec` of HPE's PALS.
    Pals,
    /// `mpirun_rsh` of MVAPICH.
    Mvapich,
    /// `flux run` of Flux.
    Flux,
    /// An indexed Job of Kubernetes.
    Kubernetes,
}

impl Launcher {
    /// The variables with a process's number and with the number of processes.
    pub fn names(&self) -> [&'static str; 2] {
        match self {
            Self::Variables | Self::Torchrun { .. } => ["RANK", "WORLD_SIZE"],
            Self::OpenMpi => ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
            Self::Mpich => ["PMI_RANK", "PMI_SIZE"],
            Self::Slurm { .. } => ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
            Self::Jsrun => ["JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"],
            Self::Pals => ["PALS_RANKID", "PMI_SIZE"],
            Self::Mvapich => ["MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"],
            Self::Flux => ["FLUX_TASK_RANK", "FLUX_JOB_SIZE"],
            Self::Kubernetes => ["JOB_COMPLETION_INDEX", "WORLD_SIZE"],
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variables => f.write_str("as RANK and WORLD_SIZE say"),
            Self::Torchrun { run } => write!(f, "as torchrun says (run {run})"),
            Self::OpenMpi => f.write_str("as mpirun says (Open MPI)"),
            Self::Mpich => f.write_str("as mpiexec says (MPICH)"),
            Self::Slurm { step } => write!(f, "as Slurm says (step {step})"),
            Self::Jsrun => f.write_str("as jsrun says"),
            Self::Pals => f.write_str("as mpiexec says (PALS)"),
            Self::Mvapich => f.write_str("as mpirun_rsh says (MVAPICH)"),
            Self::Flux => f.write_str("as Flux says"),
            Self::Kubernetes => f.write_str("as Kubernetes says"),
        }
    }
}

/// The error for two launchers that say different things, by variables with their values.
pub(super) fn contradiction(first: &[(&str, u32)], second: &[(&str, u32)]) -> Error {
    let [first, second] = [first, second].map(|variables| {
        let words = variables.iter().map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" and ")
    });
    ConfigError::Other(format!(
        "{first}, but {second}: the launchers of this process contradict each other; start it with one of \
         them, or unset the variables of the other"
    ))
    .into()
}

/// One of the ports from 20000 to 29999, by what names a job. It is below those that Linux gives to outgoing
/// connections. Jobs whose numbers are near each other get different ports.
pub(super) fn port(job: &str) -> u16 {
    let sum = |sum: u32, byte: u8| sum.wrapping_mul(37).wrapping_add(byte.into());
    FIRST_PORT + (job.bytes().fold(0, sum) % PORTS) as u16
}
