//! Parts of a pipeline that do not fit together. Nothing was started.

/// Parts of a pipeline that do not fit together. Nothing was started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {}
