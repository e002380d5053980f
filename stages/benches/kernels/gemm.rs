//! The `gemm` crate, for comparison with our products.

use gemm_common::Parallelism;

/// An operand with contiguous rows, as it is or transposed.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) columns: usize,
    pub(crate) turned: bool,
}

impl<'a> Operand<'a> {
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        Self { numbers, columns, turned: false }
    }

    pub(crate) fn t(self) -> Self {
        Self { turned: !self.turned, ..self }
    }

    fn rows_and_columns(self) -> (usize, usize) {
        let rows = self.numbers.len() / self.columns;
        if self.turned { (self.columns, rows) } else { (rows, self.columns) }
    }

    /// The distance between columns, and the distance between rows.
    fn strides(self) -> (isize, isize) {
        let stride = self.columns as isize;
        if self.turned { (stride, 1) } else { (1, stride) }
    }
}

/// `out = a b`, or `out += a b`.
#[allow(unsafe_code, reason = "the library takes pointers")]
pub(crate) fn multiply(out: &mut [f32], add: bool, a: Operand<'_>, b: Operand<'_>) {
    let ((rows, depth), (b_rows, columns)) = (a.rows_and_columns(), b.rows_and_columns());
    assert_eq!((depth, rows * columns), (b_rows, out.len()));
    let ((a_cs, a_rs), (b_cs, b_rs)) = (a.strides(), b.strides());
    // SAFETY: sizes and strides fit the slices, as asserted, and `out` is borrowed exclusively.
    unsafe {
        // It prefers columns, so it gets the product of the transposed operands, as in the crate `gemm`.
        // That one has products of other numbers too, and takes long to build.
        gemm_f32::gemm::f32::get_gemm_fn()(
            columns,
            rows,
            depth,
            out.as_mut_ptr(),
            columns as isize,
            1,
            add,
            b.numbers.as_ptr(),
            b_rs,
            b_cs,
            a.numbers.as_ptr(),
            a_rs,
            a_cs,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
