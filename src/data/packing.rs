//! How documents are put into sequences.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Documents;
use crate::error::{DataError, Result};

/// How documents become sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// They follow each other, and a sequence begins where the one before it ends. Tokens see the documents
    /// before theirs.
    #[default]
    Joined,
    /// Each has a sequence of its own, and the end of a longer one is not used.
    Single,
    /// A sequence has several whole documents, and none sees another: see
    /// [`DataSource::documents`](super::DataSource::documents).
    Apart(Longer),
}

/// What becomes of a document that is longer than a sequence, with [`Packing::Apart`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Longer {
    /// It is cut into several, which do not see each other.
    #[default]
    Cut,
    /// It is not used.
    LeaveOut,
    /// It is an error.
    Refuse,
}

/// Documents in sequences of at most `seq` tokens. So that few places are empty, each goes where the least
/// room is left that is enough, and the longest goes first (best-fit decreasing). Johnson, "Near-optimal bin
/// packing algorithms" (1973).
#[derive(Debug)]
pub(super) struct Packed {
    /// The documents of all sequences, one sequence after the other.
    pieces: Vec<Piece>,
    /// Where the documents of each sequence end.
    ends: Vec<usize>,
    /// How many documents are longer than a sequence.
    pub(super) longer: u64,
}

/// A document, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// The place of its first token among the tokens of all documents.
    pub(super) start: u64,
    /// How many tokens have one after them.
    pub(super) length: u32,
}

impl Packed {
    /// Puts the documents of a span into sequences. The last token of a document stands in none, because
    /// nothing follows it.
    ///
    /// # Errors
    /// When a document is longer, and longer ones are refused.
    pub(super) fn new(documents: &Documents, span: Range<u64>, seq: usize, longer: Longer) -> Result<Self> {
        let tokens = |document: u64| documents.tokens(&(document..document + 1));
        let is_longer = |tokens: &Range<u64>| tokens.end - tokens.start > seq as u64 + 1;
        let count = span.clone().filter(|&document| is_longer(&tokens(document))).count() as u64;
        if longer == Longer::Refuse
            && let Some(document) = span.clone().find(|&document| is_longer(&tokens(document)))
        {
            let tokens = tokens(document);
            return Err(refused(documents, document, tokens.end - tokens.start, seq));
        }
        let used = span.map(tokens).filter(|tokens| longer != Longer::LeaveOut || !is_longer(tokens));
        Ok(Self { longer: count, ..Self::cut(used, seq) })
    }

    /// Puts documents into sequences, the longer ones cut into several.
    fn cut(documents: impl Iterator<Item = Range<u64>>, seq: usize) -> Self {
        let pieces = documents.flat_map(|tokens| {
            let length = (tokens.end - tokens.start).saturating_sub(1);
            let piece = move |start: u64| {
                let length = (length - start).min(seq as u64) as u32;
                Piece { start: tokens.start + start, length }
            };
            (0..length).step_by(seq).map(piece)
        });
        let (pieces, ends) = best_fit(pieces.collect(), seq as u32);
        Self { pieces, ends, longer: 0 }
    }

    /// How many sequences there are.
    pub(super) fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    /// The documents of a sequence, each with its place.
    pub(super) fn sequence(&self, sequence: u64) -> impl Iterator<Item = (usize, Piece)> {
        let sequence = sequence as usize;
        let start = sequence.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.pieces[start..self.ends[sequence]].iter().scan(0, |next, piece| {
            let place = *next;
            *next += piece.length as usize;
            Some((place, *piece))
        })
    }
}

/// How many sequences of `seq` tokens documents of these lengths need with [`Packing::Apart`], and in which
/// share of the places no token stands.
pub fn packed_apart(lengths: impl IntoIterator<Item = u64>, seq: usize) -> (u64, f64) {
    let packed = Packed::cut(lengths.into_iter().map(|length| 0..length), seq.max(1));
    let tokens: u64 = packed.pieces.iter().map(|piece| u64::from(piece.length)).sum();
    let places = packed.count() as f64 * seq.max(1) as f64;
    (packed.count(), if places > 0.0 { 1.0 - tokens as f64 / places } else { 0.0 })
}

/// The pieces in the order of their sequences, and where each sequence ends.
fn best_fit(pieces: Vec<Piece>, seq: u32) -> (Vec<Piece>, Vec<usize>) {
    let mut by_length: Vec<usize> = (0..pieces.len()).collect();
    by_length.sort_by_key(|&index| (std::cmp::Reverse(pieces[index].length), index));
    // The sequences with this much room.
    let mut with_room: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut sequences: Vec<Vec<usize>> = Vec::new();
    for index in by_length {
        let length = pieces[index].length;
        let least = with_room.range(length..).next().map(|(room, _)| *room);
        let (sequence, room) = match least {
            Some(room) => {
                let there = with_room.get_mut(&room).expect("it was found");
                let sequence = there.pop().expect("a list has a sequence");
                if there.is_empty() {
                    with_room.remove(&room);
                }
                (sequence, room)
            }
            None => {
                sequences.push(Vec::new());
                (sequences.len() - 1, seq)
            }
        };
        sequences[sequence].push(index);
        if room > length {
            with_room.entry(room - length).or_default().push(sequence);
        }
    }
    // As in the file, as far as possible.
    sequences.iter_mut().for_each(|sequence| sequence.sort_unstable());
    sequences.sort_unstable();
    let mut ends = Vec::with_capacity(sequences.len());
    let mut ordered = Vec::with_capacity(pieces.len());
    for sequence in sequences {
        ordered.extend(sequence.into_iter().map(|index| pieces[index]));
        ends.push(ordered.len());
    }
    (ordered, ends)
}

fn refused(documents: &Documents, document: u64, tokens: u64, seq: usize) -> crate::error::Error {
    DataError::new(format!(
        "{}: document {document} has {tokens} tokens, and a sequence has at most {} with the one after it \
         (data.seq = {seq}): choose data.longer = \"cut\" or \"leave-out\", or longer sequences",
        documents.corpus.name(),
        seq + 1
    ))
    .into()
}
