//! Dense row-major tensors: numbers on the host or on a GPU, or ids (tokens, classes) on the host.

use std::fmt;
use std::rc::Rc;

use crate::cuda::{self, Gpu, Memory, Ptr};
use crate::device::{DType, Device, Place};
use crate::error::{Error, Result};
use crate::pool::Buffer;
use crate::shape::{Kind, Shape};
use crate::stage::Bytes;

/// A dense row-major tensor. Cloning shares the memory; writing to a shared one copies it first.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    data: Data,
}

#[derive(Clone)]
enum Data {
    F32(Buffer),
    Ids(Buffer<u32>),
    Gpu(Memory, DType),
}

impl Tensor {
    /// An `f32` tensor from the current thread's pool whose contents are unspecified: for outputs that are overwritten whole.
    pub fn scratch(dims: &[usize]) -> Self {
        let shape = Shape::f32(dims);
        Self {
            shape,
            data: Data::F32(Buffer::pooled(shape.count())),
        }
    }

    /// A tensor of ids from the current thread's pool whose contents are unspecified: for a data source to fill.
    pub fn scratch_ids(dims: &[usize]) -> Self {
        let shape = Shape::ids(dims);
        Self {
            shape,
            data: Data::Ids(Buffer::pooled(shape.count())),
        }
    }

    /// An `f32` tensor of zeros from the current thread's pool.
    pub fn zeros(dims: &[usize]) -> Self {
        let mut tensor = Self::scratch(dims);
        tensor.f32_mut().fill(0.0);
        tensor
    }

    /// An `f32` tensor from numbers in row-major order.
    ///
    /// # Errors
    /// When the numbers do not fill the dimensions exactly.
    pub fn from_vec(dims: &[usize], numbers: Vec<f32>) -> Result<Self> {
        let shape = Shape::f32(dims);
        check_count(&shape, numbers.len())?;
        Ok(Self {
            shape,
            data: Data::F32(Buffer::from(&numbers[..])),
        })
    }

    /// A tensor of ids in row-major order.
    ///
    /// # Errors
    /// When the ids do not fill the dimensions exactly.
    pub fn from_ids(dims: &[usize], ids: Vec<u32>) -> Result<Self> {
        let shape = Shape::ids(dims);
        check_count(&shape, ids.len())?;
        Ok(Self {
            shape,
            data: Data::Ids(Buffer::from(&ids[..])),
        })
    }

    /// Numbers on a GPU whose contents are unspecified.
    pub(crate) fn on_gpu(gpu: &Gpu, dtype: DType, dims: &[usize]) -> Result<Self> {
        let count: usize = dims.iter().product();
        let memory = gpu.memory_of(count * dtype.bytes())?;
        Ok(Self::in_memory(memory, dtype, dims))
    }

    /// Numbers of other dimensions where this tensor's are, contents unspecified.
    #[inline]
    pub(crate) fn beside(&self, dims: &[usize]) -> Result<Self> {
        match self.gpu()? {
            Some(gpu) => Self::on_gpu(&gpu, self.dtype(), dims),
            None => Ok(Self::scratch(dims)),
        }
    }

    /// Where the numbers are and what they are.
    #[inline]
    pub fn place(&self) -> Place {
        match &self.data {
            Data::Gpu(memory, dtype) => Place {
                device: Device::Cuda(memory.device()),
                dtype: *dtype,
            },
            Data::F32(_) | Data::Ids(_) => Place::default(),
        }
    }

    /// What the numbers are.
    pub(crate) fn dtype(&self) -> DType {
        self.place().dtype
    }

    /// The GPU that the numbers are on.
    #[inline]
    pub(crate) fn gpu(&self) -> Result<Option<Rc<Gpu>>> {
        match &self.data {
            Data::Gpu(memory, _) => Gpu::of(memory.device()).map(Some),
            Data::F32(_) | Data::Ids(_) => Ok(None),
        }
    }

