//! Which part of a tensor a parameter holds.

use std::fmt;

/// The part of a tensor that a parameter holds. A tensor can be divided among several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Shard {
    /// The number of this part, from 0.
    pub index: u32,
    /// The number of parts.
    pub of: u32,
}

impl Shard {
    /// The whole tensor: part 0 of 1.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.index, self.of)
    }
}
