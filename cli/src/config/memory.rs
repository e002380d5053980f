//! Sizes of memory, as people write them.

use std::fmt;
use std::str::FromStr;

use pipewright::stages::units::{byte_unit, in_words};
use serde::{Deserialize, Serialize};

/// The units and their bytes. `B` must be last, because all other names end with it.
const UNITS: [(&str, f64); 9] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("B", 1.0),
];

/// The expected form of a size.
const SIZE: &str = "a size above 0 such as 200MiB, 1.5GiB or 1000000";

/// A number of bytes above 0, such as `200MiB`, `1.5 GiB` or `1000000`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "Form", into = "Form")]
pub struct Memory(f64);

impl Memory {
    /// In bytes.
    pub fn bytes(self) -> f64 {
        self.0
    }

    /// A size of `bytes` bytes, which must be above 0.
    pub(crate) fn of(bytes: u64) -> Self {
        Self(bytes as f64)
    }

    /// A number of bytes as people write it, rounded up: `1.51 GiB`.
    pub fn enough(bytes: f64) -> String {
        let (_, unit) = byte_unit(bytes);
        let last_digit = (unit / 100.0).max(1.0);
        in_words((bytes / last_digit).ceil() * last_digit)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&in_words(self.0))
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)))
            .unwrap_or((text, 1.0));
        let number: Option<f64> = number.trim().parse().ok();
        number
            .map(|number| number * unit)
            .filter(|bytes| bytes.is_finite() && *bytes > 0.0)
            .map(Self)
            .ok_or_else(|| format!("expected {SIZE}"))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, expecting = "a size such as \"200MiB\" or 1000000")]
enum Form {
    Bytes(u64),
    Text(String),
}

impl TryFrom<Form> for Memory {
    type Error = String;

    fn try_from(form: Form) -> Result<Self, String> {
        match form {
            Form::Bytes(bytes) => bytes.to_string().parse(),
            Form::Text(text) => text.parse(),
        }
        .map_err(|_: String| SIZE.to_owned())
    }
}

impl From<Memory> for Form {
    fn from(Memory(bytes): Memory) -> Self {
        Self::Text(format!("{bytes}B"))
    }
}
