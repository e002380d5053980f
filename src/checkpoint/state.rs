//! The description of a checkpoint, `state.json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::damage::{compare, damaged};
use super::encrypted::{self, is_encrypted};
use crate::checksum::Checksum;
use crate::data::Fingerprint;
use crate::error::{CheckpointError, Result};

/// The format that this version writes.
pub(super) const FORMAT: u32 = 2;
/// The older format, without checksums. This version reads it too.
const WITHOUT_CHECKSUMS: u32 = 1;

/// The text before the description's own checksum, in its last line.
const SEAL: &str = ",\n  \"checksum\": \"";

/// The contents of `state.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) format: u32,
    /// Optimizer steps done.
    pub(super) step: u64,
    /// The config of the run that saved it.
    pub(super) config: String,
    /// The fingerprint of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Fingerprint>,
    /// The checksums of each file, by its name.
    #[serde(default)]
    pub(super) files: BTreeMap<String, FileChecksums>,
}

/// The checksums of a safetensors file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FileChecksums {
    /// The header with its length.
    pub(super) header: Checksum,
    /// Each tensor's numbers, by its name.
    pub(super) tensors: BTreeMap<String, Checksum>,
}

impl State {
    /// The file's text. Its last line is the checksum of all the lines before.
    pub(super) fn to_text(&self) -> String {
        sealed(self)
    }

    /// Reads the file's text and checks it against its checksum.
    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let decrypted = encrypted::read_whole(path, bytes)?;
        let bytes = decrypted.as_deref().unwrap_or(bytes);
        let sealed = check_seal(path, bytes)?;
        let state: Self = serde_json::from_slice(bytes).map_err(|error| damaged(path, error))?;
        match state.format {
            FORMAT if !sealed => Err(damaged(path, "its checksum is missing")),
            FORMAT | WITHOUT_CHECKSUMS => Ok(state),
            found => {
                let path = path.display();
                Err(CheckpointError::new(format!(
                    "{path}: its format is {found}, this program reads 1 and 2"
                ))
                .into())
            }
        }
    }

    /// Whether no version of this program has written the text. One that has changed since is not foreign.
    pub(super) fn is_foreign(path: &Path, bytes: &[u8]) -> bool {
        !is_encrypted(bytes)
            && check_seal(path, bytes).is_ok()
            && serde_json::from_slice::<Self>(bytes).is_err()
    }

    /// Whether it has checksums of the tensors.
    pub(super) fn has_checksums(&self) -> bool {
        self.format != WITHOUT_CHECKSUMS
    }
}

/// A text of JSON. Its last line is the checksum of all the lines before.
pub(super) fn sealed(description: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(description).expect("numbers and text always serialise");
    text.truncate(text.len() - "\n}".len());
    let checksum = Checksum::of(text.as_bytes());
    text + &seal(checksum)
}

/// The last lines of the file.
fn seal(checksum: Checksum) -> String {
    format!("{SEAL}{checksum}\"\n}}\n")
}

/// Whether the text ends with a checksum. Refuses the text if its checksum differs.
pub(super) fn check_seal(path: &Path, bytes: &[u8]) -> Result<bool> {
    let length = seal(Checksum::of(&[])).len();
    let (text, end) = bytes.split_at(bytes.len().saturating_sub(length));
    let written = end
        .strip_prefix(SEAL.as_bytes())
        .and_then(|end| std::str::from_utf8(end.get(..32)?).ok())
        .and_then(|digits| digits.parse().ok());
    let Some(expected) = written.filter(|&checksum| seal(checksum).as_bytes() == end) else {
        return Ok(false);
    };
    compare(path, "the description", Checksum::of(text), expected)?;
    Ok(true)
}
