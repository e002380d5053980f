//! The secret of a run: from a file, or from the environment.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::variables::{Environment, text};
use crate::error::Result;
use pipewright::error::{FabricError, SecretError, SecretOf};
use pipewright::fabric::Secret;

const TOKEN: &str = "PIPEWRIGHT_TOKEN";

/// The secret in this file, or else in the environment. `None` if neither is set.
pub(super) fn secret(file: Option<&Path>, environment: &Environment) -> Result<Option<Secret>> {
    let secret = match (file, text(environment, TOKEN)) {
        (Some(path), _) => Some(read(path)),
        (None, Some(text)) => Some(Secret::of(SecretOf::Variable, text)),
        (None, None) => None,
    };
    Ok(secret.transpose().map_err(FabricError::from)?)
}

fn read(path: &Path) -> std::result::Result<Secret, SecretError> {
    let cannot = |source: io::Error| SecretError::Unreadable {
        path: path.to_owned(),
        source: Arc::new(source),
    };
    // Opening something else than a file may wait for ever.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(SecretError::NoFile {
            path: path.to_owned(),
        });
    }
    let file = File::open(path).map_err(cannot)?;
    refuse_readers(path, &file.metadata().map_err(cannot)?)?;
    let mut text = String::new();
    // A file that is longer than any secret is refused by its length, without reading all of it.
    file.take(2 * Secret::LONGEST as u64)
        .read_to_string(&mut text)
        .map_err(cannot)?;
    Secret::of(SecretOf::File(path.to_owned()), &text)
}

/// Refuses a file that others than its owner can use.
#[cfg(unix)]
fn refuse_readers(path: &Path, metadata: &fs::Metadata) -> std::result::Result<(), SecretError> {
    use std::os::unix::fs::PermissionsExt;

    let mode = metadata.permissions().mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(SecretError::OthersCanRead {
            path: path.to_owned(),
            mode,
        }),
    }
}

/// This system has no such permissions.
#[cfg(not(unix))]
fn refuse_readers(_: &Path, _: &fs::Metadata) -> std::result::Result<(), SecretError> {
    Ok(())
}
