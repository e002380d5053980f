//! What goes between stages: whether each stage takes the shape of the previous stage's output, and how large
//! what the ranks send each other may be.

use pipewright_stages::{Shape, Stage};

use super::running::Pipeline;
use crate::actor::{Job, Ranks};
use crate::error::{Error, LaunchError, Result};
use crate::groups::GradientGroups;
use crate::id::StageId;
use crate::schedule::Schedule;
use crate::worker::{ParameterInfo, Plan, outer};

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
    let job = Job::ask(move |worker| worker.check_loss(&output, &target));
    let fits = ranks.ask("checking shapes", last, job);
    fits.map(|()| widest).map_err(|error| {
        refused(error, |source| {
            LaunchError::because(
                format!("the loss refuses an output of {output} with targets of {target}: {source}"),
                source,
            )
        })
    })
}

/// The shape of the last stage's output, and the most numbers that one stage gives another.
fn follow<S: Stage>(ranks: &Ranks<S>, schedule: &Schedule, input: Shape) -> Result<(Shape, usize)> {
    let (mut shape, mut widest) = (input, 0);
    for stage in (0..schedule.stages()).map(StageId) {
        let rank = schedule.rank_of(stage);
        let giver = stage.0.checked_sub(1).map_or("the data".to_owned(), |before| format!("stage {before}"));
        let job = Job::ask(move |worker| worker.output_shape(stage, &shape, &input));
        shape = ranks.ask("checking shapes", rank, job).map_err(|error| {
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

/// The bytes of a number. Some take less.
const NUMBER: u64 = 4;

/// The most numbers of a block of a small model: a bucket of gradients.
const BUCKET: u64 = 1 << 20;

/// How often the numbers of a model are in a block, if they are in no more gradient groups: parameters have
/// optimizer state, and of each number something is told at a step's end.
const OFTEN: u32 = 16;

/// The most bytes of a wire with `numbers` numbers.
fn wire(numbers: usize) -> u64 {
    (numbers as u64).saturating_mul(NUMBER)
}

/// How many rows of experts a token has at most, it is assumed.
const EXPERTS: usize = 16;

/// The most numbers of a wire, if stages give each other `numbers` for an input of this shape. Shards also
/// send each other rows that are as wide as any dimension of a parameter, and all gradients of the weights of
/// norms at once.
fn most(numbers: usize, input: &Shape, shards: u32, parameters: &[ParameterInfo]) -> usize {
    if shards == 1 {
        return numbers;
    }
    let rows: usize = outer(input).iter().product();
    let widest = parameters.iter().flat_map(|info| &info.dims).copied().max().unwrap_or(0);
    let norms = parameters.iter().filter(|info| info.dims.len() == 1).map(|info| info.dims[0]);
    let inside = rows.saturating_mul(widest).saturating_mul(EXPERTS).saturating_add(norms.sum());
    // Shards may have a row more than the first one.
    numbers.saturating_mul(2).max(inside)
}

/// The most bytes of a block. Ranks add up gradients in blocks, which have each number once for each gradient
/// group at most.
fn block(parameters: &[ParameterInfo], groups: GradientGroups) -> u64 {
    let numbers = parameters.iter().map(|info| info.dims.iter().product::<usize>() as u64);
    let often = u64::from(groups.count().max(OFTEN));
    numbers.sum::<u64>().saturating_add(BUCKET).saturating_mul(NUMBER * often)
}

impl<S: Stage> Pipeline<S> {
    /// Lets the ranks of all processes send wires of `numbers` numbers, for an input of this shape, from now
    /// on.
    pub(super) fn allow(&self, numbers: usize, input: &Shape) -> Result<()> {
        match self.ranks.peers().processes() {
            1 => Ok(()),
            _ => {
                let numbers = most(numbers, input, self.plan.shards(), &self.parameters);
                self.ranks.peers().allow(wire(numbers), 0)
            }
        }
    }

    /// Lets them send wires for an input of this shape, where it is larger than the training data's. An input
    /// that a stage refuses allows nothing.
    pub(super) fn allow_for(&self, input: Shape) -> Result<()> {
        let size = |shape: &Shape| shape.dims().iter().product::<usize>();
        if self.ranks.peers().processes() == 1 || size(&input) <= size(&self.plan.data.shapes().0) {
            return Ok(());
        }
        match follow(&self.ranks, self.schedule(), input) {
            Ok((_, numbers)) => self.allow(numbers, &input),
            Err(error) if error.is_echo() => Err(error),
            Err(_) => Ok(()),
        }
    }
}

/// Says in all processes how large what the ranks send may be.
pub(super) fn allow<S: Stage>(
    ranks: &Ranks<S>,
    numbers: usize,
    parameters: &[ParameterInfo],
    plan: &Plan,
) -> Result<()> {
    match ranks.peers().processes() {
        1 => Ok(()),
        _ => {
            let wire = wire(most(numbers, &plan.data.shapes().0, plan.shards(), parameters));
            ranks.peers().allow(wire, block(parameters, plan.groups))
        }
    }
}
