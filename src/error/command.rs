//! Arguments of a command that cannot be used.

/// Arguments of a command that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {}
