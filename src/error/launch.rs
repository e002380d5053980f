//! Parts of a pipeline that do not fit together. Nothing was started.

use pipewright_schedule::mesh::RankName;
use pipewright_stages::Device;

use super::Problem;
use crate::id::StageId;

/// Parts of a pipeline that do not fit together. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A stage cannot be built.
    #[error("stage {stage} ({at}) cannot be built{}: {source}", on(*device))]
    Unbuildable {
        /// The stage.
        stage: StageId,
        /// Its rank.
        at: RankName,
        /// Where it should run.
        device: Device,
        /// The reason.
        source: pipewright_stages::Error,
    },
    /// Any other failure, in words.
    #[error(transparent)]
    Problem(Problem),
}

impl LaunchError {
    /// The system cannot start the threads that the `ranks` ranks of a process run on.
    pub fn no_threads(ranks: usize, source: std::io::Error) -> Self {
        let text = format!(
            "cannot start the threads of {ranks} ranks: {source}; start more processes, with fewer ranks \
             each, or raise the limits of threads and of open files (`ulimit -u`, `ulimit -n`)"
        );
        Self::because(text, source)
    }
}

/// The device of a stage, if it is not the CPU.
fn on(device: Device) -> String {
    match device {
        Device::Cpu => String::new(),
        device => format!(" on {device}"),
    }
}
