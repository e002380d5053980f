//! Reads one file of a checkpoint: where its tensors are, and whether their bytes have changed.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::Metadata;

use super::damage::{compare, damaged};
use super::encrypted::{self, Cipher};
use super::key::Key;
use super::layout::TensorInfo;
use super::state::FileChecksums;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{CheckpointError, Error, Result};

/// How many bytes are read at a time when all are verified.
const BLOCK: usize = 1 << 20;

/// Where the tensors of a safetensors file are, and their checksums.
#[derive(Debug)]
pub(super) struct Contents {
    path: PathBuf,
    /// If it is encrypted.
    cipher: Option<Cipher>,
    tensors: BTreeMap<String, Entry>,
    /// The checksums of tensors whose numbers are not in the file.
    elsewhere: BTreeMap<String, Checksum>,
}

#[derive(Debug)]
struct Entry {
    dims: Vec<usize>,
    dtype: Dtype,
    /// In bytes from the start of the plain file.
    offset: u64,
    /// In bytes from the start of the file, which may be encrypted.
    at: u64,
    /// `None` in a checkpoint of format 1.
    checksum: Option<Checksum>,
}

impl Entry {
    fn bytes(&self) -> u64 {
        (self.dims.iter().product::<usize>() * self.dtype.bitsize() / 8) as u64
    }
}

