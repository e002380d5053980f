//! A checkpoint that cannot be loaded or saved.

/// A checkpoint that cannot be loaded or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {}
