//! Makes the parts of a pipeline from checked settings. Only this module does.
//!
//! [`config`](crate::config) says what a person wants. This module makes the model and its stages, the data,
//! the optimizer, the places of the ranks, the costs of the layers, and a [`PipelinePlan`]: the cut and the
//! schedule. Every command takes its parts from here, so what `plan` shows is what `train` runs.

mod costs;
mod data;
mod enough_memory;
mod fetched;
mod held;
mod memory;
mod mixed;
mod model;
mod offload;
mod on_gpu;
mod opened;
mod parts;
mod pipeline;
mod places;
mod plan;
mod planned;
mod rules;
mod schedule;
mod stack;
mod tokenized;
mod trained;
mod writing;

pub use costs::{
    at_once, check_measurable, costs_of, costs_under_any, measure, measured_in, on_cluster, shard_waits,
    to_measure,
};
pub use data::{HeldOut, TrainingData, Work, data, data_with_progress, held_out};
pub use enough_memory::{RanksHere, Room, check_memory, check_memory_to_measure, memory_limits};

pub use fetched::here;
pub use memory::{estimated_costs, memory};
pub use mixed::unread;
pub use model::{adapted, adapters, architecture, frozen_model, model, quantised_base, stages, weights};
pub use offload::offload;
pub use on_gpu::kernels::UnitKernels;
pub use on_gpu::{gpu_kernels, gpu_update, modelled, with_gpus};
pub use parts::{accountant, learning_rate, loss, optimizer};
pub use pipeline::{launch, launch_with_listener};
pub use places::{describe_devices, gpu_memory, kinds_of_gpus, places, places_of_all};
pub use plan::{
    changed, check_divided, check_divided_rows, counts_after, plan, plan_for, replan, shapes_in_words,
};
pub use planned::PipelinePlan;
pub use stack::{LayerPlace, register_layer};
pub use tokenized::{odd_tokenizer, tokenizer};
pub use trained::has_running_means;
pub use writing::{NO_TEXT, Writing, writing};

use crate::config::Config;
use crate::error::Result;

/// Refuses a config whose parts do not fit together. Reads no file: neither costs nor a schedule.
///
/// # Errors
/// When the sizes of the model are impossible, when it cannot be cut as the config says, when there is no
/// such schedule, when the schedule does not fit the stages, chunks and micro-batches, or when the number of
/// devices does not fit the ranks.
pub fn check(config: &Config) -> Result<()> {
    loss(config)?;
    model::cut(config, &model::estimated_counts(config)?)?;
    if !schedule::is_in_file(config) {
        places(config, schedule::unfitted(config)?.ranks())?;
    }
    Ok(())
}
