//! The form of an encrypted file.
//!
//! It begins with 40 bytes that anybody can read: [`MARK`], eight bytes that tell keys apart, a random number
//! of 16 bytes, and the length of the first part. Then come the file's parts: the header, and each tensor.
//! The description is one part. A part is cut into blocks of [`BLOCK`] bytes, and each is encrypted by
//! ChaCha20-Poly1305 (RFC 8439), which adds 16 bytes that no other key makes.
//!
//! Each file has a key of its own, which follows from the key, the random number, the file's name and the
//! length of the first part. The number of a block is its place in the plain file, so no block can stand in
//! another place, in another file, or in a file with another name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

use super::damage::damaged;
use super::key::Key;
use crate::error::{CheckpointError, Error, Result};

/// How an encrypted file begins.
const MARK: &[u8; 8] = b"pwcrypt1";

/// The bytes before the first part.
pub(super) const START: u64 = 40;

/// The bytes of a block before it is encrypted.
const BLOCK: usize = 1 << 16;

/// The bytes that encryption adds to a block.
const TAG: usize = 16;

/// The length of a part of this number of bytes, once it is encrypted.
pub(super) fn length(plain: u64) -> u64 {
    plain + TAG as u64 * plain.div_ceil(BLOCK as u64)
}

/// Whether a file begins like an encrypted one.
pub(super) fn is_encrypted(start: &[u8]) -> bool {
    start.starts_with(MARK)
}

/// Encrypts and decrypts one file.
pub(super) struct Cipher {
    cipher: ChaCha20Poly1305,
    path: PathBuf,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The eight bytes that tell keys apart.
fn name_of(key: &Key) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = key.derive(&[b"name"]);
    [a, b, c, d, e, f, g, h]
}

impl Cipher {
    /// The cipher of a new file whose first part has this length, and the bytes with which the file begins.
    ///
    /// # Errors
    /// [`Error::Io`] when the system gives no random numbers.
    pub(super) fn create(key: &Key, path: &Path, first: u64) -> Result<(Self, Vec<u8>)> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| Error::io("encrypt", path)(error.into()))?;
        let start = [&MARK[..], &name_of(key), &random, &first.to_le_bytes()].concat();
        Ok((Self::of(key, path, &start), start))
    }

    /// The cipher of a file that begins like this, and the length of its first part. `None` if the file is
    /// not encrypted.
    ///
    /// # Errors
    /// [`CheckpointError`] when there is no key, another one, or less than a beginning.
    pub(super) fn open(key: Option<&Key>, path: &Path, start: &[u8]) -> Result<Option<(Self, u64)>> {
        if !is_encrypted(start) {
            return Ok(None);
        }
        let Some(key) = key else {
            return Err(refused(path, "it is encrypted, and there is no key"));
        };
        let Some(start) = start.get(..START as usize) else {
            return Err(damaged(
                path,
                format!("it has {} bytes, and its beginning has {START}", start.len()),
            ));
        };
        if start[8..16] != name_of(key) {
            return Err(refused(path, "it is encrypted with another key"));
        }
        let first = u64::from_le_bytes(start[32..].try_into().expect("eight bytes"));
        Ok(Some((Self::of(key, path, start), first)))
    }

    fn of(key: &Key, path: &Path, start: &[u8]) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let own = key.derive(&[b"file", name.as_bytes(), start]);
        Self { cipher: ChaCha20Poly1305::new(&own.into()), path: path.to_owned() }
    }

    /// Writes a part, which is at this place of the plain file, where the file stands.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write(&self, file: &mut File, place: u64, plain: &[u8]) -> Result<()> {
        let mut block = Vec::with_capacity(BLOCK + TAG);
        for (number, part) in (0..).zip(plain.chunks(BLOCK)) {
            block.clear();
            block.extend_from_slice(part);
            let nonce = nonce(place + number * BLOCK as u64);
            self.cipher.encrypt_in_place(&nonce.into(), b"", &mut block).expect("a block is short");
            file.write_all(&block).map_err(Error::io("write", &self.path))?;
        }
        Ok(())
    }

    /// Reads a part, which has this place and length in the plain file, from where the file stands. `take` is
    /// given its blocks in order.
    ///
    /// # Errors
    /// [`CheckpointError`] when a byte has changed. [`Error::Io`].
    pub(super) fn read(
        &self,
        from: &mut impl Read,
        (place, bytes): (u64, u64),
        what: &str,
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut block = Vec::new();
        let (mut place, mut left) = (place, bytes);
        while left > 0 {
            let plain = left.min(BLOCK as u64);
            block.resize(plain as usize + TAG, 0);
            from.read_exact(&mut block).map_err(Error::io("read", &self.path))?;
            let opened = self.cipher.decrypt_in_place(&nonce(place).into(), b"", &mut block);
            opened.map_err(|_| damaged(&self.path, format!("{what} was changed after it was encrypted")))?;
            take(&block);
            place += plain;
            left -= plain;
        }
        Ok(())
    }

    /// Reads a part that is in memory.
    pub(super) fn read_all(&self, encrypted: &[u8], bytes: u64, what: &str) -> Result<Vec<u8>> {
        let (mut all, mut from) = (Vec::new(), encrypted);
        self.read(&mut from, (0, bytes), what, |block| all.extend_from_slice(block))?;
        Ok(all)
    }
}

/// The number of the block at this place of the plain file, which no other block of the file has.
fn nonce(place: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&place.to_le_bytes());
    nonce
}

fn refused(path: &Path, why: &str) -> Error {
    CheckpointError::new(format!(
        "{}: {why}: name the file with its key (checkpoint.key_file), or give the key as PIPEWRIGHT_KEY",
        path.display()
    ))
    .into()
}

/// The bytes of a whole file that is one part.
///
/// # Errors
/// As for [`Cipher::create`].
pub(super) fn write_whole(key: Option<&Key>, path: &Path, file: &mut File, plain: &[u8]) -> Result<()> {
    let Some(key) = key else {
        return file.write_all(plain).map_err(Error::io("write", path));
    };
    let (cipher, start) = Cipher::create(key, path, plain.len() as u64)?;
    file.write_all(&start).map_err(Error::io("write", path))?;
    cipher.write(file, 0, plain)
}

/// The plain bytes of a whole file that is one part, whether it is encrypted or not.
///
/// # Errors
/// As for [`Cipher::open`] and [`Cipher::read`].
pub(super) fn read_whole(path: &Path, bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some((cipher, first)) = Cipher::open(Key::in_use().as_ref(), path, bytes)? else {
        return Ok(None);
    };
    let encrypted = &bytes[START as usize..];
    let is_whole = first <= bytes.len() as u64 && length(first) == encrypted.len() as u64;
    match is_whole {
        true => cipher.read_all(encrypted, first, "the description").map(Some),
        false => Err(damaged(path, format!("it has {} bytes, its beginning tells of others", bytes.len()))),
    }
}

/// Where the parts of a file lie once they are encrypted, by their places in the plain file. The first part
/// has the length `first`, and `parts` are the others in order: place and length.
pub(super) fn places(first: u64, parts: impl Iterator<Item = (u64, u64)>) -> BTreeMap<u64, u64> {
    let mut at = START + length(first);
    let place = |(place, bytes): (u64, u64)| {
        let here = at;
        at += length(bytes);
        (place, here)
    };
    parts.map(place).collect()
}

/// Stands where an encrypted file, or a plain one, has the part that is at `place` of the plain file.
pub(super) fn stand(file: &mut File, path: &Path, at: u64) -> Result<()> {
    file.seek(SeekFrom::Start(at)).map(drop).map_err(Error::io("read", path))
}
