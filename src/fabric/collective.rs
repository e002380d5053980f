//! Exchanges among all ranks at the end of a step. They are made of blocks between two ranks.

use super::Transport;
use crate::error::Result;
use crate::id::WorldRank;

/// Every rank's numbers, in rank order. Using it again and again allocates nothing.
#[derive(Debug, Default)]
pub struct Gathered {
    numbers: Vec<f64>,
    /// The end of each rank's numbers.
    ends: Vec<usize>,
    /// Blocks that have been read, to send again. A rank receives a block for each one that it sends, so
    /// there are enough.
    blocks: Vec<Vec<u8>>,
}

impl Gathered {
    /// Each rank's numbers, in rank order.
    pub fn ranks(&self) -> impl Iterator<Item = &[f64]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .map(|(&start, &end)| &self.numbers[start..end])
    }

    /// All numbers, in rank order.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    fn clear(&mut self) {
        self.numbers.clear();
        self.ends.clear();
    }

    fn push(&mut self, numbers: &[f64]) {
        self.numbers.extend_from_slice(numbers);
        self.ends.push(self.numbers.len());
    }

    /// Adds the numbers of a block that [`to_block`] wrote.
    fn push_block(&mut self, block: Vec<u8>) {
        let mut numbers = block
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes));
        while let Some(count) = numbers.next() {
            self.numbers.extend(numbers.by_ref().take(count as usize));
            self.ends.push(self.numbers.len());
        }
        self.blocks.push(block);
    }

    /// Writes lists of numbers as a block: each is its length, then its numbers.
    fn to_block<'a>(mut block: Vec<u8>, lists: impl Iterator<Item = &'a [f64]>) -> Vec<u8> {
        block.clear();
        for list in lists {
            block.extend((list.len() as f64).to_le_bytes());
            block.extend(list.iter().flat_map(|number| number.to_le_bytes()));
        }
        block
    }
}

/// Gathers every rank's numbers on every rank. Rank 0 gathers and passes them on.
///
/// # Errors
/// [`crate::Error::PeerGone`].
pub fn all_gather<W: 'static>(
    transport: &mut dyn Transport<W>,
    mine: &[f64],
    all: &mut Gathered,
) -> Result<()> {
    all.clear();
    if transport.rank() != WorldRank(0) {
        let block = all.blocks.pop().unwrap_or_default();
        let block = Gathered::to_block(block, std::iter::once(mine));
        transport.send_bytes(WorldRank(0), block)?;
        all.push_block(transport.recv_bytes(WorldRank(0))?);
        return Ok(());
    }
    let peers = (1..transport.ranks()).map(WorldRank);
    all.push(mine);
    for peer in peers.clone() {
        all.push_block(transport.recv_bytes(peer)?);
    }
    for peer in peers {
        let block = all.blocks.pop().unwrap_or_default();
        transport.send_bytes(peer, Gathered::to_block(block, all.ranks()))?;
    }
    Ok(())
}
