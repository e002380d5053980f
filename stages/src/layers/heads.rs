//! The heads of attention.

use crate::error::{Result, SettingError, check_positive};

/// Heads of attention: `query` heads share `key_value` heads in groups, and each is `width` numbers wide.
/// Query head `h` reads key and value head `h / (query / key_value)`. Ainslie et al., "GQA: training
/// generalized multi-query transformer models from multi-head checkpoints" (2023).
///
/// A row of the layers that take heads has `(query + 2 key_value) * width` numbers: all queries, all keys and
/// all values side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The number of query heads, a multiple of `key_value`.
    pub query: usize,
    /// The number of key heads, and of value heads.
    pub key_value: usize,
    /// The numbers of a head.
    pub width: usize,
}

impl Heads {
    /// The length of a row: `(query + 2 key_value) * width`.
    pub fn row(self) -> usize {
        (self.query + 2 * self.key_value) * self.width
    }

    /// Fails unless each head has numbers, and each key and value head has equally many query heads.
    pub(super) fn check(self) -> Result<()> {
        let Self { query, key_value, width } = self;
        check_positive(&[
            ("the number of query heads", query),
            ("the number of key/value heads", key_value),
            ("the width of a head", width),
        ])?;
        if !query.is_multiple_of(key_value) {
            return Err(SettingError::Groups { query, key_value }.into());
        }
        Ok(())
    }
}
