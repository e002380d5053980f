//! A matrix product on a GPU.

use std::fmt;

use crate::cuda::driver::Ptr;
use crate::device::DType;

/// The scratch memory that algorithms may use, in bytes. NVIDIA recommends this much for Hopper (cuBLAS
/// documentation, `cublasSetWorkspace`).
pub(crate) const WORKSPACE: usize = 32 << 20;

/// The alignment of the start of a block of memory, in bytes.
pub(crate) const ALIGNMENT: u64 = 256;

/// `out = start + scale left right` for row-major matrices: `left` is `[rows, inner]`, `right` is `[inner,
/// columns]`, and `out` is `[rows, columns]`. `left` and `out` may be some columns of wider matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    /// The rows of `left` and `out`.
    pub(crate) rows: usize,
    /// The length of the sums.
    pub(crate) inner: usize,
    /// The columns of `right` and `out`.
    pub(crate) columns: usize,
    /// Whether `left` lies in memory as `[inner, rows]`.
    pub(crate) left_turned: bool,
    /// Whether `right` lies in memory as `[columns, inner]`.
    pub(crate) right_turned: bool,
    /// The number format of `left` and `right`. Sums are always `f32`.
    pub(crate) dtype: DType,
    /// The number format of `out` and of a bias.
    pub(crate) out: DType,
    /// What the sums start with.
    pub(crate) start: Start,
    /// Whether a bias is added to each row.
    pub(crate) bias: bool,
    /// The factor of the sums.
    pub(crate) scale: Scale,
    /// The width of the matrix in memory that `left` is some columns of. `None`: it is the whole matrix.
    pub(crate) left_of: Option<usize>,
    /// The width of the matrix that `out` is some columns of.
    pub(crate) out_of: Option<usize>,
}

/// A factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scale(u32);

impl Scale {
    pub(crate) const ONE: Self = Self::of(1.0);

    pub(crate) const fn of(factor: f32) -> Self {
        Self(factor.to_bits())
    }

    pub(crate) fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

/// What the product is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    /// Nothing.
    Zero,
    /// The old contents of the output, or another matrix.
    Old,
}

impl Start {
    /// For a product that starts a sum, or adds to one.
    pub(crate) fn of_sum(is_new: bool) -> Self {
        if is_new { Self::Zero } else { Self::Old }
    }
}

/// The addresses of what a product adds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    /// A bias: `columns` numbers in the output's format.
    pub(crate) bias: Option<Ptr>,
    /// What the sums start with, if it is not the output's old contents: a matrix like the output.
    pub(crate) onto: Option<Ptr>,
}

impl Product {
    /// The product of two whole matrices as they lie, in their number format: of sizes `[rows, inner,
    /// columns]`.
    pub(crate) fn new([rows, inner, columns]: [usize; 3], dtype: DType) -> Self {
        Self {
            rows,
            inner,
            columns,
            left_turned: false,
            right_turned: false,
            dtype,
            out: dtype,
            start: Start::Zero,
            bias: false,
            scale: Scale::ONE,
            left_of: None,
            out_of: None,
        }
    }

    /// The bits that are set in the size of any row in memory, in bytes.
    pub(super) fn row_bits(self) -> u64 {
        let left = if self.left_turned { self.rows } else { self.inner };
        let right = if self.right_turned { self.inner } else { self.columns };
        let (left, out) = (self.left_of.unwrap_or(left), self.out_of.unwrap_or(self.columns));
        (((left | right) * self.dtype.bytes()) | (out * self.out.bytes())) as u64
    }

    /// How many numbers there are from the first of `left` to the end of its last row in memory.
    pub(super) fn left_numbers(self) -> usize {
        let [rows, width] = if self.left_turned { [self.inner, self.rows] } else { [self.rows, self.inner] };
        rows * self.left_of.unwrap_or(width)
    }

    /// As [`Product::left_numbers`], for `out`.
    pub(super) fn out_numbers(self) -> usize {
        self.rows * self.out_of.unwrap_or(self.columns)
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |turned, rows, columns| match turned {
            true => format!("[{columns}, {rows}] turned"),
            false => format!("[{rows}, {columns}]"),
        };
        let left = side(self.left_turned, self.rows, self.inner);
        let right = side(self.right_turned, self.inner, self.columns);
        let start = match self.start {
            Start::Zero => "",
            Start::Old => " on top of what is there",
        };
        let bias = if self.bias { " with a bias" } else { "" };
        write!(f, "the product of {} {left} and {right} in {}{start}{bias}", self.dtype, self.out)?;
        if self.scale != Scale::ONE {
            write!(f, " times {}", self.scale.get())?;
        }
        for (of, name) in [(self.left_of, "first"), (self.out_of, "result")] {
            if let Some(width) = of {
                write!(f, ", the {name} in rows of {width}")?;
            }
        }
        Ok(())
    }
}
