//! The secret of a run: from a file, or from the environment.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::variables::{Environment, text};
use crate::error::Result;
use pipewright::error::{FabricError, Problem};
use pipewright::fabric::Secret;
use pipewright::system;

const TOKEN: &str = "PIPEWRIGHT_TOKEN";

/// The secret in this file, or else in the environment. `None` if neither is set.
pub(super) fn secret(file: Option<&Path>, environment: &Environment) -> Result<Option<Secret>> {
    let secret = match (file, text(environment, TOKEN)) {
        (Some(path), _) => Some(read(path)),
        (None, Some(text)) => Some(Secret::of(TOKEN, text).map_err(Into::into)),
        (None, None) => None,
    };
    secret.transpose()
}

fn read(path: &Path) -> Result<Secret> {
    let file = path.display();
    let cannot = |source: io::Error| {
        let text = format!(
            "launch.token_file: cannot read `{file}`: {source}; write a secret there by `(umask 077; openssl \
             rand -hex 32 > {file})`, the same on all hosts"
        );
        FabricError::Refused(Problem::because(text, source))
    };
    // Opening something else than a file may wait for ever.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(FabricError::refused(format!(
            "launch.token_file: `{file}` is no file; give a file with the secret of the run"
        ))
        .into());
    }
    let opened = File::open(path).map_err(cannot)?;
    refuse_readers(path, &opened.metadata().map_err(cannot)?)?;
    let mut text = String::new();
    // A file that is longer than any secret is refused by its length, without reading all of it.
    opened.take(2 * Secret::LONGEST as u64).read_to_string(&mut text).map_err(cannot)?;
    Ok(Secret::of(&format!("launch.token_file: `{file}`"), &text)?)
}

/// Refuses a file that others than its owner can use.
fn refuse_readers(path: &Path, metadata: &fs::Metadata) -> Result<()> {
    match system::mode(metadata) {
        Some(mode) if mode & 0o077 != 0 => {
            let file = path.display();
            Err(FabricError::refused(format!(
                "launch.token_file: others can read `{file}` (its mode is {mode:04o}), so it may be no \
                 secret any more: make a new one by `openssl rand -hex 32`, after `chmod 600 {file}`"
            ))
            .into())
        }
        _ => Ok(()),
    }
}
