//! Whether a run of several processes ended as it should.

use super::story::Story;
use crate::judge::{CLIP, expected_hash};
use crate::*;

/// How a process has ended: with the hash of its weights, or with an error.
pub(crate) type Ended = Result<String, String>;

/// How a run has ended that shows no bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All processes have the bits of a run without deaths.
    SameBits,
    /// One was done. Another was lost later, so that some were not told of the last hash.
    DoneBefore,
    /// Process 0 was lost.
    FirstLost,
}

/// Judges how all processes have ended.
pub(crate) fn all(story: &Story, timeline: &Timeline, ends: &[Ended]) -> Result<End, String> {
    let expected = expected_hash(story.model, Some(CLIP), story.micro_batches, story.steps);
    if let Some(hash) = ends.iter().flatten().find(|hash| **hash != expected) {
        return Err(format!("other weights: {hash}, and not {expected}"));
    }
    let errors: Vec<&String> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
    let is_done = errors.len() < ends.len();
    let first_died = timeline.deaths().any(|process| process == 0);
    match errors.iter().find(|error| !error.contains("the run has ended")) {
        None if errors.is_empty() => Ok(End::SameBits),
        None if is_done => Ok(End::DoneBefore),
        _ if first_died => Ok(End::FirstLost),
        Some(error) if timeline.deaths().next().is_some() && is_done && error.contains("process ") => {
            Ok(End::DoneBefore)
        }
        _ => Err(format!("nothing explains how they ended: {ends:#?}")),
    }
}
