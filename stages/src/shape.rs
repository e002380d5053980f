//! The shapes of tensors.

use std::fmt;

/// The most dimensions a tensor can have.
pub const MAX_DIMS: usize = 4;

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Kind {
    /// Floating-point numbers: `f32` on the host, the number format of the stage's [`Place`](crate::Place) on
    /// a GPU.
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
        assert!(dims.len() <= MAX_DIMS, "at most {MAX_DIMS} dimensions, got {dims:?}");
        let mut all = [0; MAX_DIMS];
        all[..dims.len()].copy_from_slice(dims);
        Self { kind, len: dims.len() as u8, dims: all }
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
        self.dims().split_last().map_or(1, |(_, outer)| outer.iter().product())
    }

    /// The same shape with another outermost dimension.
    ///
    /// # Panics
    /// On a scalar.
    #[must_use]
    pub fn with_first(mut self, first: usize) -> Self {
        assert!(self.len > 0, "a scalar has no dimensions");
        self.dims[0] = first;
        self
    }

    /// The same shape with another innermost dimension.
    ///
    /// # Panics
    /// On a scalar.
    #[must_use]
    pub fn with_last(mut self, last: usize) -> Self {
        self.dims[self.len as usize - 1] = last;
        self
    }
}

/// A shape as it is serialized: a kind and a list of dimensions.
#[cfg(feature = "serde")]
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Shape")]
struct ShapeForm {
    kind: Kind,
    dims: smallvec::SmallVec<[usize; MAX_DIMS]>,
}

#[cfg(feature = "serde")]
impl serde::Serialize for Shape {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = ShapeForm { kind: self.kind, dims: self.dims().into() };
        form.serialize(serializer)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Shape {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ShapeForm { kind, dims } = ShapeForm::deserialize(deserializer)?;
        if dims.len() > MAX_DIMS {
            let expected = format!("at most {MAX_DIMS} dimensions");
            return Err(serde::de::Error::invalid_length(dims.len(), &expected.as_str()));
        }
        Ok(Self::new(kind, &dims))
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
