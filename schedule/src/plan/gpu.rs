//! What kernels cost on a GPU that is not here: by its published figures, and by the shares of them that our
//! kernels reached on one H100.
//!
//! A kernel takes as long as its bytes take in memory, or its products on tensor cores. A product is made of
//! tiles, one for each multiprocessor at a time, so it takes a whole number of waves of tiles. The shares are
//! from `benches/RESULTS.md` (22 November 2026). With them the time of each kernel there is predicted to
//! within a quarter, and a step of GPT-2 as it was then is predicted 4 to 5 % too fast. For other kinds of
//! GPU they are guesses.

use std::borrow::Cow;

/// The share of the published rate that products of `bf16` reach on tensor cores, while a wave is full.
const OF_PRODUCTS: f64 = 0.82;
/// The share of the published bandwidth that kernels reach which only read and write, while they run.
const OF_MEMORY: f64 = 0.88;
/// The share of a link's published bandwidth that a transfer reaches. 376 of 450 GB/s were measured between
/// two H100 (NVIDIA/nccl, issue 1264).
const OF_LINK: f64 = 0.83;
/// The share of the published bandwidth to the host's memory that a copy reaches. A guess.
const OF_HOST: f64 = 0.8;
/// Seconds of any launch, until the GPU is busy and after it was.
const LAUNCH: f64 = 4e-6;
/// Seconds until the first products of a tile begin.
const TILE_START: f64 = 0.5e-6;
/// Seconds of any message to another GPU. A guess.
const MESSAGE: f64 = 10e-6;

/// Rows and columns of a tile.
const TILES: [[f64; 2]; 2] = [[128.0, 256.0], [128.0, 128.0]];
/// Into how many parts the sums of a product may be cut, which are added up at its end.
const PARTS: [f64; 5] = [1.0, 2.0, 4.0, 8.0, 16.0];

/// A kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Its name on the command line.
    pub name: Cow<'static, str>,
    /// How many multiprocessors it has.
    pub multiprocessors: f64,
    /// Floating-point operations a second of `bf16` products, as published, for matrices without sparsity.
    pub operations: f64,
    /// Bytes a second from and to its memory, as published.
    pub bandwidth: f64,
    /// Bytes of its memory.
    pub memory: f64,
    /// Bytes a second to another GPU of its host, as published, in one direction.
    pub link: f64,
    /// Bytes a second to the memory of its host, or from there, as published.
    pub host: f64,
    /// The shares of `operations` that our attention reaches, forward and backward, with heads of 64.
    pub attention: [f64; 2],
}

/// What a kernel does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// A product of `bf16` matrices.
    Product {
        /// Rows and columns of the result.
        size: [usize; 2],
        /// How many products each number of the result is the sum of.
        inner: usize,
        /// The bytes of a number of the result.
        bytes: usize,
    },
    /// Fused attention, with this number of floating-point operations.
    Attention {
        /// The floating-point operations.
        operations: f64,
        /// Whether it is the backward.
        backward: bool,
    },
    /// This number of bytes is read and written.
    Bytes(f64),
}

/// What a GPU is told to do at once, by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernel {
    /// What it is.
    pub name: &'static str,
    /// What it does.
    pub work: Work,
    /// How many launches it takes.
    pub launches: u32,
}

impl Gpu {
    /// The seconds of a kernel.
    pub fn time(&self, kernel: &Kernel) -> f64 {
        let time = match kernel.work {
            Work::Product { size, inner, bytes } => self.product(size, inner, bytes as f64),
            Work::Attention { operations, backward } => {
                operations / (self.operations * self.attention[usize::from(backward)])
            }
            Work::Bytes(bytes) => bytes / self.memory_rate(),
        };
        time + LAUNCH * f64::from(kernel.launches)
    }

    /// The seconds and bytes a second of a message to another GPU of the host.
    pub fn message(&self) -> (f64, f64) {
        (MESSAGE, OF_LINK * self.link)
    }

    /// The seconds of a byte to the memory of its host, or from there.
    pub fn host_byte(&self) -> f64 {
        1.0 / (OF_HOST * self.host)
    }

    /// The bytes a second that kernels read and write.
    pub fn memory_rate(&self) -> f64 {
        OF_MEMORY * self.bandwidth
    }

    /// The time in the best tiles and parts, and at least the time of its bytes.
    fn product(&self, [rows, columns]: [usize; 2], inner: usize, bytes: f64) -> f64 {
        let [rows, columns, inner] = [rows, columns, inner].map(|size| size as f64);
        let read = 2.0 * inner * (rows + columns);
        let least = (read + bytes * rows * columns) / self.memory_rate();
        let best = TILES.iter().flat_map(|tile| PARTS.map(|parts| (tile, parts)));
        best.map(|(tile, parts)| self.in_tiles([rows, columns], inner, bytes, *tile, parts))
            .fold(f64::INFINITY, f64::min)
            .max(least)
    }

    /// The time of all waves of tiles. A tile starts and multiplies, while the sums of the one before are
    /// written. Sums of parts are in `f32`, and are read again.
    fn in_tiles(
        &self,
        [rows, columns]: [f64; 2],
        inner: f64,
        bytes: f64,
        [high, wide]: [f64; 2],
        parts: f64,
    ) -> f64 {
        let tiles = (rows / high).ceil() * (columns / wide).ceil() * parts;
        let waves = (tiles / self.multiprocessors).ceil();
        let operations = 2.0 * high * wide * inner / parts;
        let multiply = operations * self.multiprocessors / (OF_PRODUCTS * self.operations);
        let (sum, add) = match parts > 1.0 {
            true => (4.0, rows * columns * (4.0 * parts + bytes)),
            false => (bytes, 0.0),
        };
        let write = high * wide * sum * self.multiprocessors / self.memory_rate();
        waves * (TILE_START + multiply.max(write)) + add / self.memory_rate()
    }
}
