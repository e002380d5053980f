//! Which ranks offload activations to the host, and how much of it they may have there.

use crate::Result;
use crate::id::Rank;
use crate::plan::Costs;
use crate::schedule::{Flow, MoveStep, Schedule};

/// How ranks may offload activations: see [`Schedule::offloading`].
#[derive(Clone, Debug, PartialEq)]
pub struct Offload {
    /// By rank, whether it is on a GPU. Others keep what they have.
    pub ranks: Vec<bool>,
    /// The most that a rank may have on the host at once, in the unit of the costs.
    pub most: f64,
}

impl Offload {
    /// The same without a limit.
    pub(super) fn unlimited(&self) -> Self {
        Self { ranks: self.ranks.clone(), most: f64::INFINITY }
    }

    /// The schedule with offload, where stages cost this.
    ///
    /// # Errors
    /// [`Error::Plan`](crate::Error::Plan) when the costs are for another number
    /// of stages.
    pub fn of(&self, schedule: Schedule, costs: &Costs) -> Result<Schedule> {
        let placement = schedule.placement();
        let stages = placement.iter().zip(costs.of(placement)?);
        let weights: Vec<f64> = stages
            .map(|(rank, cost)| match self.ranks.get(rank.index()) {
                Some(true) => cost.offloaded(),
                _ => 0.0,
            })
            .collect();
        Ok(schedule.offloading(&weights, self.most))
    }
}

/// The most that each rank has on the host of what it has offloaded.
///
/// # Errors
/// As for [`Offload::of`].
pub fn offloaded(schedule: &Schedule, costs: &Costs) -> Result<Vec<f64>> {
    let stages = costs.of(schedule.placement())?;
    let most = |rank| {
        let mut out = schedule.moves(rank).into_iter().peekable();
        let (mut now, mut most) = (0.0_f64, 0.0_f64);
        for (index, (pass, cell)) in schedule.passes(rank).enumerate() {
            while let Some(next) = out.next_if(|next| next.before <= index) {
                if next.step == MoveStep::Out {
                    now += stages[next.cell.stage.index()].offloaded();
                }
            }
            most = most.max(now);
            if pass.output() == Some(Flow::Gradient) && schedule.is_offloaded(cell) {
                now -= stages[cell.stage.index()].offloaded();
            }
        }
        most
    };
    Ok((0..schedule.ranks()).map(Rank).map(most).collect())
}
