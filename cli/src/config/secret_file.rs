//! Files with secrets, which a config names.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::Config;
use super::parse::environment;
use super::variables::text;
use crate::error::{Error, Result};
use pipewright::checkpoint::Key;
use pipewright::error::Problem;
use pipewright::fabric::Secret;
use pipewright::system;

impl Config {
    /// The secret from which the noise follows, if `privacy.secret_file` names one.
    ///
    /// # Errors
    /// When it cannot be read, when others can read it too, and when it is too short or too long.
    pub fn noise_secret(&self) -> Result<Option<String>> {
        const KEY: &str = "privacy.secret_file";
        let Some(path) = &self.privacy.secret_file else {
            return Ok(None);
        };
        let text = read(KEY, path)?;
        Secret::of(&format!("{KEY}: `{}`", path.display()), &text)?;
        Ok(Some(text))
    }
}

/// The key of checkpoints in the file that `checkpoint.key_file` names, or else in the environment. `None` if
/// neither is set.
///
/// # Errors
/// As for [`Config::noise_secret`]; also when the text is no key.
pub fn checkpoint_key(file: Option<&Path>) -> Result<Option<Key>> {
    const KEY: &str = "checkpoint.key_file";
    const VARIABLE: &str = "PIPEWRIGHT_KEY";
    let environment = environment();
    let named = text(&environment, "PIPEWRIGHT_CHECKPOINT__KEY_FILE").map(Path::new);
    let key = match (named.or(file), text(&environment, VARIABLE)) {
        (Some(path), _) => Key::parse(&format!("{KEY}: `{}`", path.display()), &read(KEY, path)?)?,
        (None, Some(text)) => Key::parse(VARIABLE, text)?,
        (None, None) => return Ok(None),
    };
    Ok(Some(key))
}

/// The text of the file that this key names. Nobody but its owner may read it.
///
/// # Errors
/// When the file cannot be read, or when others can read it too. The error names the key and the file.
pub(super) fn read(key: &str, path: &Path) -> Result<String> {
    let file = path.display();
    let cannot = |source: io::Error| {
        let text = format!(
            "{key}: cannot read `{file}`: {source}; write a secret there by `(umask 077; openssl rand -hex \
             32 > {file})`, the same on all hosts"
        );
        Error::Refused(Problem::because(text, source))
    };
    // Opening something else than a file may wait for ever.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        let text = format!("{key}: `{file}` is no file; give a file with the secret of the run");
        return Err(Error::refused(text));
    }
    let opened = File::open(path).map_err(cannot)?;
    refuse_readers(key, path, &opened.metadata().map_err(cannot)?)?;
    let mut text = String::new();
    // A file that is longer than any secret is refused by its length, without reading all of it.
    opened.take(2 * Secret::LONGEST as u64).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

/// Refuses a file that others than its owner can use.
fn refuse_readers(key: &str, path: &Path, metadata: &fs::Metadata) -> Result<()> {
    match system::mode(metadata) {
        Some(mode) if mode & 0o077 != 0 => {
            let file = path.display();
            let text = format!(
                "{key}: others can read `{file}` (its mode is {mode:04o}), so it may be no secret any more: \
                 make a new one by `openssl rand -hex 32`, after `chmod 600 {file}`"
            );
            Err(Error::refused(text))
        }
        _ => Ok(()),
    }
}
