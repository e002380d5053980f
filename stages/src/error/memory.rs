//! A device has too little memory.

use std::fmt;

use crate::device::Device;
use crate::units::in_words;

/// A device has too little memory, even after freeing what is not in use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of memory on {device}: {wanted}{}; {}",
    left.map_or(String::new(), in_all), advice(*purpose)
)]
pub struct OutOfMemory {
    /// The device.
    pub device: Device,
    /// What was asked for.
    pub wanted: Wanted,
    /// The device's free memory, if it reports it. A GPU does.
    pub left: Option<Left>,
    /// What the memory is for.
    pub purpose: Purpose,
}

impl OutOfMemory {
    /// The host has no memory for `count` numbers.
    #[cold]
    pub(crate) fn on_host<T>(count: usize) -> Self {
        Self {
            device: Device::Cpu,
            wanted: Wanted::Bytes((count as u64).saturating_mul(size_of::<T>() as u64)),
            left: None,
            purpose: Purpose::Passes,
        }
    }
}

/// What memory is for, and so what would need less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What passes compute, and keep for later ones.
    Passes,
    /// What lives as long as the stage: its parameters, or room for its matrix products.
    Stage,
    /// Activations that are on the host between forward and backward ([`Offloaded`](crate::Offloaded)).
    Offload,
}

/// What memory was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This number of bytes.
    Bytes(u64),
    /// What this call of CUDA's libraries needs. They do not say how much that is.
    For(String),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} wanted", in_words(*bytes as f64)),
            Self::For(call) => write!(f, "too little for {call}"),
        }
    }
}

/// The free and the total memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Free bytes.
    pub free: u64,
    /// All bytes of the device.
    pub total: u64,
}

fn in_all(Left { free, total }: Left) -> String {
    format!(", {} free of {}", in_words(free as f64), in_words(total as f64))
}

fn advice(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Passes => {
            "less is needed with a smaller micro-batch (pipeline.micro_batch_size), recomputation \
             (pipeline.recompute) or more stages on other devices"
        }
        Purpose::Stage => {
            "what stays with each stage (weights, their gradients, the optimizer's state, room for matrix \
             products) needs less on each of more devices: more stages, fewer on this one"
        }
        Purpose::Offload => {
            "it is page-locked memory, for what pipeline.offload takes off the GPUs; with a smaller \
             pipeline.offload fewer passes are offloaded, and recomputation (pipeline.recompute) needs no \
             memory of the host"
        }
    }
}
