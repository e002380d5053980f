//! Costs, or a search for a schedule, that cannot give one.

/// Costs, or a search for a schedule, that cannot give one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {}
