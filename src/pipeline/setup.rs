//! The checked parts of a pipeline: all are there, and they fit each other.

use std::ops::Range;
use std::sync::Arc;

use pipewright_stages::Stage;
use pipewright_stages::loss::Loss;

use super::links::between_gpus;
use super::parts::Parts;
use crate::data::{DataSource, Fingerprinted};
use crate::error::{LaunchError, Result};
use crate::fabric::GpuPairs;
use crate::mesh::Mesh;
use crate::schedule::Schedule;

/// What is launched: all parts are there, and they fit each other.
pub(super) struct Setup<W> {
    pub(super) schedule: Arc<Schedule>,
    pub(super) data: Arc<dyn DataSource>,
    pub(super) loss: Box<dyn Loss<W>>,
    /// Where every rank of the run is.
    pub(super) mesh: Mesh,
    /// This process's ranks.
    pub(super) own: Range<u32>,
    /// The GPUs of different processes between which the schedule sends.
    pub(super) gpus: GpuPairs,
}

impl<W> Setup<W> {
    /// # Errors
    /// [`LaunchError`] when a part is missing or two do not fit each other.
    pub(super) fn of<S: Stage<Wire = W>>(parts: &mut Parts<S>, processes: Option<[u32; 2]>) -> Result<Self> {
        let missing = |part| LaunchError::Missing { part };
        let schedule = parts.schedule.take().ok_or(missing("schedule"))?;
        let data = parts.data.take().ok_or(missing("data"))?;
        let data = Arc::new(Fingerprinted::new(data)) as _;
        let loss = parts.loss.take().ok_or(missing("loss"))?;
        let schedule = Arc::new(schedule.in_turn());
        check_threads(parts.threads_per_rank)?;
        check_directions(&schedule)?;
        check_count(&schedule, parts.stages.len())?;
        let [processes, process] = processes.unwrap_or([1, 0]);
        let mesh = Mesh::new([1, schedule.ranks(), 1], processes, &parts.places)?;
        let own = mesh.ranks_of(process);
        let gpus = between_gpus(&schedule, &mesh)?;
        Ok(Self {
            schedule,
            data,
            loss,
            mesh,
            own,
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
