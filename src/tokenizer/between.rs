//! A long text in parts that together have the tokens of the whole.

use super::Tokenizer;
use crate::error::Result;

/// How many bytes before and after a part are encoded with it. Between two of its borders a text may be as
/// long as it likes; a tokenizer whose tokens depend on more than these bytes is found out.
const NEIGHBOURS: usize = 4096;

/// The first bytes of a text, as many as a part before it is encoded with.
pub(crate) fn head(text: &str) -> &str {
    let mut end = NEIGHBOURS.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The last bytes of a text, as many as a part after it is encoded with.
pub(crate) fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(NEIGHBOURS);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// The tokens on both sides of a border.
struct Border {
    before: Vec<u32>,
    after: Vec<u32>,
}

impl Tokenizer {
    /// The tokens that a part of a text has in the whole text. `before` is the [`tail`] of what stands before
    /// it,
    /// `after` the [`head`] of what follows; empty where the text begins or ends. Nothing is added.
    ///
    /// `None` if the part cannot be encoded without the rest of the text: a token reaches over its border, or
    /// the tokens at its border depend on where an encoding begins and ends.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub(crate) fn encode_between(&self, before: &str, text: &str, after: &str) -> Result<Option<Vec<u32>>> {
        let (Some(left), Some(right)) = (self.border(before, head(text))?, self.border(tail(text), after)?)
        else {
            return Ok(None);
        };
        let mut tokens = self.encode_bare(&[before, text, after].concat())?;
        let (start, end) = (left.before.len(), tokens.len().saturating_sub(right.after.len()));
        // The other part at a border sees the same neighbours, but not what lies behind them here.
        let begins = before.is_empty() || {
            let near = &left.after[..left.after.len() / 2];
            tokens.starts_with(&left.before) && tokens[start..].starts_with(near)
        };
        let ends = after.is_empty() || {
            let near = &right.before[right.before.len() / 2..];
            tokens.ends_with(&right.after) && tokens[..end].ends_with(near)
        };
        if !begins || !ends || start > end {
            return Ok(None);
        }
        tokens.truncate(end);
        Ok(Some(tokens.split_off(start)))
    }

    /// The tokens before and after a border between two texts. `None` if a token has parts of both.
    fn border(&self, before: &str, after: &str) -> Result<Option<Border>> {
        if before.is_empty() || after.is_empty() {
            let (before, after) = (Vec::new(), Vec::new());
            return Ok(Some(Border { before, after }));
        }
        let places = self.encode_with_places(&[before, after].concat())?;
        let count = places.iter().take_while(|(_, place)| place.end <= before.len()).count();
        let (left, right) = places.split_at(count);
        let is_clean = right.iter().all(|(_, place)| place.start >= before.len());
        let tokens = |places: &[(u32, _)]| places.iter().map(|(token, _)| *token).collect();
        Ok(is_clean.then(|| Border { before: tokens(left), after: tokens(right) }))
    }
}
