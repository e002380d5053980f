//! Dense row-major tensors: numbers on the host or on a GPU, or ids (tokens, classes) on the host.

pub(crate) mod access;
pub(crate) mod arithmetic;
mod blocks;
pub(crate) mod moved;
pub(crate) mod numbers;
pub(crate) mod wires;

use std::fmt;
use std::rc::Rc;

use half::bf16;

use crate::cuda::launch::Arg;
use crate::cuda::{Gpu, Memory, Ptr};
use crate::device::{DType, Device, Place};
use crate::error::{Error, OutOfMemory, Result};
use crate::pool::Buffer;
use crate::shape::Shape;

/// A dense row-major tensor. Clones share the memory, and writing to a shared tensor copies it first.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    data: Data,
}

#[derive(Clone)]
enum Data {
    F32(Buffer),
    Bf16(Buffer<bf16>),
    Ids(Buffer<u32>),
    Gpu(Memory, DType),
    /// They were on a GPU and are elsewhere: an [`Offloaded`](crate::Offloaded) has them, under this number.
    Away(usize, DType),
}

impl Tensor {
    /// An `f32` tensor from the current thread's pool, for outputs that are overwritten completely. Its
    /// contents are unspecified.
    pub fn scratch(dims: &[usize]) -> Self {
        let shape = Shape::f32(dims);
        Self { shape, data: Data::F32(Buffer::pooled(shape.count())) }
    }

    /// A tensor of ids from the current thread's pool, for a data source to fill. Its contents are
    /// unspecified.
    pub fn scratch_ids(dims: &[usize]) -> Self {
        let shape = Shape::ids(dims);
        Self { shape, data: Data::Ids(Buffer::pooled(shape.count())) }
    }

    /// As [`Tensor::scratch`], in `bf16`.
    pub fn scratch_bf16(dims: &[usize]) -> Self {
        let shape = Shape::f32(dims);
        Self { shape, data: Data::Bf16(Buffer::pooled(shape.count())) }
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
        Ok(Self { shape, data: Data::F32(Buffer::from(&numbers[..])) })
    }

    /// A tensor of ids in row-major order.
    ///
    /// # Errors
    /// When the ids do not fill the dimensions exactly.
    pub fn from_ids(dims: &[usize], ids: Vec<u32>) -> Result<Self> {
        let shape = Shape::ids(dims);
        check_count(&shape, ids.len())?;
        Ok(Self { shape, data: Data::Ids(Buffer::from(&ids[..])) })
    }

    /// As [`Tensor::scratch`], but too little memory is an error and not a panic.
    #[inline]
    pub(crate) fn on_host(dims: &[usize]) -> Result<Self> {
        let shape = Shape::f32(dims);
        let buffer = Buffer::try_pooled(shape.count());
        Ok(Self { shape, data: Data::F32(buffer.ok_or_else(|| OutOfMemory::on_host::<f32>(shape.count()))?) })
    }

    /// As [`Tensor::on_host`], in this format.
    #[inline]
    pub(crate) fn on_host_in(dtype: DType, dims: &[usize]) -> Result<Self> {
        if dtype == DType::F32 {
            return Self::on_host(dims);
        }
        let shape = Shape::f32(dims);
        let buffer = Buffer::try_pooled(shape.count());
        Ok(Self {
            shape,
            data: Data::Bf16(buffer.ok_or_else(|| OutOfMemory::on_host::<bf16>(shape.count()))?),
        })
    }

    /// A tensor on a GPU. Its contents are unspecified.
    pub(crate) fn on_gpu(gpu: &Gpu, dtype: DType, dims: &[usize]) -> Result<Self> {
        let count: usize = dims.iter().product();
        let memory = gpu.memory_of(count * dtype.bytes())?;
        Ok(Self::in_memory(memory, dtype, dims))
    }

    /// A tensor with other dimensions in the same place as this one. Its contents are unspecified.
    #[inline]
    pub(crate) fn beside(&self, dims: &[usize]) -> Result<Self> {
        match self.gpu()? {
            Some(gpu) => Self::on_gpu(&gpu, self.dtype(), dims),
            None => Self::on_host_in(self.dtype(), dims),
        }
    }

