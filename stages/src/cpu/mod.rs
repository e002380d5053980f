//! Arithmetic on the CPU: matrix products and vectorised loops. The threads of a rank share the work.
//!
//! Loops are compiled once for each level of SIMD, and the level is chosen at run time. Sums run over a fixed
//! number of lanes, so a result depends only on its input: not on the threads, the stage or the memory that
//! it is in.

pub(crate) mod activation;
pub(crate) mod adafactor;
pub(crate) mod adamw;
pub(crate) mod attention;
pub(crate) mod bf16_kernels;
pub(crate) mod channels;
pub(crate) mod columns;
pub(crate) mod conv;
pub(crate) mod dropout;
pub(crate) mod elementwise;
pub(crate) mod experts;
pub(crate) mod gated;
pub(crate) mod gelu;
pub(crate) mod head_norm;
pub(crate) mod lanes;
pub(crate) mod lion;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod matrix;
pub(crate) mod max_pool;
pub(crate) mod muon;
pub(crate) mod norm;
pub(crate) mod parts;
mod prefetch;
pub(crate) mod real;
pub(crate) mod rotary;
mod row_sums;
pub(crate) mod sgd;
pub(crate) mod sigmoid;
pub(crate) mod small;
pub(crate) mod softmax;
pub(crate) mod squared_error;
pub(crate) mod sum_of_squares;
pub(crate) mod tanh;
mod tile;
pub(crate) mod unfold;
pub(crate) mod vector;
