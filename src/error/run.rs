//! A run directory that cannot be used.

/// A run directory that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {}
