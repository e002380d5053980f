//! Processes that cannot find each other, or a link that cannot carry what it is given.

/// Processes that cannot find each other, or a link that cannot carry what it is given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {}
