//! The error for a file that has changed since it was written.

use std::fmt::Display;
use std::path::Path;

use crate::checksum::Checksum;
use crate::error::{CheckpointError, Error, Result};

/// The error for a damaged file. `damage` says what is wrong with it.
pub(super) fn damaged(path: &Path, damage: impl Display) -> Error {
    CheckpointError::new(format!("{}: not a whole file: {damage}; use an earlier checkpoint", path.display()))
        .into()
}

/// Refuses a part of a file whose checksum is not the one that was written.
pub(super) fn compare(path: &Path, part: &str, found: Checksum, expected: Checksum) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(damaged(path, format!("{part} has the checksum {found}, {expected} was saved")))
}
