//! A matrix product on a GPU.

use std::fmt;

use crate::cuda::driver::Ptr;
use crate::device::DType;

/// The scratch memory that algorithms may use, in bytes. NVIDIA recommends this much for Hopper (cuBLAS
/// documentation, `cublasSetWorkspace`).
pub(crate) const WORKSPACE: usize = 32 << 20;

/// The alignment of the start of a block of memory, in bytes.
pub(crate) const ALIGNMENT: u64 = 256;

/// `out = start + left right` for row-major matrices: `left` is `[rows, inner]`, `right` is `[inner,
/// columns]`, and `out` is `[rows, columns]`.
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
    /// The bits that are set in the size of any row in memory, in bytes.
    pub(super) fn row_bits(self) -> u64 {
        let left = if self.left_turned { self.rows } else { self.inner };
        let right = if self.right_turned { self.inner } else { self.columns };
        (((left | right) * self.dtype.bytes()) | (self.columns * self.out.bytes())) as u64
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
        write!(f, "the product of {} {left} and {right} in {}{start}{bias}", self.dtype, self.out)
    }
}
