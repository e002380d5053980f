//! Exchanges among all ranks at the end of a step. They are made of blocks between two ranks.

use super::{Tag, Transport};
use crate::error::Result;
use crate::id::WorldRank;

/// Every rank's bytes, in rank order. Using it again and again allocates nothing.
#[derive(Debug, Default)]
pub struct Gathered {
    bytes: Vec<u8>,
    /// The end of each rank's bytes.
    ends: Vec<usize>,
    /// Blocks that have been read, to send again. A rank receives a block for each one that it sends, so
    /// there are enough.
    blocks: Vec<Vec<u8>>,
}

impl Gathered {
    /// Each rank's bytes, in rank order.
    pub fn ranks(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(&start, &end)| &self.bytes[start..end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Adds the bytes of a block that [`Gathered::to_block`] wrote.
    fn push_block(&mut self, block: Vec<u8>) {
        let mut rest = &block[..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let (bytes, after) = after.split_at(length.min(after.len()));
            self.push(bytes);
            rest = after;
        }
        self.blocks.push(block);
    }

    /// Writes the bytes of several ranks as a block: for each rank the length, then the bytes.
    fn to_block<'a>(mut block: Vec<u8>, ranks: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        block.clear();
        for bytes in ranks {
            block.extend((bytes.len() as u64).to_le_bytes());
            block.extend_from_slice(bytes);
        }
        block
    }
}

/// Gathers every rank's bytes on every rank. Rank 0 gathers and passes them on.
///
/// # Errors
/// [`Error::PeerGone`](crate::Error::PeerGone).
pub fn all_gather<W: 'static>(
    transport: &mut dyn Transport<W>,
    mine: &[u8],
    all: &mut Gathered,
) -> Result<()> {
    all.clear();
    if transport.rank() != WorldRank(0) {
        let block = all.blocks.pop().unwrap_or_default();
        let block = Gathered::to_block(block, std::iter::once(mine));
        transport.send_bytes(WorldRank(0), Tag(0), block)?;
        all.push_block(transport.recv_bytes(WorldRank(0), Tag(0))?);
        return Ok(());
    }
    let peers = (1..transport.ranks()).map(WorldRank);
    all.push(mine);
    for peer in peers.clone() {
        all.push_block(transport.recv_bytes(peer, Tag(0))?);
    }
    for peer in peers {
        let block = all.blocks.pop().unwrap_or_default();
        transport.send_bytes(peer, Tag(0), Gathered::to_block(block, all.ranks()))?;
    }
    Ok(())
}