    /// The device memory of the numbers.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn device_memory(&self) -> &Memory {
        match &self.data {
            Data::Gpu(memory, _) => memory,
            Data::F32(_) | Data::Ids(_) => panic!("a tensor on a GPU was expected, got one on the host"),
        }
    }

    /// Where the numbers lie on their GPU.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn at(&self) -> Ptr {
        self.device_memory().at()
    }

    /// Where the numbers lie on their GPU, to be written; copies them first when another tensor shares them.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn at_mut(&mut self, gpu: &Gpu) -> Result<Ptr> {
        if self.device_memory().is_shared() {
            let copy = self.beside(self.dims())?;
            gpu.copy(copy.at(), self.at(), self.bytes() as usize)?;
            *self = copy;
        }
        Ok(self.at())
    }

    /// The same numbers in another place, from where they may be sent to another rank. Ids stay where they
    /// are, on the host. To the host it waits until they are there.
    ///
    /// # Errors
    /// When there is no such device, it has not as much memory, or it cannot take such numbers.
    #[inline]
    pub fn to(self, place: Place) -> Result<Self> {
        if self.shape.kind() == Kind::Ids || self.place() == place {
            return Ok(self);
        }
        if let Some(gpu) = self.gpu()? {
            // Perhaps a transfer fills it, which has marked it: the mark below must not hide that.
            gpu.wait_ready(self.device_memory())?;
        }
        self.mark_ready()?;
        let there = self.arrive(place)?;
        there.mark_ready()?;
        Ok(there)
    }

    /// Another thread may have it from here on: what this thread has put on the GPU's stream until now makes it what it is.
    #[inline]
    pub(crate) fn mark_ready(&self) -> Result<()> {
        match self.gpu()? {
            Some(gpu) => gpu.mark_ready(self.device_memory()),
            None => Ok(()),
        }
    }

    /// A tensor that another thread gave and [marked](Self::mark_ready), in this place. To the host it waits until the numbers are there.
    #[inline]
    pub(crate) fn arrive(self, place: Place) -> Result<Self> {
        if self.shape.kind() == Kind::Ids {
            return Ok(self);
        }
        match (self.place().device, place.device) {
            (Device::Cpu, Device::Cpu) => Ok(self),
            _ => cuda::arrived(self, place),
        }
    }

    /// Numbers that lie in this memory.
    pub(crate) fn in_memory(memory: Memory, dtype: DType, dims: &[usize]) -> Self {
        Self {
            shape: Shape::f32(dims),
            data: Data::Gpu(memory, dtype),
        }
    }

    /// The device memory alone.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn into_memory(self) -> Memory {
        match self.data {
            Data::Gpu(memory, _) => memory,
            Data::F32(_) | Data::Ids(_) => panic!("a tensor on a GPU was expected, got one on the host"),
        }
    }

    /// The kind and dimensions.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }

    /// The numbers, row-major.
    ///
    /// # Panics
    /// On a tensor of ids, and on one on a GPU; shapes are checked before a stage runs ([`crate::Stage::output_shape`]), and layers say where they run
    /// ([`crate::Layer::runs_on_gpus`]).
    pub fn f32(&self) -> &[f32] {
        match &self.data {
            Data::F32(buffer) => buffer,
            _ => panic!("numbers on the host were expected, got {self:?}"),
        }
    }

    /// The numbers, to be written; copies them first when another tensor shares them.
    ///
    /// # Panics
    /// On a tensor of ids, and on one on a GPU.
    pub fn f32_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            Data::F32(buffer) => buffer,
            _ => panic!(
                "numbers on the host were expected, got another tensor of {}",
                self.shape
            ),
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

    /// The ids, to be written; copies them first when another tensor shares them.
    ///
    /// # Panics
    /// On a tensor of numbers.
    pub fn ids_mut(&mut self) -> &mut [u32] {
        match &mut self.data {
            Data::Ids(ids) => ids,
            _ => panic!("a tensor of ids was expected, got {}", self.shape),
        }
    }

    /// The same elements under other dimensions.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(self, dims: &[usize]) -> Result<Self> {
        let shape = Shape::new(self.shape.kind(), dims);
        check_count(&shape, self.shape.count())?;
        Ok(Self {
            shape,
            data: self.data,
        })
    }

    /// A number that two tensors share exactly when they share memory.
    pub fn memory(&self) -> usize {
        match &self.data {
            Data::F32(buffer) => buffer.address(),
            Data::Ids(ids) => ids.address(),
            Data::Gpu(memory, _) => memory.address(),
        }
    }
}

fn check_count(shape: &Shape, count: usize) -> Result<()> {
    if shape.count() == count {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{count} elements do not fill {shape}, which has {}",
        shape.count()
    )))
}

impl Bytes for Tensor {
    fn bytes(&self) -> u64 {
        (self.dtype().bytes() * self.shape.count()) as u64
    }
}

impl PartialEq for Tensor {
    /// Numbers on a GPU are equal only to themselves.
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape
            && match (&self.data, &other.data) {
                (Data::F32(a), Data::F32(b)) => a[..] == b[..],
                (Data::Ids(a), Data::Ids(b)) => a[..] == b[..],
                (Data::Gpu(a, _), Data::Gpu(b, _)) => a.address() == b.address(),
                _ => false,
            }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place().device {
            Device::Cpu => write!(f, "Tensor({})", self.shape),
            device => write!(f, "Tensor({} on {device})", self.shape),
        }
    }
}
