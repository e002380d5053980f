//! What passes and transfers cost.

use crate::schedule::Pass;
use crate::{Error, Result};

/// What one micro-batch costs, in any unit of time, but the same for all four.
///
/// The first three are for a rank's whole share of the model; a chunk, one of V stages on the rank, costs 1/V
/// of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The forward.
    pub forward: f64,
    /// The backward-input.
    pub backward_input: f64,
    /// The backward-weight. A backward in one piece costs this and the backward-input.
    pub backward_weight: f64,
    /// One transfer between two ranks.
    pub comm: f64,
}

impl Default for Costs {
    /// Forward, backward-input and backward-weight alike, transfers for nothing: what papers draw.
    fn default() -> Self {
        Self {
            forward: 1.0,
            backward_input: 1.0,
            backward_weight: 1.0,
            comm: 0.0,
        }
    }
}

impl Costs {
    /// What this pass costs for a rank's whole share.
    pub fn of(&self, pass: Pass) -> f64 {
        match pass {
            Pass::Forward => self.forward,
            Pass::Backward => self.backward_input + self.backward_weight,
            Pass::BackwardInput => self.backward_input,
            Pass::BackwardWeight => self.backward_weight,
        }
    }

    /// What all passes of one micro-batch cost for a rank's whole share.
    pub fn work(&self) -> f64 {
        self.forward + self.backward_input + self.backward_weight
    }

    pub(super) fn check(&self) -> Result<()> {
        let named = [
            ("forward", self.forward),
            ("backward-input", self.backward_input),
            ("backward-weight", self.backward_weight),
            ("comm", self.comm),
        ];
        if let Some((name, cost)) = named
            .into_iter()
            .find(|(_, cost)| !cost.is_finite() || *cost < 0.0)
        {
            return Err(Error::Invalid(format!(
                "the cost {name} is {cost}; it has to be a number from 0 on"
            )));
        }
        if self.work() == 0.0 {
            return Err(Error::Invalid(
                "forward, backward-input and backward-weight all cost 0; give one a cost".into(),
            ));
        }
        Ok(())
    }
}
