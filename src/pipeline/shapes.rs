//! Checks that each stage takes the shape of the previous stage's output.

use pipewright_stages::{Shape, Stage};

use crate::actor::{CheckLoss, OutputShape, Ranks};
use crate::error::{Error, LaunchError, Result};
use crate::id::StageId;
use crate::schedule::Schedule;

/// Follows the shape of a source's inputs through all stages to the loss. Returns the most numbers that one
/// stage gives another.
///
/// # Errors
/// [`LaunchError`]. The ranks continue to run.
pub(super) fn check_shapes<S: Stage>(
    ranks: &Ranks<S>,
    schedule: &Schedule,
    (input, target): (Shape, Shape),
) -> Result<usize> {
    let (output, widest) = follow(ranks, schedule, input)?;
    let last = schedule.rank_of(schedule.last_stage());
    let message = CheckLoss { output, target };
    let fits = ranks.ask("checking shapes", last, message);
    fits.map(|()| widest).map_err(|error| {
        refused(error, |source| {
            LaunchError::because(
                format!("the loss refuses an output of {output} with targets of {target}: {source}"),
                source,
            )
        })
    })
}

/// The most numbers that one stage gives another for an input of this shape.
///
/// # Errors
/// [`LaunchError`]. The ranks continue to run.
pub(super) fn widest<S: Stage>(ranks: &Ranks<S>, schedule: &Schedule, input: Shape) -> Result<usize> {
    follow(ranks, schedule, input).map(|(_, widest)| widest)
}

/// The shape of the last stage's output, and the most numbers that one stage gives another.
fn follow<S: Stage>(ranks: &Ranks<S>, schedule: &Schedule, input: Shape) -> Result<(Shape, usize)> {
    let (mut shape, mut widest) = (input, 0);
    for stage in (0..schedule.stages()).map(StageId) {
        let rank = schedule.rank_of(stage);
        let giver = stage
            .0
            .checked_sub(1)
            .map_or("the data".to_owned(), |before| format!("stage {before}"));
        let message = OutputShape { stage, input: shape };
        shape = ranks.ask("checking shapes", rank, message).map_err(|error| {
            refused(error, |source| {
                LaunchError::because(
                    format!("stage {stage} (rank {rank}) refuses what {giver} gives, {shape}: {source}"),
                    source,
                )
            })
        })?;
        widest = widest.max(shape.dims().iter().product());
    }
    Ok((shape, widest))
}

/// Why a shape was refused. Other errors, such as that the rank is gone, stay as they are.
fn refused(error: Error, refusal: impl FnOnce(Box<Error>) -> LaunchError) -> Error {
    match error {
        Error::ProcessGone { .. } => error,
        error => refusal(Box::new(error)).into(),
    }
}
