//! What a cost belongs to.

use std::fmt;

use crate::id::StageId;

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
