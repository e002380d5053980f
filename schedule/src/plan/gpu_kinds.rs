//! The kinds of GPU that can be planned for by name, with their published figures.

use std::borrow::Cow;

use crate::plan::Gpu;

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
