//! The hash of all weights. It continues from rank to rank.

use std::io;

use sha2::Sha256;
use sha2::digest::common::hazmat::SerializableState;

use crate::error::{FabricError, PartOf, Result};
use crate::id::WorldRank;

/// The call in which ranks continue each other's hash.
pub(super) const CALL: &str = "hashing the weights";

/// Continues a hash from the state that a rank gives.
pub(super) fn resumed(rank: WorldRank, state: &[u8]) -> Result<Sha256> {
    let hash = state.try_into().map_err(io::Error::other);
    let hash = hash.and_then(|state| Sha256::deserialize(state).map_err(io::Error::other));
    Ok(hash.map_err(|error| FabricError::unreadable_part(PartOf::Rank(rank), CALL, error))?)
}
