//! Which kernels of attention are fused, and the shared memory that a launch gives them.

/// The fused kernels for a head width.
pub(crate) struct Fused {
    pub(crate) width: usize,
    /// The names of kernels: each first for sequences, then for documents.
    pub(crate) forward: [&'static str; 2],
    /// One kernel makes the gradients of keys and values, or two do.
    pub(crate) backward_kv: &'static [[&'static str; 2]],
    pub(crate) backward_q: [&'static str; 2],
    /// The keys of a block of `backward_kv`, and the queries of a block of the other kernels.
    pub(crate) keys: usize,
    pub(crate) queries: usize,
    /// The bytes of shared memory of each kernel.
    pub(crate) shared: [u32; 3],
}

/// The forward kernel for a head width by `wgmma`, for Hopper.
pub(crate) struct OnHopper {
    pub(crate) width: usize,
    /// As in [`Fused`].
    pub(crate) forward: [&'static str; 2],
    /// The queries of a block, its threads, and its bytes of shared memory.
    pub(crate) queries: usize,
    pub(crate) threads: u32,
    pub(crate) shared: u32,
}

/// The head widths for which `bf16` attention has fused kernels. Other widths run on plain kernels, which are
/// correct but slow.
pub const FUSED_HEADS: [usize; 6] = [64, 80, 96, 112, 128, 256];

/// The names of a kernel of sequences and of documents.
macro_rules! names {
    ($which:literal, $width:literal) => {
        [
            concat!("attention_", $which, "_", $width, "_bf16"),
            concat!("attention_", $which, "_apart_", $width, "_bf16"),
        ]
    };
}

macro_rules! fused {
    ($width:literal, [$($which:literal),+], $keys:expr, $queries:expr, $shared:expr) => {
        Fused {
            width: $width,
            forward: names!("forward", $width),
            backward_kv: &[$(names!($which, $width)),+],
            backward_q: names!("backward_q", $width),
            keys: $keys,
            queries: $queries,
            shared: $shared,
        }
    };
}

/// Wider heads than 64 have rows of 128 or 256 numbers in shared memory.
const WIDE: [u32; 3] = [96 << 10, 97 << 10, 96 << 10];

pub(crate) const FUSED: [Fused; FUSED_HEADS.len()] = [
    fused!(64, ["backward_kv"], 128, 128, [48 << 10, 65 << 10, 64 << 10]),
    fused!(80, ["backward_kv"], 64, 128, WIDE),
    fused!(96, ["backward_kv"], 64, 128, WIDE),
    fused!(112, ["backward_kv"], 64, 128, WIDE),
    fused!(128, ["backward_kv"], 64, 128, WIDE),
    fused!(256, ["backward_k", "backward_v"], 64, 64, WIDE),
];

/// The bytes of the barriers of a block.
const BARRIERS: u32 = 72;

pub(crate) const ON_HOPPER: [OnHopper; 2] = [
    OnHopper {
        width: 64,
        forward: names!("forward_hopper", 64),
        queries: 192,
        threads: 512,
        shared: (88 << 10) + BARRIERS,
    },
    OnHopper {
        width: 128,
        forward: names!("forward_hopper", 128),
        queries: 128,
        threads: 384,
        shared: (160 << 10) + BARRIERS,
    },
];
