//! A device has too little memory.

use crate::device::Device;
use crate::units::in_words;

/// A device has too little memory, even after freeing what is not in use.
#[derive(Clone, Debug, thiserror::Error)]
#[error("out of memory on {device}: {lack}; {}", advice(*purpose))]
pub struct OutOfMemory {
    /// The device.
    pub device: Device,
    /// What was asked for, and what there is, in words.
    lack: String,
    /// What the memory is for.
    purpose: Purpose,
}

impl OutOfMemory {
    /// The host has no memory for `count` numbers of a pass.
    #[cold]
    pub(crate) fn on_host<T>(count: usize) -> Self {
        Self::of(Device::Cpu, (count as u64).saturating_mul(size_of::<T>() as u64), None)
    }

    /// A device has no memory of this many bytes for a pass. A GPU reports its free and its total bytes.
    pub(crate) fn of(device: Device, wanted: u64, left: Option<[u64; 2]>) -> Self {
        let lack = format!("{} wanted{}", in_words(wanted as f64), free_of_all(left));
        Self { device, lack, purpose: Purpose::Passes }
    }

    /// As [`OutOfMemory::of`], for a call of CUDA's libraries. They do not say how much it needs.
    pub(crate) fn for_call(device: Device, call: &str, left: Option<[u64; 2]>) -> Self {
        let lack = format!("too little for {call}{}", free_of_all(left));
        Self { device, lack, purpose: Purpose::Stage }
    }

    /// The same lack, of memory for this purpose.
    pub(crate) fn wanted_for(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }
}

/// What memory is for, and so what would need less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What passes compute, and keep for later ones.
    Passes,
    /// What lives as long as the stage: its parameters, or room for its matrix products.
    Stage,
    /// Activations that are on the host between forward and backward ([`Offloaded`](crate::Offloaded)).
    Offload,
    /// The optimizer's state of a rank on a GPU, if it is on the host.
    State,
}

fn free_of_all(left: Option<[u64; 2]>) -> String {
    left.map_or(String::new(), |left| {
        let [free, total] = left.map(|bytes| in_words(bytes as f64));
        format!(", {free} free of {total}")
    })
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
        Purpose::State => {
            "it is page-locked memory, for what optimizer.state_on_host keeps off the GPUs; fewer bits need \
             less of it (optimizer.state), and so does each of several replicas with optimizer.sharded"
        }
    }
}
