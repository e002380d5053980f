//! The hash of all weights. It continues from rank to rank.

use sha2::Sha256;
use sha2::digest::common::hazmat::SerializableState;

use crate::error::{Error, Result};

/// Continues a hash from its saved state.
pub(super) fn resumed(state: &[u8]) -> Result<Sha256> {
    let state = state.try_into().ok();
    let hash = state.and_then(|state| Sha256::deserialize(state).ok());
    hash.ok_or_else(|| Error::Stopped(": the state of a hash cannot be read".to_owned()))
}
