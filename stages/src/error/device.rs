//! Devices that do not exist, and what does not run on a device.

use crate::device::Device;
use crate::shape::Shape;

/// A device does not exist, or something does not run on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No GPU at all.
    #[error(
        "the CUDA driver is there and has no GPU (`nvidia-smi -L` lists those of the machine; \
         CUDA_VISIBLE_DEVICES hides some)"
    )]
    NoGpu,
    /// A GPU that CUDA does not see.
    #[error(
        "there is no {device}: {} (`pipewright devices` lists them; CUDA_VISIBLE_DEVICES hides some)",
        seen(*count)
    )]
    Missing {
        /// The GPU.
        device: Device,
        /// How many CUDA sees.
        count: u32,
    },
    /// A GPU that cannot run the kernels. They need the matrix instructions of compute capability 8.0.
    #[error(
        "{device} has compute capability {}.{}, and the kernels need 8.0 (Ampere) or newer",
        capability.0, capability.1
    )]
    Capability {
        /// The GPU.
        device: Device,
        /// Its compute capability: major, minor.
        capability: (i32, i32),
    },
    /// A layer that was written for `f32` only.
    #[error("this layer computes in f32 only: set dtype to f32")]
    LayerInF32Only,
    /// A stage that was written for `f32` only.
    #[error("this stage computes in f32 only: set dtype to f32")]
    StageInF32Only,
    /// A layer that was written for the CPU only.
    #[error("this layer does not run on {device}, only on cpu: put the rank of its stage on the CPU")]
    LayerOnCpuOnly {
        /// The device on which it should run.
        device: Device,
    },
    /// A stage that was written for the CPU only.
    #[error("this stage does not run on {device}, only on cpu")]
    StageOnCpuOnly {
        /// The device on which it should run.
        device: Device,
    },
    /// A stage that cannot send its gradients to other ranks' GPUs.
    #[error("this stage gives no gradients to other ranks' GPUs")]
    GivesNoGradients,
    /// A stage that cannot receive gradients from other ranks' GPUs.
    #[error("this stage takes no gradients from other ranks' GPUs")]
    TakesNoGradients,
    /// A gradient on the host should be sent to another rank's GPU as a tensor.
    #[error("a gradient on the host goes to others as bytes")]
    GradientOnHost,
    /// Heads that are too wide for the kernels.
    #[error("heads of {width} numbers are too wide for a GPU, which takes {most}: choose more heads")]
    WideHeads {
        /// The width of a head.
        width: usize,
        /// The largest width that a kernel supports.
        most: usize,
    },
    /// More sequences in a micro-batch than a kernel supports.
    #[error(
        "{count} sequences at once are too many for a GPU's attention, which takes {most}: choose smaller \
         micro-batches"
    )]
    ManySequences {
        /// The number of sequences.
        count: usize,
        /// The largest number that a kernel supports.
        most: usize,
    },
    /// A tensor should be sent from a GPU, but it is on another device.
    #[error("a tensor of {shape} cannot be sent from {from}: it is on {on}")]
    Elsewhere {
        /// The tensor's shape.
        shape: Shape,
        /// The GPU that should send it.
        from: Device,
        /// Where it is.
        on: Device,
    },
}

/// The GPUs that CUDA sees.
fn seen(count: u32) -> String {
    let devices: Vec<_> = (0..count).map(|index| Device::Cuda(index).to_string()).collect();
    match count {
        0 => "CUDA sees no GPU".to_owned(),
        _ => format!("CUDA sees {}", devices.join(", ")),
    }
}
