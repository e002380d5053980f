//! The heads of attention.

use crate::error::{Error, Result, check_positive};
use crate::shape::{Kind, Shape};

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
            return Err(Error::new(format!(
                "{query} query heads cannot share {key_value} key/value heads evenly: choose query heads \
                 that are a multiple of the key/value heads"
            )));
        }
        Ok(())
    }

    /// Fails unless the input is rows of tokens, one after the other, of several sequences.
    pub(super) fn check_rows(self, input: &Shape) -> Result<()> {
        match (input.kind(), input.dims()) {
            (Kind::F32, &[_, time, row]) if time > 0 && row == self.row() => Ok(()),
            _ => Err(Error::shape(format!("f32[batch, time, {}]", self.row()), input)),
        }
    }
}
