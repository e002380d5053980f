//! What stands beside a token file: `X.bin.json` describes `X.bin`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::data::Width;
use crate::data::file::{self, wrong};
use crate::error::{Error, Result};
use crate::system::read_at;

/// The longest description that is read.
const LONGEST: u64 = 1 << 16;

/// What is known of a token file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::data) struct Description {
    /// The type of a token.
    pub(in crate::data) dtype: Width,
    pub(in crate::data) tokens: u64,
    /// The checksum of the token file.
    pub(in crate::data) checksum: Checksum,
    /// The checksum of its index, if it was written with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::data) index: Option<Checksum>,
    /// What made the tokens, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::data) tokenizer: Option<MadeBy>,
}

/// The tokenizer that made a token file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::data) struct MadeBy {
    /// The checksum of its file.
    pub(in crate::data) checksum: Checksum,
    /// The number of tokens that a model has to know.
    pub(in crate::data) vocabulary: usize,
}

/// The path of the description of a token file.
pub(in crate::data) fn beside(tokens: &Path) -> PathBuf {
    let mut name = tokens.to_owned().into_os_string();
    name.push(".json");
    PathBuf::from(name)
}

/// Reads the description of a token file of this length in bytes. `None` if there is none.
///
/// # Errors
/// When it is damaged, or describes a file of another length.
pub(in crate::data) fn read(tokens: &Path, bytes: u64) -> Result<Option<Description>> {
    let path = beside(tokens);
    if !path.is_file() {
        return Ok(None);
    }
    let (file, length) = file::open(&path)?;
    let mut text = vec![0; length.min(LONGEST) as usize];
    read_at(&file, &mut text, 0).map_err(Error::io("read", &path))?;
    let described: Description = serde_json::from_slice(&text).map_err(|error| {
        wrong(
            &path,
            format!(
                "does not describe a token file ({error}): write both again with `pipewright tokenize`, or \
                 remove it"
            ),
        )
    })?;
    match described.tokens.checked_mul(described.dtype.bytes()) == Some(bytes) {
        true => Ok(Some(described)),
        false => Err(differs(tokens)),
    }
}

/// The error for a token file that is not as it is described.
pub(in crate::data) fn differs(tokens: &Path) -> Error {
    let description = beside(tokens);
    let description = description.display();
    wrong(
        tokens,
        format!(
            "is not the file that `{description}` describes: write both again with `pipewright tokenize`, or \
             remove the description"
        ),
    )
}
