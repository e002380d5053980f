//! An open file with tensors, from which numbers are read or lent.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::num::NonZero;
#[cfg(target_os = "linux")]
use std::sync::{Arc, OnceLock};

use pipewright_stages::Numbers;
use safetensors::Dtype;

#[cfg(target_os = "linux")]
use super::map::Map;
use super::numbers::read_numbers;
#[cfg(target_os = "linux")]
use super::numbers::width;
use crate::checksum::{Checksum, ChecksumBuilder};
use crate::data::read_at;

/// This number of bytes is read at once for a checksum.
const BLOCK: usize = 1 << 20;

/// Where a tensor is in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) dtype: Dtype,
    /// In bytes from the start of the file.
    pub(super) offset: u64,
}

/// An open file. It is at least as long as its tensors say.
#[derive(Debug)]
pub(super) struct Opened {
    file: File,
    bytes: u64,
    /// The file in memory, from when it was first wanted on.
    #[cfg(target_os = "linux")]
    map: OnceLock<Option<Arc<Map>>>,
}

impl Opened {
    pub(super) fn new(file: File, bytes: u64) -> Self {
        Self {
            file,
            bytes,
            #[cfg(target_os = "linux")]
            map: OnceLock::new(),
        }
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

    /// Lends `count` numbers without reading them. `None`: the system cannot, or they are not in the form in
    /// which they are used.
    #[cfg(target_os = "linux")]
    pub(super) fn lend(&self, from: Place, count: usize) -> Option<Numbers> {
        let size = size_of::<f32>();
        if from.dtype != Dtype::F32 || !from.offset.is_multiple_of(size as u64) {
            return None;
        }
        let map = || Map::of(&self.file, self.bytes as usize).ok().map(Arc::new);
        let map = Arc::clone(self.map.get_or_init(map).as_ref()?);
        self.ask_for(from, count);
        let start = from.offset as usize / size;
        Some(Numbers::lent(map, start..start + count))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn lend(&self, _from: Place, _count: usize) -> Option<Numbers> {
        None
    }

    /// Asks the system to read `count` numbers ahead. What it does not have yet then comes at the speed of
    /// the disk.
    #[cfg(target_os = "linux")]
    fn ask_for(&self, from: Place, count: usize) {
        use rustix::fs::{Advice, fadvise};
        let bytes = width(from.dtype).unwrap_or(0) * count;
        // It is only advice.
        let _ = fadvise(&self.file, from.offset, NonZero::new(bytes as u64), Advice::WillNeed);
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_for(&self, _from: Place, _count: usize) {}
}
