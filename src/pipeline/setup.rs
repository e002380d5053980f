//! The checked parts of a pipeline: all are there, and they fit each other.

use std::sync::Arc;

use pipewright_stages::Stage;
use pipewright_stages::loss::Loss;

use super::parts::Parts;
use super::transfers::between_gpus;
use crate::data::{DataSource, Fingerprinted};
use crate::error::{LaunchError, Result};
use crate::fabric::GpuPairs;
use crate::mesh::{Axis, Mesh};
use crate::schedule::Schedule;

/// What is launched: all parts are there, and they fit each other.
pub(super) struct Setup<W> {
    pub(super) schedule: Arc<Schedule>,
    pub(super) data: Arc<dyn DataSource>,
    pub(super) loss: Box<dyn Loss<W>>,
    /// Where every rank of the run is.
    pub(super) mesh: Mesh,
    /// The GPUs of different processes between which the schedule sends.
    pub(super) gpus: GpuPairs,
}

impl<W> Setup<W> {
    /// # Errors
    /// [`LaunchError`] when a part is missing or two do not fit each other.
    pub(super) fn of<S: Stage<Wire = W>>(parts: &mut Parts<S>, processes: u32) -> Result<Self> {
        let missing = |part| LaunchError::Missing { part };
        let schedule = parts.schedule.take().ok_or(missing("schedule"))?;
        let data = parts.data.take().ok_or(missing("data"))?;
        let data = Arc::new(Fingerprinted::new(data)) as _;
        let loss = parts.loss.take().ok_or(missing("loss"))?;
        let schedule = schedule.in_turn();
        check_threads(parts.threads_per_rank)?;
        check_directions(&schedule)?;
        check_count(&schedule, parts.stages.len())?;
        let mesh = Mesh::of_pipeline(schedule.ranks(), processes, &parts.places)?;
        check_mesh(&mesh)?;
        let schedule = Arc::new(schedule.for_replicas(mesh.size(Axis::Data)));
        let gpus = between_gpus(&schedule, &mesh)?;
        Ok(Self {
            schedule,
            data,
            loss,
            mesh,
            gpus,
        })
    }
}

fn check_threads(threads: usize) -> Result<()> {
    match threads {
        0 => Err(LaunchError::NoThreads.into()),
        _ => Ok(()),
    }
}

/// The engine has no code for several replicas or shards: each stage has one builder, for one rank, and
/// nothing sums gradients over replicas.
fn check_mesh(mesh: &Mesh) -> Result<()> {
    let [replicas, shards] = [Axis::Data, Axis::Tensor].map(|axis| mesh.size(axis));
    match [replicas, shards] {
        [1, 1] => Ok(()),
        _ => Err(LaunchError::SeveralPipelines { replicas, shards }.into()),
    }
}

fn check_directions(schedule: &Schedule) -> Result<()> {
    match schedule.placement().directions() {
        1 => Ok(()),
        directions => Err(LaunchError::SeveralDirections {
            schedule: schedule.name().to_owned(),
            directions,
            placement: schedule.placement().to_string(),
        }
        .into()),
    }
}

fn check_count(schedule: &Schedule, stages: usize) -> Result<()> {
    if schedule.stages() as usize == stages {
        return Ok(());
    }
    Err(LaunchError::Stages {
        expected: schedule.stages(),
        given: stages,
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_of_more_than_one_pipeline_is_refused() {
        let refusal = |sizes| {
            let mesh = Mesh::new(sizes, 1, &[]).expect("a mesh");
            check_mesh(&mesh).expect_err("more than one").to_string()
        };
        assert_eq!(
            refusal([2, 3, 1]),
            "the mesh has replicas: 2, shards: 1; the engine trains one replica of one shard"
        );
        assert_eq!(
            refusal([1, 3, 2]),
            "the mesh has replicas: 1, shards: 2; the engine trains one replica of one shard"
        );
        let one = Mesh::of_pipeline(3, 1, &[]).expect("a mesh");
        assert!(check_mesh(&one).is_ok());
    }
}
