//! Pieces of documents, with what stands beside them.

use std::iter::Peekable;

use super::raw::{Piece, Pieces};
use crate::error::Result;
use crate::tokenizer::{head, tail};

/// A piece, and what stands before and after it in its document. Both are empty if it is a whole document.
pub(super) struct Part {
    pub(super) piece: Piece,
    pub(super) before: String,
    pub(super) after: String,
}

/// The parts of a file, in order.
pub(super) struct Parts {
    pieces: Peekable<Pieces>,
    /// What stands before the next piece.
    before: String,
}

impl Parts {
    pub(super) fn of(pieces: Pieces) -> Self {
        Self { pieces: pieces.peekable(), before: String::new() }
    }

    /// The next parts, until they have `bytes` bytes together.
    pub(super) fn batch(&mut self, bytes: u64) -> Result<Vec<Part>> {
        let (mut batch, mut held) = (Vec::new(), 0);
        while held < bytes {
            let Some(piece) = self.pieces.next() else {
                break;
            };
            let piece = piece?;
            held += piece.bytes;
            batch.push(self.part(piece));
        }
        Ok(batch)
    }

    fn part(&mut self, piece: Piece) -> Part {
        let before = std::mem::take(&mut self.before);
        if piece.ends {
            let after = String::new();
            return Part { piece, before, after };
        }
        tail(&piece.text).clone_into(&mut self.before);
        let next = self.pieces.peek().and_then(|next| next.as_ref().ok());
        let after = next.map_or(String::new(), |next| head(&next.text).to_owned());
        Part { piece, before, after }
    }
}
