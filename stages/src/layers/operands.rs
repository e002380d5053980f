//! The products of a linear layer on the CPU, and their packed operands.

use half::bf16;

use crate::cpu::halves::{self, Panels};
use crate::cpu::matmul::{self, Packed, Right, Start, matmul};
use crate::cpu::matrix::Matrix;
use crate::cpu::real::{Real, in_format};
use crate::parameter::Parameter;
use crate::tensor::Tensor;

/// From this many rows in a micro-batch, the layer keeps no packed copy of weights that lie in the product's
/// order. There it would save almost no time (`benches/RESULTS.md`), and it would need memory.
const MANY_ROWS: usize = 512;

/// How a weight matrix lies in memory and in checkpoints. The layer computes the same function with both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// `[inputs, outputs]`, as in GPT-2's Conv1D.
    InOut,
    /// `[outputs, inputs]`, as in PyTorch's Linear.
    #[default]
    OutIn,
}

/// The weights as `[inputs, outputs]`.
pub(super) fn matrix(weight: &Parameter, layout: Layout) -> Matrix<'_> {
    let stored = Matrix::new(&weight.value, weight.dims()[1]);
    match layout {
        Layout::InOut => stored,
        Layout::OutIn => stored.t(),
    }
}

/// Weights in the order of a product, kept until they change. A layer computes in one number format, so it
/// has one of the two at most.
#[derive(Debug, Default)]
pub(super) struct Operand {
    packed: Option<Packed>,
    panels: Option<Panels>,
}

impl Operand {
    /// `out = start + rows weight`, in the number format of the rows.
    pub(super) fn multiply(&mut self, out: &mut Tensor, start: Start<'_>, rows: &Tensor, weight: Matrix<'_>) {
        in_format!(rows.dtype(), N => {
            N::multiply(self, out.numbers_mut(), start, Matrix::new(rows.numbers(), weight.rows()), weight);
        });
    }

    /// The weights for a product of `f32` with this many rows: packed only for this product, or packed once
    /// and kept until the weights change.
    fn right<'a>(&'a mut self, weight: Matrix<'a>, rows: usize) -> Right<'a> {
        if rows >= MANY_ROWS && !weight.is_turned() {
            Right::Matrix(weight)
        } else {
            Right::Packed(self.packed.get_or_insert_with(|| Packed::new(weight)))
        }
    }
}

/// `out = start + a^T b`, in `f32`. Both operands have the same number format and as many rows.
pub(super) fn add_turned_product(out: &mut [f32], start: Start<'_>, a: &Tensor, b: &Tensor) {
    let columns = [a, b].map(|operand| operand.shape().last());
    in_format!(a.dtype(), N => {
        let (a, b) = (Matrix::new(a.numbers(), columns[0]), Matrix::new(b.numbers(), columns[1]));
        N::add_turned_product(out, start, a, b);
    });
}

/// A number format in which the products of a linear layer are computed.
pub(super) trait Factor: Real {
    /// `out = start + rows weight`.
    fn multiply(
        operand: &mut Operand,
        out: &mut [Self],
        start: Start<'_>,
        rows: Matrix<'_, Self>,
        weight: Matrix<'_>,
    );

    /// `out = start + a^T b`.
    fn add_turned_product(out: &mut [f32], start: Start<'_>, a: Matrix<'_, Self>, b: Matrix<'_, Self>);
}

impl Factor for f32 {
    fn multiply(
        operand: &mut Operand,
        out: &mut [Self],
        start: Start<'_>,
        rows: Matrix<'_, Self>,
        weight: Matrix<'_>,
    ) {
        matmul(out, start, rows, operand.right(weight, rows.rows()));
    }

    fn add_turned_product(out: &mut [f32], start: Start<'_>, a: Matrix<'_, Self>, b: Matrix<'_, Self>) {
        matmul(out, start, a.t(), Right::Matrix(b));
    }
}

impl Factor for bf16 {
    fn multiply(
        operand: &mut Operand,
        out: &mut [Self],
        start: Start<'_>,
        rows: Matrix<'_, Self>,
        weight: Matrix<'_>,
    ) {
        let panels = operand.panels.get_or_insert_with(|| Panels::new(weight));
        halves::product(out, start, rows, halves::Right::Panels(panels));
    }

    fn add_turned_product(out: &mut [f32], start: Start<'_>, a: Matrix<'_, Self>, b: Matrix<'_, Self>) {
        halves::product(out, start, a.t(), halves::Right::Matrix(b));
    }
}

/// Whether a micro-batch of this many rows is added, on the CPU, to another gradient group's sum in place.
pub(crate) fn adds_in_place(rows: usize) -> bool {
    matmul::is_added_up_first(rows)
}

/// How many numbers the packed copies of a weight hold, for forward and backward of this many rows. It
/// follows the same rule as [`Operand::right`].
pub(crate) fn packed_weights([inputs, outputs]: [usize; 2], layout: Layout, rows: usize) -> usize {
    let few = rows < MANY_ROWS;
    let forward = few || layout == Layout::OutIn;
    let backward = few || layout == Layout::InOut;
    usize::from(forward) * Packed::count(inputs, outputs)
        + usize::from(backward) * Packed::count(outputs, inputs)
}

/// How many numbers the products of a linear layer need while they run. Backward-weight needs the most.
pub(crate) fn product_scratch([inputs, outputs]: [usize; 2], layout: Layout, rows: usize) -> usize {
    match layout {
        Layout::InOut => matmul::scratch(inputs, rows),
        Layout::OutIn => matmul::scratch(outputs, rows),
    }
}

/// As [`packed_weights`], for `bf16`.
pub(crate) fn packed_halves([inputs, outputs]: [usize; 2]) -> usize {
    Panels::count(inputs, outputs) + Panels::count(outputs, inputs)
}

/// As [`product_scratch`], for `bf16`.
pub(crate) fn half_scratch([inputs, outputs]: [usize; 2], layout: Layout, rows: usize) -> usize {
    match layout {
        Layout::InOut => halves::scratch(inputs, rows),
        Layout::OutIn => halves::scratch(outputs, rows),
    }
}
