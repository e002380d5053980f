//! Checksums: they tell whether bytes have changed since they were written.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// A checksum of bytes: XXH3 of 128 bits. It finds accidental damage. It does not protect against deliberate
/// changes.
///
/// In text, and so in files, it is 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Checksum(u128);

impl Checksum {
    /// The checksum of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(XxHash3_128::oneshot(bytes))
    }

    /// The checksum itself as bytes.
    pub fn bytes(self) -> [u8; size_of::<Self>()] {
        self.0.to_le_bytes()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Checksum {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        number
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no checksum: 32 hexadecimal digits were expected"))
    }
}

impl From<Checksum> for String {
    fn from(checksum: Checksum) -> Self {
        checksum.to_string()
    }
}

impl TryFrom<String> for Checksum {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Computes a checksum from bytes that come in pieces. How the bytes are split into pieces makes no
/// difference.
#[derive(Clone)]
pub struct ChecksumBuilder(XxHash3_128);

impl ChecksumBuilder {
    /// A builder that has no bytes yet.
    pub fn new() -> Self {
        Self(XxHash3_128::new())
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Adds all that is left to read.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn add_all(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut piece = vec![0; 1 << 20];
        loop {
            match from.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => self.add(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The checksum of all bytes so far.
    pub fn checksum(&self) -> Checksum {
        Checksum(self.0.finish_128())
    }
}

impl Default for ChecksumBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ChecksumBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChecksumBuilder").field(&self.checksum()).finish()
    }
}
