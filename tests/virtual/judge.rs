//! Whether a run ended as it should.

use pipewright::error::RestartError;
use pipewright::stages::optimizer::LearningRate;

use super::*;
use crate::common::Plain;

pub(crate) const RATE: LearningRate = LearningRate::Constant(0.02);

pub(crate) const CLIP: f64 = 0.5;

/// How a run has ended that shows no bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With the bits of a run without faults.
    SameBits,
    /// With weights that were stale on the way, and in the end are the same in all replicas.
    Settled,
    /// With the error of a fault.
    RightError,
}

/// Judges a run without an error.
pub(crate) fn success(story: &Story, timeline: &Timeline) -> Result<End, String> {
    // Perhaps nobody needed the link that was cut.
    let may_pass = |fault: &Fault| matches!(fault, Fault::Cut { .. }) || fault.is_survived(story.restarts);
    match timeline.faults().find(|fault| !may_pass(fault)) {
        Some(fault) => Err(format!("nobody was told of this: {fault}")),
        None => Ok(End::SameBits),
    }
}

/// Judges a run that ended with an error. It must be the error of a fault that came true.
pub(crate) fn error(story: &Story, timeline: &Timeline, error: &Error) -> Result<End, String> {
    // Data is read by a thread that has no time of this world.
    let data = story.faults.iter();
    let data = data.filter(|fault| matches!(fault, Fault::NoData { .. }));
    let happened: Vec<Fault> = timeline.faults().chain(data).cloned().collect();
    let is_right = match error {
        Error::Restart(error) if matches!(**error, RestartError::KeepsFailing { .. }) => {
            story.restarts > 0 && happened.iter().map(Fault::failures).sum::<u32>() > story.restarts
        }
        _ => happened.iter().any(|fault| is_of(story, error, fault)),
    };
    match is_right {
        true => Ok(End::RightError),
        false => Err(format!("no fault explains this error: {error}")),
    }
}

/// Whether an error comes from a fault.
fn is_of(story: &Story, error: &Error, fault: &Fault) -> bool {
    let text = error.to_string();
    match fault {
        _ if fault.is_survived(story.restarts) => false,
        Fault::Fails { rank: of, panics, .. } => {
            let words = ["the disk is on fire", "panicked: a bug"][usize::from(*panics)];
            let is_of = |rank| story.sizes().any(|[_, ranks, shards]| *of as u32 / shards % ranks == rank);
            text.contains(words) && matches!(error, Error::Action { at, .. } if is_of(at.rank.0))
        }
        Fault::AlwaysFails { .. } => text.contains("the disk is on fire"),
        Fault::NotWritten { .. } => text.contains("panicked: a bug"),
        Fault::Cut { .. } => text.contains("has stopped"),
        Fault::NoData { .. } => text.contains("the data is away"),
        _ => false,
    }
}

/// The hash of the weights after `steps` steps of a plain loop.
pub(crate) fn expected_hash(model: Model, clip: Option<f64>, micro_batches: u32, steps: u64) -> String {
    let mut plain = Plain::new(model.whole(), Arc::new(Updates::default()), RATE, clip);
    let data = model.data(Arc::default());
    for step in 0..steps {
        plain.step(&*data, step, micro_batches, &mut *model.loss());
    }
    plain.hash()
}
