//! Arithmetic on the CPU: matrix products and vectorised loops. The threads of a rank share the work.
//!
//! Loops are compiled once for each level of SIMD, and the level is chosen at run time. Sums run over a fixed
//! number of lanes, so a result depends only on its input: not on the threads, the stage or the memory that
//! it is in.

pub(crate) mod bf16_kernels;
pub(crate) mod coded;
pub(crate) mod coded_row;
pub(crate) mod columns;
pub(crate) mod depth;
pub(crate) mod elementwise;
pub(crate) mod lanes;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod matrix;
pub(crate) mod parts;
pub(crate) mod prefetch;
pub(crate) mod real;
pub(crate) mod row_sums;
pub(crate) mod small;
pub(crate) mod softmax;
pub(crate) mod tile;
pub(crate) mod vector;