impl Contents {
    /// Opens a file whose tensors have one of these formats, and checks its length and its header. A
    /// checkpoint of format 1 has no `sums`.
    pub(super) fn open(path: PathBuf, sums: Option<&FileChecksums>, formats: &[Dtype]) -> Result<Self> {
        let mut file = File::open(&path).map_err(Error::io("open", &path))?;
        let size = file.metadata().map_err(Error::io("read", &path))?.len();
        let (header, cipher) = read_header(&mut file, &path, size)?;
        if let Some(sums) = sums {
            compare(&path, "the header", Checksum::of(&header), sums.header)?;
        }
        let metadata: Metadata =
            serde_json::from_slice(&header[8..]).map_err(|error| damaged(&path, error))?;
        let start = header.len() as u64;
        let whole = start + metadata.data_len() as u64;
        if cipher.is_none() && size != whole {
            return Err(truncated(&path, size, whole));
        }
        let mut tensors = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            if !formats.contains(&info.dtype) {
                let expected: Vec<String> = formats.iter().map(|format| format!("{format:?}")).collect();
                let (found, expected) = (info.dtype, expected.join(" or "));
                return Err(damaged(&path, format!("`{name}` is {found:?}, {expected} was expected")));
            }
            let entry = Entry {
                dims: info.shape.clone(),
                dtype: info.dtype,
                offset: start + info.data_offsets.0 as u64,
                at: start + info.data_offsets.0 as u64,
                checksum: sums.and_then(|sums| sums.tensors.get(&name).copied()),
            };
            tensors.insert(name, entry);
        }
        let named = sums.iter().flat_map(|sums| &sums.tensors);
        let elsewhere = named.filter(|(name, _)| !tensors.contains_key(*name));
        let elsewhere = elsewhere.map(|(name, sum)| (name.clone(), *sum)).collect();
        let mut contents = Self { path, cipher, tensors, elsewhere };
        contents.check_offsets(start)?;
        contents.place_encrypted(start, size)?;
        Ok(contents)
    }

    /// Finds out where the tensors of an encrypted file lie, and checks its length.
    fn place_encrypted(&mut self, start: u64, size: u64) -> Result<()> {
        if self.cipher.is_none() {
            return Ok(());
        }
        let mut entries: Vec<&mut Entry> = self.tensors.values_mut().collect();
        entries.sort_by_key(|entry| (entry.offset, entry.bytes()));
        let parts = entries.iter().map(|entry| (entry.offset, entry.bytes()));
        let all: u64 = parts.clone().map(|(_, bytes)| encrypted::length(bytes)).sum();
        let places = encrypted::places(start, parts);
        entries.into_iter().for_each(|entry| entry.at = places[&entry.offset]);
        let whole = encrypted::START + encrypted::length(start) + all;
        if size == whole { Ok(()) } else { Err(truncated(&self.path, size, whole)) }
    }

    /// Refuses tensors that overlap or leave gaps.
    fn check_offsets(&self, start: u64) -> Result<()> {
        let mut entries: Vec<(&String, &Entry)> = self.tensors.iter().collect();
        entries.sort_by_key(|(_, entry)| (entry.offset, entry.bytes()));
        let mut end = start;
        for (tensor, entry) in entries {
            if entry.offset != end {
                return Err(damaged(
                    &self.path,
                    format!("`{tensor}` does not begin where the tensor before it ends"),
                ));
            }
            end += entry.bytes();
        }
        Ok(())
    }

    /// Refuses a file that does not hold exactly these tensors.
    pub(super) fn check(&self, expected: &[TensorInfo], whose: &'static str) -> Result<()> {
        for tensor in expected {
            self.check_one(tensor, whose)?;
        }
        let known: HashSet<&String> = expected.iter().map(|tensor| &tensor.name).collect();
        match self.tensors.keys().find(|name| !known.contains(name)) {
            Some(name) => Err(self.differs(name, format!("is in it, but {whose} has no such tensor"))),
            None => Ok(()),
        }
    }

    /// Refuses a file that does not hold this tensor.
    pub(super) fn check_one(&self, tensor: &TensorInfo, whose: &'static str) -> Result<()> {
        let TensorInfo { name, dims, is_elsewhere, .. } = tensor;
        match (is_elsewhere, self.elsewhere.contains_key(name), self.tensors.contains_key(name)) {
            (true, true, _) => return Ok(()),
            (true, false, true) => {
                return Err(self.kept_otherwise(name, "is in it with its numbers", "quantised"));
            }
            (false, true, false) => {
                let then = "was quantised, so its numbers stayed in the folder of model.path";
                return Err(self.kept_otherwise(name, then, "in 32 bits"));
            }
            _ => {}
        }
        match self.tensors.get(name) {
            None => Err(self.differs(name, format!("is missing, {whose} has it with dimensions {dims:?}"))),
            Some(entry) if entry.dtype != tensor.dtype() => Err(Error::from(CheckpointError::new(format!(
                "{}: `{name}` was stored in {}, and {whose} has {}: set optimizer.state as it was",
                self.path.display(),
                word(entry.dtype),
                word(tensor.dtype())
            )))),
            Some(entry) if entry.dims != *dims => {
                let difference = format!("has dimensions {:?}, {whose} has {dims:?}", entry.dims);
                Err(self.differs(name, difference))
            }
            Some(_) => Ok(()),
        }
    }

    /// The error for a tensor that was stored in another way than it is now.
    fn kept_otherwise(&self, tensor: &str, then: &str, now: &str) -> Error {
        Error::from(CheckpointError::new(format!(
            "{}: `{tensor}` {then}, and now it is {now}: the folder of model.path, model.base and whether \
             pipeline.shards is 1 must be as they were",
            self.path.display()
        )))
    }

    /// Refuses weights that stayed elsewhere and have another checksum now.
    pub(super) fn compare_elsewhere(&self, tensor: &str, found: Checksum) -> Result<()> {
        match self.elsewhere.get(tensor) {
            Some(saved) if *saved != found => Err(Error::from(CheckpointError::new(format!(
                "{}: the quantised weights of `{tensor}` are not those with which it was trained: they have \
                 the checksum {found}, and had {saved}; put back the files that model.path had then",
                self.path.display()
            )))),
            _ => Ok(()),
        }
    }

    fn differs(&self, tensor: &str, difference: impl Display) -> Error {
        Error::from(CheckpointError::new(format!(
            "{}: `{tensor}` {difference}; it was saved from another model or optimizer",
            self.path.display()
        )))
    }

    pub(super) fn file(&self) -> Result<File> {
        File::open(&self.path).map_err(Error::io("open", &self.path))
    }

    /// Reads a tensor's numbers, which are `f32`, and compares them with its checksum.
    pub(super) fn read(&self, file: &mut File, tensor: &str, numbers: &mut [f32]) -> Result<()> {
        self.read_bytes(file, tensor, bytemuck::cast_slice_mut(numbers))
    }

    /// Reads a tensor's bytes and compares them with its checksum.
    pub(super) fn read_bytes(&self, file: &mut File, tensor: &str, bytes: &mut [u8]) -> Result<()> {
        let entry = &self.tensors[tensor];
        encrypted::stand(file, &self.path, entry.at)?;
        match &self.cipher {
            None => file.read_exact(bytes).map_err(Error::io("read", &self.path))?,
            Some(cipher) => {
                let (part, mut rest) = ((entry.offset, entry.bytes()), &mut *bytes);
                cipher.read(file, part, &format!("`{tensor}`"), |block| {
                    let (to, after) = std::mem::take(&mut rest).split_at_mut(block.len());
                    to.copy_from_slice(block);
                    rest = after;
                })?;
            }
        }
        match entry.checksum {
            Some(expected) => compare(&self.path, &format!("`{tensor}`"), Checksum::of(bytes), expected),
            None => Ok(()),
        }
    }

    /// The checksum of a tensor's bytes.
    fn sum(&self, file: &mut File, tensor: &str, block: &mut [u8]) -> Result<Checksum> {
        let entry = &self.tensors[tensor];
        encrypted::stand(file, &self.path, entry.at)?;
        let Some(cipher) = &self.cipher else {
            return sum(file, entry.bytes(), block).map_err(Error::io("read", &self.path));
        };
        let mut checksum = ChecksumBuilder::new();
        let part = (entry.offset, entry.bytes());
        cipher.read(file, part, &format!("`{tensor}`"), |block| checksum.add(block))?;
        Ok(checksum.checksum())
    }

    /// Reads all tensors and compares each with its checksum. Returns their count and their bytes.
    pub(super) fn verify(&self) -> Result<(usize, u64)> {
        self.verify_these(self.tensors.keys().map(String::as_str))
    }

    /// Reads these tensors, which must exist, and compares each with its checksum. Returns their count and
    /// their bytes.
    pub(super) fn verify_these<T: AsRef<str>>(
        &self,
        tensors: impl Iterator<Item = T>,
    ) -> Result<(usize, u64)> {
        let mut file = self.file()?;
        let mut block = vec![0; BLOCK];
        let (mut count, mut bytes) = (0, 0);
        for tensor in tensors {
            let found = self.sum(&mut file, tensor.as_ref(), &mut block)?;
            let entry = &self.tensors[tensor.as_ref()];
            if let Some(expected) = entry.checksum {
                let part = format!("`{}`", tensor.as_ref());
                compare(&self.path, &part, found, expected)?;
            }
            count += 1;
            bytes += entry.bytes();
        }
        Ok((count, bytes))
    }
}

