//! What this machine has for CUDA: libraries, GPUs, and what each GPU can run. And how its CPU multiplies.

use std::str::FromStr;

use crate::cpu::bf16_kernels::way::Way;
use crate::device::Device;
use crate::error::Error;

pub use crate::cuda::hopper::ATTENTION;
pub use crate::cuda::weight_stream::BACKWARD_WEIGHT;
pub use crate::cuda::{
    FoundLibrary, GpuReport, Library, Pair, Report, Version, cache_folder, free_memory, host_speed,
    name_and_memory, pairs, probe,
};
pub use crate::layers::attention::fused::FUSED_HEADS;

/// How this CPU multiplies numbers of `bf16`: `by AMX`, `by AVX-512-BF16`, or, slowly, `in f32`. The bits of
/// a product depend on it.
pub fn bf16_products() -> String {
    let way = Way::here();
    if way == Way::Widened {
        return "in f32, which is slow: it has neither AMX nor AVX-512-BF16".to_owned();
    }
    format!("by {way}")
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let index = text.strip_prefix("cuda:").map(str::parse);
        match (text, index) {
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(index))) => Ok(Self::Cuda(index)),
            _ => {
                Err(Error::new(format!("`{text}` is no device: write `cpu`, or `cuda:0` for the first GPU")))
            }
        }
    }
}
