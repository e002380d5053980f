//! What all ranks do together at the end of a step, in terms of blocks between two.

use super::Transport;
use crate::error::Result;
use crate::id::Rank;

/// Every rank's numbers, in rank order, on every rank. Rank 0 gathers and passes them on.
///
/// # Errors
/// [`crate::Error::PeerGone`].
pub fn all_gather<W: 'static>(transport: &mut dyn Transport<W>, mine: &[f64]) -> Result<Vec<Vec<f64>>> {
    let peers = (1..transport.ranks()).map(Rank);
    if transport.rank() != Rank(0) {
        transport.send_bytes(Rank(0), to_bytes(mine))?;
        return (0..transport.ranks())
            .map(|_| Ok(from_bytes(&transport.recv_bytes(Rank(0))?)))
            .collect();
    }
    let mut all = vec![mine.to_vec()];
    for peer in peers.clone() {
        all.push(from_bytes(&transport.recv_bytes(peer)?));
    }
    for peer in peers {
        for numbers in &all {
            transport.send_bytes(peer, to_bytes(numbers))?;
        }
    }
    Ok(all)
}

fn to_bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> Vec<f64> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|chunk| f64::from_le_bytes(*chunk))
        .collect()
}
