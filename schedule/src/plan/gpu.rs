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

/// The kinds that can be planned for by name. Where the name of one is in the name of another, the longer one
/// comes first.
///
/// Sources: NVIDIA's data sheets of A100 80 GB, H100, H200 and HGX B200 (a GPU's part), in their SXM form,
/// and of L40S, L4, A10, RTX A6000 and RTX 6000 Ada; Amazon's data sheet of A10G; the white papers of GA102
/// and of the Ada architecture for RTX 3090 and RTX 4090. The rate of products is the rate of `bf16` with
/// sums in `f32`, without sparsity: on GeForce cards it is half of what is advertised for `f16`. The number
/// of multiprocessors is from the white papers of the architectures, and for B200, L4 and A10G from what
/// their drivers report. All cards below B200 have PCIe 4.0 with 16 lanes, to the host and, without an NVLink
/// bridge, to each other.
///
/// The shares of attention are guesses but for H100. It runs on `mma.sync`, which has the full rate of an
/// A100 and of the cards, and on B200 is taken to be as fast on each multiprocessor as on H100.
pub static GPUS: [Gpu; 12] = [
    gpu("a100", 108.0, 312e12, 2.039e12, 80e9, [300e9, PCIE_4], [0.35, 0.35]),
    gpu("h100", 132.0, 989.4e12, 3.35e12, 80e9, [450e9, 64e9], [0.23, 0.28]),
    gpu("h200", 132.0, 989.4e12, 4.8e12, 141e9, [450e9, 64e9], [0.23, 0.28]),
    gpu("b200", 148.0, 2.25e15, 8e12, 180e9, [900e9, 64e9], [0.113, 0.138]),
    card("rtx3090", 82.0, 71e12, 936e9, 24e9),
    card("rtx4090", 128.0, 165.2e12, 1008e9, 24e9),
    card("l40s", 142.0, 362e12, 864e9, 48e9),
    card("l4", 58.0, 121e12, 300e9, 24e9),
    card("a10g", 80.0, 70e12, 600e9, 24e9),
    card("a10", 72.0, 125e12, 600e9, 24e9),
    card("a6000", 84.0, 154.8e12, 768e9, 48e9),
    card("rtx6000ada", 142.0, 364.2e12, 960e9, 48e9),
];

/// Bytes a second in one direction, as published: PCIe 4.0 with 16 lanes.
const PCIE_4: f64 = 32e9;

const fn gpu(
    name: &'static str,
    multiprocessors: f64,
    operations: f64,
    bandwidth: f64,
    memory: f64,
    [link, host]: [f64; 2],
    attention: [f64; 2],
) -> Gpu {
    Gpu { name: Cow::Borrowed(name), multiprocessors, operations, bandwidth, memory, link, host, attention }
}

/// A card of Ampere or Ada on PCIe 4.0.
const fn card(name: &'static str, multiprocessors: f64, operations: f64, bandwidth: f64, memory: f64) -> Gpu {
    let links = [PCIE_4; 2];
    gpu(name, multiprocessors, operations, bandwidth, memory, links, [0.35; 2])
}

impl Gpu {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        GPUS.iter().find(|gpu| gpu.name == name)
    }

    /// A card that nothing more is known of: on PCIe 4.0, with 100 multiprocessors.
    pub fn new(name: &str, operations: f64, bandwidth: f64, memory: f64) -> Self {
        Self { name: Cow::Owned(name.to_owned()), ..card("", 100.0, operations, bandwidth, memory) }
    }
}