    /// As [`Tensor::beside`], in memory with room for this many rows, so that the same memory serves tensors
    /// with other numbers of rows too.
    pub(crate) fn beside_with_room(&self, dims: &[usize], rows: usize) -> Result<Self> {
        let (shape, dtype) = (Shape::f32(dims), self.dtype());
        let (count, room) = (shape.count(), rows.max(shape.rows()) * shape.last());
        let data = match (self.gpu()?, dtype) {
            (Some(gpu), _) => Some(Data::Gpu(gpu.memory_of(room * dtype.bytes())?, dtype)),
            (None, DType::F32) => Buffer::try_pooled_in(count, room).map(Data::F32),
            (None, DType::Bf16) => Buffer::try_pooled_in(count, room).map(Data::Bf16),
        };
        let lack = || match dtype {
            DType::F32 => OutOfMemory::on_host::<f32>(room),
            DType::Bf16 => OutOfMemory::on_host::<bf16>(room),
        };
        Ok(Self { shape, data: data.ok_or_else(lack)? })
    }

    /// A tensor of `f32` in the same place as this one. Its contents are unspecified.
    #[inline]
    pub(crate) fn f32_beside(&self, dims: &[usize]) -> Result<Self> {
        match self.gpu()? {
            Some(gpu) => Self::on_gpu(&gpu, DType::F32, dims),
            None => Self::on_host(dims),
        }
    }

    /// Where the numbers are, and their format.
    #[inline]
    pub fn place(&self) -> Place {
        match &self.data {
            Data::Gpu(memory, dtype) => Place { device: Device::Cuda(memory.device()), dtype: *dtype },
            Data::Bf16(_) => Place { device: Device::Cpu, dtype: DType::Bf16 },
            Data::Away(_, dtype) => Place { device: Device::Cpu, dtype: *dtype },
            Data::F32(_) | Data::Ids(_) => Place::default(),
        }
    }

    /// The format of the numbers.
    pub(crate) fn dtype(&self) -> DType {
        self.place().dtype
    }

    /// The GPU that the numbers are on.
    #[inline]
    pub(crate) fn gpu(&self) -> Result<Option<Rc<Gpu>>> {
        match &self.data {
            Data::Gpu(memory, _) => Gpu::of(memory.device()).map(Some),
            Data::F32(_) | Data::Bf16(_) | Data::Ids(_) | Data::Away(..) => Ok(None),
        }
    }

    /// An empty tensor, which carries the inner dimensions of this one to backward.
    pub(crate) fn without_rows(&self) -> Self {
        Self::scratch(self.shape.with_first(0).dims())
    }

