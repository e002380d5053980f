//! ZB-H1: the backward's second half fills what 1F1B idles, in no more memory than 1F1B's (Qi et al., arXiv 2401.10241).

use super::greedy::{Goal, Task, best, policies};
use super::{Made, Sizes};
use crate::schedule::{Costs, Placement};
use crate::{Error, Result};

pub(super) fn zb_h1(sizes: Sizes, costs: &Costs) -> Result<Made> {
    let Sizes {
        ranks, micro_batches, ..
    } = sizes;
    let placement = Placement::looped(ranks, 1)?;
    let stages = costs.of(&placement)?;
    let in_flight = [vec![ranks; ranks as usize]];
    let saved = stages
        .iter()
        .map(|stage| stage.saved.max(stage.pending))
        .fold(0.0, f64::max);
    let task = Task {
        placement: &placement,
        micro_batches,
        stages: &stages,
        comm: costs.comm(),
        memory: f64::from(ranks) * saved,
    };
    let (_, listed) = best(&task, policies(ranks, &in_flight), Goal::Span)
        .ok_or_else(|| Error::Invalid("no room for one micro-batch".into()))?;
    Ok(Made {
        passes: listed.passes,
        placement,
        pairs: Vec::new(),
    })
}
