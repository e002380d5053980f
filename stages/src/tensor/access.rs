//! The numbers and ids of tensors on the host.

use half::bf16;

use super::{Data, Tensor};
use crate::cpu::real::Real;
use crate::device::DType;

impl Tensor {
    /// The numbers, row-major.
    ///
    /// # Panics
    /// On a tensor of ids, of numbers in `bf16`, and on a tensor on a GPU. Shapes are checked before a stage
    /// runs ([`Stage::output_shape`](crate::Stage::output_shape)), and layers say where they run
    /// ([`Layer::runs_on_gpus`](crate::Layer::runs_on_gpus)).
    pub fn f32(&self) -> &[f32] {
        match &self.data {
            Data::F32(buffer) => buffer,
            _ => panic!("numbers of f32 on the host were expected, got {self:?}"),
        }
    }

    /// The numbers, for writing. If another tensor shares them, copies them first.
    ///
    /// # Panics
    /// As for [`Tensor::f32`].
    pub fn f32_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            Data::F32(buffer) => buffer,
            _ => panic!("numbers of f32 on the host were expected, got another tensor of {}", self.shape),
        }
    }

    /// The numbers of a tensor in `bf16` on the host, row-major.
    ///
    /// # Panics
    /// On any other tensor.
    pub fn bf16(&self) -> &[bf16] {
        match &self.data {
            Data::Bf16(buffer) => buffer,
            _ => panic!("numbers of bf16 on the host were expected, got {self:?}"),
        }
    }

    /// The numbers of a tensor in `bf16` on the host, for writing. If another tensor shares them, copies them
    /// first.
    ///
    /// # Panics
    /// On any other tensor.
    pub fn bf16_mut(&mut self) -> &mut [bf16] {
        match &mut self.data {
            Data::Bf16(buffer) => buffer,
            _ => panic!("numbers of bf16 on the host were expected, got another tensor of {}", self.shape),
        }
    }

    /// The bytes of the numbers or ids, as they lie in memory.
    ///
    /// # Panics
    /// On a tensor on a GPU.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.data {
            Data::F32(buffer) => bytemuck::cast_slice(buffer),
            Data::Bf16(buffer) => bytemuck::cast_slice(buffer),
            Data::Ids(ids) => bytemuck::cast_slice(ids),
            Data::Gpu(..) | Data::Away(..) => panic!("a tensor on the host was expected, got {self:?}"),
        }
    }

    /// The bytes of the numbers or ids, for writing. If another tensor shares them, copies them first.
    ///
    /// # Panics
    /// On a tensor on a GPU.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.data {
            Data::F32(buffer) => bytemuck::cast_slice_mut(buffer),
            Data::Bf16(buffer) => bytemuck::cast_slice_mut(buffer),
            Data::Ids(ids) => bytemuck::cast_slice_mut(ids),
            Data::Gpu(..) | Data::Away(..) => {
                panic!("a tensor on the host was expected, got one of {}", self.shape)
            }
        }
    }

    /// The numbers on the host, in a format that was asked for first ([`in_format`]).
    #[inline]
    pub(crate) fn numbers<N: Real>(&self) -> &[N] {
        match N::DTYPE {
            DType::F32 => bytemuck::cast_slice(self.f32()),
            DType::Bf16 => bytemuck::cast_slice(self.bf16()),
        }
    }

    /// As [`Tensor::numbers`], for writing.
    #[inline]
    pub(crate) fn numbers_mut<N: Real>(&mut self) -> &mut [N] {
        match N::DTYPE {
            DType::F32 => bytemuck::cast_slice_mut(self.f32_mut()),
            DType::Bf16 => bytemuck::cast_slice_mut(self.bf16_mut()),
        }
    }

    /// The ids, row-major.
    ///
    /// # Panics
    /// On a tensor of numbers.
    pub fn ids(&self) -> &[u32] {
        match &self.data {
            Data::Ids(ids) => ids,
            _ => panic!("a tensor of ids was expected, got {self:?}"),
        }
    }

    /// The ids, for writing. If another tensor shares them, copies them first.
    ///
    /// # Panics
    /// On a tensor of numbers.
    pub fn ids_mut(&mut self) -> &mut [u32] {
        match &mut self.data {
            Data::Ids(ids) => ids,
            _ => panic!("a tensor of ids was expected, got {}", self.shape),
        }
    }
}