    /// The device memory of the numbers.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn device_memory(&self) -> &Memory {
        match &self.data {
            Data::Gpu(memory, _) => memory,
            _ => panic!("a tensor on a GPU was expected, got one on the host"),
        }
    }

    /// Where the numbers lie on their GPU.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn at(&self) -> Ptr {
        self.device_memory().at()
    }

    /// Where the numbers lie on their GPU, for writing. If another tensor shares them, copies them first. If
    /// another thread had a share, later work waits for what that thread has queued.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn at_mut(&mut self, gpu: &Gpu) -> Result<Ptr> {
        if self.device_memory().is_shared() {
            let copy = self.beside(self.dims())?;
            gpu.copy(copy.at(), self.at(), self.bytes() as usize)?;
            *self = copy;
        } else {
            self.device_memory().block().make_wait(gpu.stream())?;
        }
        Ok(self.at())
    }

    /// A tensor of the numbers in this memory.
    pub(crate) fn in_memory(memory: Memory, dtype: DType, dims: &[usize]) -> Self {
        Self { shape: Shape::f32(dims), data: Data::Gpu(memory, dtype) }
    }

    /// The device memory, without the shape.
    ///
    /// # Panics
    /// On a tensor of the host.
    pub(crate) fn into_memory(self) -> Memory {
        match self.data {
            Data::Gpu(memory, _) => memory,
            _ => panic!("a tensor on a GPU was expected, got one on the host"),
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

    /// The same elements with other dimensions.
    ///
    /// # Errors
    /// When the number of elements differs.
    pub fn reshape(self, dims: &[usize]) -> Result<Self> {
        let shape = Shape::new(self.shape.kind(), dims);
        check_count(&shape, self.shape.count())?;
        Ok(Self { shape, data: self.data })
    }

    /// An identity of the memory: equal for two tensors exactly if they share memory.
    pub fn memory(&self) -> usize {
        match &self.data {
            Data::F32(buffer) => buffer.address(),
            Data::Bf16(buffer) => buffer.address(),
            Data::Ids(ids) => ids.address(),
            Data::Gpu(memory, _) => memory.address(),
            Data::Away(number, _) => *number,
        }
    }

    /// Takes the memory of a tensor on a GPU, whose numbers are then elsewhere, under this number. `None` for
    /// any other tensor, which stays as it is.
    pub(crate) fn vacate(&mut self, number: usize) -> Option<Memory> {
        let Data::Gpu(_, dtype) = self.data else {
            return None;
        };
        match std::mem::replace(&mut self.data, Data::Away(number, dtype)) {
            Data::Gpu(memory, _) => Some(memory),
            _ => None,
        }
    }

    /// The number under which the numbers of the tensor are elsewhere.
    pub(crate) fn vacant(&self) -> Option<usize> {
        match self.data {
            Data::Away(number, _) => Some(number),
            _ => None,
        }
    }

    /// Gives a tensor its numbers again, in this memory.
    pub(crate) fn occupy(&mut self, memory: Memory) {
        self.data = Data::Gpu(memory, self.dtype());
    }
}

impl From<&Tensor> for Arg {
    /// Where the numbers lie on their GPU.
    ///
    /// # Panics
    /// On a tensor of the host.
    fn from(tensor: &Tensor) -> Self {
        tensor.at().into()
    }
}

fn check_count(shape: &Shape, count: usize) -> Result<()> {
    if shape.count() == count {
        return Ok(());
    }
    Err(Error::new(format!("{count} elements do not fill {shape}, which has {}", shape.count())))
}

impl Bytes for Tensor {
    fn bytes(&self) -> u64 {
        match self.vacant() {
            Some(_) => 0,
            None => (self.dtype().bytes() * self.shape.count()) as u64,
        }
    }

    fn visit_tensors(&mut self, visit: &mut dyn FnMut(&mut Tensor)) {
        visit(self);
    }
}

impl PartialEq for Tensor {
    /// Tensors on a GPU are equal only if they share memory.
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape
            && match (&self.data, &other.data) {
                (Data::F32(a), Data::F32(b)) => a[..] == b[..],
                (Data::Bf16(a), Data::Bf16(b)) => a[..] == b[..],
                (Data::Ids(a), Data::Ids(b)) => a[..] == b[..],
                (Data::Gpu(a, _), Data::Gpu(b, _)) => a.address() == b.address(),
                _ => false,
            }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place().device {
            Device::Cpu if self.dtype() == DType::Bf16 => write!(f, "Tensor({} in bf16)", self.shape),
            Device::Cpu => write!(f, "Tensor({})", self.shape),
            device => write!(f, "Tensor({} on {device})", self.shape),
        }
    }
}

/// Memory that a value holds.
pub trait Bytes {
    /// The size in bytes.
    fn bytes(&self) -> u64;

    /// Calls `visit` with every tensor that it holds, in an order that stays the same. A tensor that is on a
    /// GPU can then be [offloaded](crate::Offloaded). The default shows none, so that nothing leaves.
    fn visit_tensors(&mut self, _visit: &mut dyn FnMut(&mut Tensor)) {}
}

impl Bytes for () {
    fn bytes(&self) -> u64 {
        0
    }
}
