//! Memory that a device does not have.

use crate::device::Device;
use crate::units::in_words;

/// A device that has not as much memory as is wanted, whatever is given back before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of memory on {device}: {} wanted{}; {}",
    in_words(*wanted as f64), left.map_or(String::new(), in_all), advice(*lasting)
)]
pub struct OutOfMemory {
    /// The device.
    pub device: Device,
    /// Bytes asked for.
    pub wanted: u64,
    /// What the device has left, where it tells: a GPU does.
    pub left: Option<Left>,
    /// Whether it is for what stays for as long as the stage: its parameters, room for its matrix products.
    pub lasting: bool,
}

impl OutOfMemory {
    /// The host has no memory for so many numbers.
    #[cold]
    pub(crate) fn on_host<T>(count: usize) -> Self {
        Self {
            device: Device::Cpu,
            wanted: (count as u64).saturating_mul(size_of::<T>() as u64),
            left: None,
            lasting: false,
        }
    }
}

/// What a device has left of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Bytes that nobody uses.
    pub free: u64,
    /// Bytes of the device.
    pub total: u64,
}

fn in_all(Left { free, total }: Left) -> String {
    format!(", {} free of {}", in_words(free as f64), in_words(total as f64))
}

fn advice(lasting: bool) -> &'static str {
    if lasting {
        "what stays with each stage (weights, their gradients, the optimizer's state, room for matrix \
         products) needs less on each of more devices: more stages, fewer on this one"
    } else {
        "less is needed with a smaller micro-batch (pipeline.micro_batch_size), recomputation \
         (pipeline.recompute) or more stages on other devices"
    }
}
