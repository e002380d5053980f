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
    pub(in crate::fabric::sockets) const SIZE: usize = 32;

    /// The key of those who know the secret. Without a secret: of those who run the same program file.
    pub(in crate::fabric::sockets) fn new(secret: Option<&Secret>) -> Self {
        match secret {
            Some(secret) => Self(made(b"pipewright secret", &[secret.bytes()])),
            None => Self(made(b"pipewright program", &[binary()])),
        }
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
    pub(in crate::fabric::sockets) fn make(&self, used_for: &str, parts: &[&[u8]]) -> [u8; Self::SIZE] {
        let all: Vec<&[u8]> = [used_for.as_bytes(), &[0]].into_iter().chain(parts.iter().copied()).collect();
        made(&self.0, &all)
    }

    /// Whether this is the number that [`Key::make`] makes. It takes the same time for every wrong number.
    pub(in crate::fabric::sockets) fn is_made(&self, number: &[u8], used_for: &str, parts: &[&[u8]]) -> bool {
        let mac = mac(&self.0, [used_for.as_bytes(), &[0]].into_iter().chain(parts.iter().copied()));
        mac.verify_slice(number).is_ok()
    }
}

fn made(key: &[u8], parts: &[&[u8]]) -> [u8; Key::SIZE] {
    mac(key, parts.iter().copied()).finalize().into_bytes().into()
}

fn mac<'a>(key: &[u8], parts: impl Iterator<Item = &'a [u8]>) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    parts.for_each(|part| mac.update(part));
    mac
}
