//! The secret of a run: from a file, or from the environment.

use std::path::Path;

use super::variables::{Environment, text};
use crate::config::secret_file;
use crate::error::Result;
use pipewright::fabric::Secret;

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
    let text = secret_file::read("launch.token_file", path)?;
    Ok(Secret::of(&format!("launch.token_file: `{}`", path.display()), &text)?)
}
