//! Keys, and the numbers that are made with them: HMAC-SHA256 (RFC 2104).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::secret::Secret;
use crate::fabric::processes::binary;

/// A key that only processes of one run have.
#[derive(Clone)]
pub(in crate::fabric::sockets) struct Key([u8; Self::SIZE]);

impl Key {
    /// The bytes of a key, and of a number made with it.
    pub(super) const SIZE: usize = 32;

    /// The key of those who know the secret. Without a secret: of those who run the same program file.
    pub(in crate::fabric::sockets) fn new(secret: Option<&Secret>) -> Self {
        let mac = match secret {
            Some(secret) => mac(b"pipewright secret").chain_update(secret.bytes()),
            None => mac(b"pipewright program").chain_update(binary()),
        };
        Self(mac.finalize().into_bytes().into())
    }

    /// The key of one run. Process 0 has drawn its number at random.
    pub(in crate::fabric::sockets) fn of_run(&self, run: &[u8; 32]) -> Self {
        self.derive("run", &[run])
    }

    /// Another key, for this use.
    pub(super) fn derive(&self, used_for: &str, parts: &[&[u8]]) -> Self {
        Self(self.make(used_for, parts))
    }

    /// A number that only those can make who have the key. Parts of one use always have the same lengths.
    pub(super) fn make(&self, used_for: &str, parts: &[&[u8]]) -> [u8; Self::SIZE] {
        self.mac(used_for, parts).finalize().into_bytes().into()
    }

    /// Whether this is the number that [`Key::make`] makes. It takes the same time for every wrong number.
    pub(super) fn is_made(&self, number: &[u8], used_for: &str, parts: &[&[u8]]) -> bool {
        self.mac(used_for, parts).verify_slice(number).is_ok()
    }

    fn mac(&self, used_for: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let begun = mac(&self.0).chain_update(used_for).chain_update([0]);
        parts.iter().fold(begun, |mac, part| mac.chain_update(part))
    }
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("a key may have any length")
}
