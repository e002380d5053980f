//! What is refused, and why.

mod cost;
mod mesh;
mod problem;
pub mod schedule;

pub use cost::CostOf;
pub use mesh::MeshError;
pub use problem::Problem;
pub use schedule::ScheduleError;

use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A schedule, a plan or a mesh that cannot be.
///
/// `Debug` writes the message too.
#[derive(thiserror::Error)]
pub enum Error {
    /// A schedule or a placement that is wrong.
    #[error(transparent)]
    Schedule(Box<ScheduleError>),
    /// Costs, sizes or limits for which there is no schedule, cut or picture.
    #[error(transparent)]
    Plan(Problem),
    /// Ranks, processes and devices that do not fit together.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ScheduleError> for Error {
    fn from(error: ScheduleError) -> Self {
        Self::Schedule(Box::new(error))
    }
}
