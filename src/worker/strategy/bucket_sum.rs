//! How one bucket's sums are added.

use pipewright_stages::{Stage, round_sums};

use super::slices::Span;
use crate::error::Result;
use crate::worker::chunk::{Chunk, empty_block};

/// One of the sums that are added up, or a sum of several of them.
#[derive(Debug)]
pub(super) enum Addend {
    /// One of this replica's own sums, by its place among them. It is still in the stage.
    Own(usize),
    /// Numbers as bytes.
    Block(Vec<u8>),
}

/// Adds the sums of one bucket. An own sum is added where it is, to a block that has come: two numbers have
/// the same sum in either order.
pub(super) struct Adder<'a, S: Stage> {
    chunk: &'a mut Chunk<S>,
    spans: &'a [Span],
    /// Memory for blocks.
    pub(super) blocks: &'a mut Vec<Vec<u8>>,
    /// Whether each sum is rounded to 16 bits.
    are_short: bool,
    /// Whether the gradients are the last sum that was made.
    is_set: bool,
    result: Result<()>,
}

impl<'a, S: Stage> Adder<'a, S> {
    /// Adds sums of these numbers.
    pub(super) fn new(
        chunk: &'a mut Chunk<S>,
        spans: &'a [Span],
        blocks: &'a mut Vec<Vec<u8>>,
        are_short: bool,
    ) -> Self {
        Self { chunk, spans, blocks, are_short, is_set: false, result: Ok(()) }
    }

    /// The sum of two addends.
    pub(super) fn sum(&mut self, one: Addend, other: Addend) -> Addend {
        let (mut sum, node) = match (one, other) {
            (Addend::Block(sum), Addend::Block(more)) => return self.sum_of_blocks(sum, more),
            (Addend::Block(sum), Addend::Own(node)) | (Addend::Own(node), Addend::Block(sum)) => (sum, node),
            (one, Addend::Own(node)) => (self.block(one), node),
        };
        let added = self.chunk.add_sums(node, self.spans, &mut sum);
        self.is_set = self.keep(added).unwrap_or_default() && !self.are_short;
        Addend::Block(self.rounded(sum))
    }

    fn sum_of_blocks(&mut self, mut sum: Vec<u8>, more: Vec<u8>) -> Addend {
        add_block(&mut sum, &more);
        self.blocks.push(more);
        self.is_set = false;
        Addend::Block(self.rounded(sum))
    }

    fn rounded(&self, mut sum: Vec<u8>) -> Vec<u8> {
        if self.are_short {
            round_sums(&mut sum);
        }
        sum
    }

    /// A block with the same bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut block = empty_block(self.blocks);
        block.extend_from_slice(bytes);
        block
    }

    /// Sets the gradients to the sum of all. Returns it as a block too.
    ///
    /// # Errors
    /// When the stage's device has reported an error.
    pub(super) fn finish(mut self, total: Addend) -> Result<Vec<u8>> {
        let block = self.block(total);
        self.result?;
        if !self.is_set {
            self.chunk.set_gradients(self.spans, &block)?;
        }
        Ok(block)
    }

    fn block(&mut self, addend: Addend) -> Vec<u8> {
        let node = match addend {
            Addend::Block(block) => return block,
            Addend::Own(node) => node,
        };
        let mut block = empty_block(self.blocks);
        let appended = self.chunk.append_sums(node, self.spans, &mut block);
        self.keep(appended);
        block
    }

    /// Keeps the first error.
    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if self.result.is_ok() {
                    self.result = Err(error);
                }
                None
            }
        }
    }
}

/// Adds numbers, as bytes, to others.
pub(super) fn add_block(sum: &mut [u8], more: &[u8]) {
    let numbers = sum.as_chunks_mut().0.iter_mut().zip(more.as_chunks().0);
    for (number, more) in numbers {
        *number = (f32::from_ne_bytes(*number) + f32::from_ne_bytes(*more)).to_ne_bytes();
    }
}
