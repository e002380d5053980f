//! Data that cannot be read as what it was said to be.

/// Data that cannot be read as what it was said to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {}
