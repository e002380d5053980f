//! The error for a file that has changed since it was written.

use std::path::Path;

use crate::checksum::Checksum;
use crate::error::{CheckpointError, Damage, Error, FilePart, Result};

/// The error for a damaged file. `damage` says what is wrong with it.
pub(super) fn damaged(path: &Path, damage: Damage) -> Error {
    let path = path.to_owned();
    CheckpointError::Damaged { path, damage }.into()
}

/// Refuses a part of a file whose checksum is not the one that was written.
pub(super) fn compare(path: &Path, part: FilePart, found: Checksum, expected: Checksum) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(damaged(
        path,
        Damage::Checksum {
            part,
            found,
            expected,
        },
    ))
}
