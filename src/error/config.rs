//! A config, or a value that was set in one, that cannot be used.

/// A config, or a value that was set in one, that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {}
