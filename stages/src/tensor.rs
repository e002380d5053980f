//! Dense row-major tensors on the CPU: `f32` numbers or `u32` ids (tokens, classes).

use std::fmt;

use crate::error::{Error, Result};
use crate::pool::Buffer;
use crate::stage::Bytes;

/// The most dimensions a tensor can have.
pub const MAX_DIMS: usize = 4;

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 32-bit floating-point numbers.
    F32,
    /// 32-bit unsigned ids: tokens or classes.
    Ids,
}

/// The kind and the dimensions of a tensor, outermost first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    kind: Kind,
    len: u8,
    dims: [usize; MAX_DIMS],
}

impl Shape {
    /// A shape of the given kind.
    ///
    /// # Panics
    /// With more than [`MAX_DIMS`] dimensions.
    pub fn new(kind: Kind, dims: &[usize]) -> Self {
        assert!(
            dims.len() <= MAX_DIMS,
            "at most {MAX_DIMS} dimensions, got {dims:?}"
        );
        let mut all = [0; MAX_DIMS];
        all[..dims.len()].copy_from_slice(dims);
        Self {
            kind,
            len: dims.len() as u8,
            dims: all,
        }
    }

    /// A shape of `f32` numbers.
    pub fn f32(dims: &[usize]) -> Self {
        Self::new(Kind::F32, dims)
    }

    /// A shape of ids.
    pub fn ids(dims: &[usize]) -> Self {
        Self::new(Kind::Ids, dims)
    }

    /// What the tensor holds.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.len as usize]
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.dims().iter().product()
    }

    /// The innermost dimension; 1 for a scalar.
    pub fn last(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// The product of all dimensions but the innermost.
    pub fn rows(&self) -> usize {
        self.dims()
            .split_last()
            .map_or(1, |(_, outer)| outer.iter().product())
    }

    /// The same dimensions with another outermost one.
    ///
    /// # Panics
    /// On a scalar.
    #[must_use]
    pub fn with_first(mut self, first: usize) -> Self {
        assert!(self.len > 0, "a scalar has no dimensions");
        self.dims[0] = first;
        self
    }

    /// The same dimensions with another innermost one.
    ///
    /// # Panics
    /// On a scalar.
    #[must_use]
    pub fn with_last(mut self, last: usize) -> Self {
        self.dims[self.len as usize - 1] = last;
        self
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::F32 => "f32",
            Kind::Ids => "ids",
        };
        write!(f, "{kind}{:?}", self.dims())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

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
    /// On a tensor of ids; shapes are checked before a stage runs ([`crate::Stage::output_shape`]).
    pub fn f32(&self) -> &[f32] {
        match &self.data {
            Data::F32(buffer) => buffer,
            Data::Ids(_) => panic!("a tensor of numbers was expected, got {}", self.shape),
        }
    }

    /// The numbers, to be written; copies them first when another tensor shares them.
    ///
    /// # Panics
    /// On a tensor of ids.
    pub fn f32_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            Data::F32(buffer) => buffer,
            Data::Ids(_) => panic!("a tensor of numbers was expected, got {}", self.shape),
        }
    }

    /// The ids, row-major.
    ///
    /// # Panics
    /// On a tensor of numbers.
    pub fn ids(&self) -> &[u32] {
        match &self.data {
            Data::Ids(ids) => ids,
            Data::F32(_) => panic!("a tensor of ids was expected, got {}", self.shape),
        }
    }

    /// The ids, to be written; copies them first when another tensor shares them.
    ///
    /// # Panics
    /// On a tensor of numbers.
    pub fn ids_mut(&mut self) -> &mut [u32] {
        match &mut self.data {
            Data::Ids(ids) => ids,
            Data::F32(_) => panic!("a tensor of ids was expected, got {}", self.shape),
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
        4 * self.shape.count() as u64
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.shape == other.shape
            && match (&self.data, &other.data) {
                (Data::F32(a), Data::F32(b)) => a[..] == b[..],
                (Data::Ids(a), Data::Ids(b)) => a[..] == b[..],
                _ => false,
            }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.shape)
    }
}
