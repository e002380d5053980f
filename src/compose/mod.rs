//! From checked settings to the parts of a pipeline: the one place that composes.
//!
//! [`config`](crate::config) says what a person wants. Here it becomes a model and its stages, the data, the
//! optimizer, the places of the ranks, the costs of the layers, and a [`PipelinePlan`]: the cut and the
//! schedule. Every command takes its parts from here, so what `plan` shows is what `train` runs.

mod costs;
mod data;
mod memory;
mod model;
mod pipeline;
mod places;
mod plan;
mod schedule;

pub use costs::{check_measurable, costs_of, costs_under_any, measure};
pub use data::{TrainingData, data};
pub use memory::{check_memory, check_memory_to_measure, memory};
pub use model::{model, stages};
pub use pipeline::{launch, learning_rate, loss, optimizer};
pub use places::{describe_gpus, gpu_memory, kinds_of_gpus, places};
pub use plan::{PipelinePlan, plan};

use crate::config::Config;
use crate::error::Result;

/// Refuses a config whose parts do not fit together. Reads no file: neither costs nor a schedule in a file.
///
/// # Errors
/// When the sizes of the model make no sense, when it cannot be cut as the config says, when there is no such
/// schedule or it is not for these stages, chunks and micro-batches, or when there are devices for another
/// number of ranks.
pub fn check(config: &Config) -> Result<()> {
    stages(config, &model::estimated_counts(config)?)?;
    if !schedule::is_in_file(config) {
        places(config, schedule::unfitted(config)?.ranks())?;
    }
    Ok(())
}
