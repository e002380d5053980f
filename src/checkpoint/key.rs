//! The key with which this process encrypts checkpoints, and reads encrypted ones.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::error::{CheckpointError, Result};

/// A key of 32 bytes. Checkpoints that are written while it is [in use](Key::set) are encrypted.
///
/// ```
/// use pipewright::checkpoint::Key;
///
/// # fn main() -> pipewright::Result<()> {
/// // As `openssl rand -hex 32` makes one.
/// let key = Key::parse("the example", &"7f".repeat(32))?;
/// Key::set(Some(key));
/// # Key::set(None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<[u8; 32]>);

static IN_USE: RwLock<Option<Key>> = RwLock::new(None);

impl Key {
    /// The key of a text: 64 hexadecimal digits. `from` says where the text comes from.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::Error::Checkpoint) for any other text, which is not shown.
    pub fn parse(from: &str, text: &str) -> Result<Self> {
        let digits: Option<Vec<u8>> =
            text.trim().chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
        let digits = digits.filter(|digits| digits.len() == 64).ok_or_else(|| {
            CheckpointError::new(format!(
                "{from} is no key of checkpoints: 64 hexadecimal digits, as `openssl rand -hex 32` makes them"
            ))
        })?;
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
        Ok(Self(Arc::new(bytes)))
    }

    /// Encrypts what this process writes from now on with this key, or with none, and reads encrypted
    /// checkpoints with it. A checkpoint that is being written, or is open, keeps the key that it began with.
    pub fn set(key: Option<Self>) {
        *IN_USE.write().unwrap_or_else(PoisonError::into_inner) = key;
    }

    /// The key in use.
    pub(super) fn in_use() -> Option<Self> {
        IN_USE.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What tells the key in use from others, and tells nothing of it.
    pub(crate) fn mark_in_use() -> String {
        Self::in_use().map_or_else(
            || "none".to_owned(),
            |key| {
                let [a, b, c, d, ..] = key.derive(&[b"mark"]);
                format!("one with the mark {a:02x}{b:02x}{c:02x}{d:02x}")
            },
        )
    }

    /// Bytes that follow from the key and from these parts, and tell nothing of it.
    pub(super) fn derive(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = Hmac::<Sha256>::new_from_slice(&self.0[..]).expect("any length will do");
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into_bytes().into()
    }
}

/// It does not show the bytes.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}
