//! A schedule, or a placement, that cannot be.

/// A schedule, or a placement, that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {}
