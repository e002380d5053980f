//! Whether the user wants the kernels for Hopper, and what these need.

use std::env;

use cudarc::driver::sys::{
    self, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use super::driver::Ptr;
use super::failure::failed;
use crate::device::Device;
use crate::error::{Error, Result};

/// The variable that chooses how attention's forward multiplies, and what to write into it for `wgmma`.
pub const ATTENTION: &str = "PIPEWRIGHT_ATTENTION";
const WGMMA: &str = "wgmma";

/// The compute capability that has `wgmma`. Later ones have not.
const HOPPER: (i32, i32) = (9, 0);

/// Whether attention's forward is to multiply by `wgmma` on this GPU.
///
/// # Errors
/// When the variable has another value, or the GPU has no `wgmma`.
pub(super) fn is_wanted(index: u32, capability: (i32, i32)) -> Result<bool> {
    match env::var_os(ATTENTION) {
        None => Ok(false),
        Some(way) if way != WGMMA => Err(Error::new(format!(
            "{ATTENTION} is `{}`: write `{WGMMA}`, or unset it for the usual kernels",
            way.display()
        ))),
        Some(_) if capability != HOPPER => Err(Error::new(format!(
            "{ATTENTION}={WGMMA} needs compute capability 9.0 (Hopper), and {} has {}.{}: unset it",
            Device::Cuda(index),
            capability.0,
            capability.1
        ))),
        Some(_) => Ok(true),
    }
}

/// How kernels find boxes of a tensor of bf16 numbers: four dimensions, the fastest first.
#[derive(Debug)]
pub(crate) struct TensorMap(CUtensorMap);

impl TensorMap {
    /// A map of a tensor without gaps, for boxes of this size. What of a box lies outside of the tensor is
    /// read as zeros. A row of a box has 128 bytes, and its chunks of 16 are permuted in shared memory, by
    /// the swizzle of 128 bytes.
    ///
    /// # Errors
    /// When the driver takes no such tensor.
    pub(crate) fn new(at: Ptr, dims: [usize; 4], boxes: [u32; 4]) -> Result<Self> {
        let dims = dims.map(|dim| dim as u64);
        let bytes = |dimensions: usize| 2 * dims[..dimensions].iter().product::<u64>();
        let strides = [bytes(1), bytes(2), bytes(3)];
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: the pointers are to locals that outlive the call, with as many numbers as dimensions, and
        // one less for the distances. The address is only kept.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map,
                CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                dims.len() as u32,
                at.0 as *mut _,
                dims.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                [1; 4].as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()
        .map_err(failed("making the map of a tensor"))?;
        Ok(Self(map))
    }

    /// The words of a kernel's argument.
    pub(crate) fn words(&self) -> &[u64] {
        &self.0.opaque
    }
}
