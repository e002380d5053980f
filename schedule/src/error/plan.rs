//! Costs, sizes or limits for which there is no schedule, cut or picture.

use std::fmt;

use super::{Error, Problem};
use crate::id::StageId;

impl Error {
    /// Costs, sizes or limits for which there is no schedule or cut. Times and memory are in the unit of the
    /// costs.
    pub(crate) fn plan(text: impl Into<String>) -> Self {
        Self::Plan(Problem::new(text))
    }

    /// A cost that is negative or not a number.
    pub fn wrong_cost(of: &CostOf, name: &str, cost: f64) -> Self {
        Self::plan(format!("{of}the cost {name} is {cost}; it has to be a number from 0 on"))
    }
}

/// What a cost belongs to. Prints as the beginning of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostOf {
    /// All ranks, or all transfers.
    All,
    /// A stage.
    Stage(StageId),
    /// A layer, by its name.
    Layer(String),
    /// Transfers between two ranks.
    Link,
    /// Reductions over replicas.
    Reduction,
}

impl fmt::Display for CostOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => Ok(()),
            Self::Stage(stage) => write!(f, "stage {stage}: "),
            Self::Layer(name) => write!(f, "layer `{name}`: "),
            Self::Link => f.write_str("link: "),
            Self::Reduction => f.write_str("link between replicas: "),
        }
    }
}
