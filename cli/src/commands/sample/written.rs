//! A text as it is written, up to its end.

use std::time::{Duration, Instant};

use super::stop::Stop;
use super::words::Words;
use crate::Result;
use pipewright::pipeline::Pipeline;
use pipewright::run::Generator;
use pipewright::stages::Sequential;

/// Where a text ends.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Limits<'a> {
    /// The most tokens of it.
    pub(in crate::commands) most: usize,
    /// The tokens that end it.
    pub(in crate::commands) tokens: &'a [u32],
    /// The words before which it ends.
    pub(in crate::commands) words: &'a [String],
}

/// What is told of each token.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Piece<'a> {
    /// The token. None for the text that still waited at the end.
    pub(in crate::commands) token: Option<u32>,
    /// The scores of all tokens, from which it was chosen.
    pub(in crate::commands) scores: &'a [f32],
    /// The text that is complete with it. It may be empty.
    pub(in crate::commands) text: &'a [u8],
}

/// Why a text has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Ended {
    /// The model, or a word, has ended it.
    ByItself,
    /// It has the most tokens that it may have.
    AtLimit,
    /// Nobody reads it any more.
    Unread,
}

/// A text that has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Written {
    pub(in crate::commands) ended: Ended,
    /// How many tokens were written.
    pub(in crate::commands) count: usize,
    /// How long the first took, with what was read before it.
    pub(in crate::commands) first: Duration,
    /// How long all others took.
    pub(in crate::commands) rest: Duration,
}

impl Written {
    /// How long it took, after this many tokens were read.
    pub(super) fn timing(self, read: usize) -> String {
        let (rest, more) = (self.rest.as_secs_f64(), self.count.max(1) - 1);
        format!(
            "{read} tokens read and the first written in {:.2} s; {more} more in {rest:.2} s, {:.1} a second",
            self.first.as_secs_f64(),
            more as f64 / rest.max(1e-9)
        )
    }
}

/// Writes a text. `tell` hears of each token, and says whether the text is still read.
pub(in crate::commands) fn write(
    model: &mut Pipeline<Sequential>,
    generator: &mut Generator,
    mut words: Words,
    limits: Limits,
    tell: &mut dyn FnMut(Piece) -> Result<bool>,
) -> Result<Written> {
    let begun = Instant::now();
    let mut stop = Stop::new(limits.words);
    let mut written =
        Written { ended: Ended::AtLimit, count: 0, first: Duration::ZERO, rest: Duration::ZERO };
    while written.count < limits.most && written.ended == Ended::AtLimit {
        let (token, scores) = generator.next_of(model)?;
        written.count += 1;
        if written.count == 1 {
            written.first = begun.elapsed();
        }
        let is_end = limits.tokens.contains(&token);
        let (text, is_last) = match is_end {
            true => (Vec::new(), true),
            false => stop.push(&words.show(token)?),
        };
        if is_last {
            written.ended = Ended::ByItself;
        }
        if !tell(Piece { token: Some(token), scores: &scores, text: &text })? {
            written.ended = Ended::Unread;
        }
    }
    written.rest = begun.elapsed() - written.first;
    if written.ended != Ended::Unread {
        let text = [stop.finish(), words.finish()?].concat();
        tell(Piece { token: None, scores: &[], text: &text })?;
    }
    Ok(written)
}
