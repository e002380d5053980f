//! An open file with tensors, from which numbers are read or lent, and compared.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use pipewright_stages::{Numbers, SharedBytes};
use safetensors::Dtype;

use super::numbers::{read_numbers, width};
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::error::{Error, Problem, Result};
use crate::system::{Map, read_ahead, read_at};

/// This number of bytes is read at once for a checksum.
const BLOCK: usize = 1 << 20;

/// Where a tensor is in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) dtype: Dtype,
    /// In bytes from the start of the file.
    pub(super) offset: u64,
}

impl Place {
    /// The place of a number of the tensor.
    pub(super) fn after(self, numbers: usize) -> Self {
        let bytes = numbers * width(self.dtype).expect("a format that is read");
        Self { offset: self.offset + bytes as u64, ..self }
    }
}

/// An open file. It is at least as long as its tensors say.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    bytes: u64,
    /// The file in memory, from when it was first wanted on.
    map: OnceLock<Option<Arc<Map>>>,
}

impl Opened {
    pub(super) fn new(file: File, bytes: u64) -> Self {
        Self { file, bytes, map: OnceLock::new() }
    }

    /// How many bytes it has.
    pub(super) fn size(&self) -> u64 {
        self.bytes
    }

    /// The checksum of all its bytes.
    pub(super) fn checksum(&self) -> io::Result<Checksum> {
        let (mut sum, mut block, mut at) = (ChecksumBuilder::new(), vec![0; BLOCK], 0);
        while at < self.bytes {
            let here = &mut block[..BLOCK.min((self.bytes - at) as usize)];
            read_at(&self.file, here, at)?;
            sum.add(here);
            at += here.len() as u64;
        }
        Ok(sum.checksum())
    }

    /// Reads numbers.
    pub(super) fn read(&self, from: Place, numbers: &mut [f32]) -> io::Result<()> {
        self.ask_for(from, numbers.len());
        read_numbers(&self.file, from.offset, from.dtype, numbers)
    }

    /// Lends bytes without reading them, or reads them, if the system cannot lend.
    pub(super) fn bytes(&self, offset: u64, count: usize) -> io::Result<SharedBytes> {
        read_ahead(&self.file, offset, count as u64);
        if let Some(map) = self.map() {
            let start = offset as usize;
            return Ok(SharedBytes::of(map, start..start + count));
        }
        let mut bytes = vec![0; count];
        read_at(&self.file, &mut bytes, offset)?;
        Ok(bytes.into())
    }

    /// The file in memory, if the system can.
    fn map(&self) -> Option<Arc<Map>> {
        let map = || Map::of(&self.file, self.bytes as usize).ok().map(Arc::new);
        self.map.get_or_init(map).clone()
    }

    /// Lends `count` numbers without reading them. `None`: the system cannot, or they are not in the form in
    /// which they are used.
    pub(super) fn lend(&self, from: Place, count: usize) -> Option<Numbers> {
        let size = size_of::<f32>();
        if from.dtype != Dtype::F32 || !from.offset.is_multiple_of(size as u64) {
            return None;
        }
        let map = self.map()?;
        self.ask_for(from, count);
        let start = from.offset as usize / size;
        Some(Numbers::lent(map, start..start + count))
    }

    /// Asks the system to read `count` numbers ahead. What it does not have yet then comes at the speed of
    /// the disk.
    fn ask_for(&self, from: Place, count: usize) {
        let bytes = width(from.dtype).unwrap_or(0) * count;
        read_ahead(&self.file, from.offset, bytes as u64);
    }
}

/// How many numbers are compared at a time.
const COMPARED: usize = 1 << 20;

/// Compares `count` numbers from two places on. Both have a format that is read.
pub(super) fn same(one: (&Opened, Place), other: (&Opened, Place), count: usize) -> io::Result<bool> {
    let read = |(file, place): (&Opened, Place), first: usize| {
        let mut numbers = vec![0.0; COMPARED.min(count - first)];
        file.read(place.after(first), &mut numbers)?;
        Ok::<_, io::Error>(numbers)
    };
    for first in (0..count).step_by(COMPARED) {
        let (one, other) = (read(one, first)?, read(other, first)?);
        if bytemuck::cast_slice::<f32, u8>(&one) != bytemuck::cast_slice::<f32, u8>(&other) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens a regular file and returns its length. Others are refused before they are opened: opening a pipe
/// waits until somebody writes into it, and a device may never end.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let name = path.display();
    let unreadable =
        |source| Error::Pretrained(Problem::because(format!("cannot open `{name}`: {source}"), source));
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::pretrained(format!("`{name}` is not a regular file")));
    }
    let file = File::open(path).map_err(unreadable)?;
    Ok((file, metadata.len()))
}