/// The checksum of this number of bytes from where the file stands, read block by block.
fn sum(file: &mut File, bytes: u64, block: &mut [u8]) -> io::Result<Checksum> {
    let mut checksum = ChecksumBuilder::new();
    let mut left = bytes;
    while left > 0 {
        let length = left.min(block.len() as u64);
        let block = &mut block[..length as usize];
        file.read_exact(block)?;
        checksum.add(block);
        left -= length;
    }
    Ok(checksum.checksum())
}

/// What `optimizer.state` calls a number format of a file.
fn word(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::U8 => "\"8bit\"",
        Dtype::BF16 => "\"bf16\"",
        _ => "\"f32\"",
    }
}

/// Reads the header: its length, then its text. Also the cipher, if the file is encrypted.
fn read_header(file: &mut File, path: &Path, size: u64) -> Result<(Vec<u8>, Option<Cipher>)> {
    let mut header = vec![0; 8];
    file.read_exact(&mut header).map_err(|_| truncated(path, size, 8))?;
    if encrypted::is_encrypted(&header) {
        let read = file.take(encrypted::START - 8).read_to_end(&mut header);
        read.map_err(Error::io("read", path))?;
        let opened = Cipher::open(Key::in_use().as_ref(), path, &header)?;
        let (cipher, first) = opened.expect("it begins like an encrypted file");
        if first < 8 || first > size {
            return Err(damaged(path, "its beginning was changed after it was encrypted"));
        }
        let mut plain = Vec::with_capacity(first as usize);
        cipher.read(file, (0, first), "the header", |block| plain.extend_from_slice(block))?;
        return Ok((plain, Some(cipher)));
    }
    let length = u64::from_le_bytes(header[..].try_into().expect("eight bytes were read"));
    if length > size.saturating_sub(8) {
        return Err(truncated(path, size, length.saturating_add(8)));
    }
    header.resize(8 + length as usize, 0);
    file.read_exact(&mut header[8..]).map_err(Error::io("read", path))?;
    Ok((header, None))
}

fn truncated(path: &Path, bytes: u64, expected: u64) -> Error {
    damaged(path, format!("it has {bytes} bytes, its header calls for {expected}"))
}
