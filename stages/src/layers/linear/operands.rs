//! The products of a linear layer on the CPU, and their packed operands.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use crate::cpu::bf16_kernels::{self, Panels};
use crate::cpu::depth::{BLOCK_DEPTH, DepthGroups};
use crate::cpu::matmul::{self, Packed, Right, Start, matmul};
use crate::cpu::matrix::Matrix;
use crate::cpu::parts::{By, cut};
use crate::cpu::real::{Real, convert, in_format};
use crate::cpu::vector::vector_product;
use crate::device::DType;
use crate::parameter::Parameter;
use crate::pool::Buffer;
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
pub(crate) fn matrix(weight: &Parameter, layout: Layout) -> Matrix<'_> {
    stored(&weight.value, weight, layout)
}

/// The weights as `[inputs, outputs]`, if they are held in 16 bits.
pub(crate) fn half_matrix(weight: &Parameter, layout: Layout) -> Option<Matrix<'_, bf16>> {
    Some(stored(weight.halves()?, weight, layout))
}

fn stored<'a, N: Copy>(numbers: &'a [N], weight: &Parameter, layout: Layout) -> Matrix<'a, N> {
    let stored = Matrix::new(numbers, weight.dims()[1]);
    match layout {
        Layout::InOut => stored,
        Layout::OutIn => stored.t(),
    }
}

/// `out = start + rows weight` in `f32`, when text is written. It has the bits of [`Operand::multiply`] if
/// there are several rows. Nothing is kept.
pub(crate) fn multiply_next(
    out: &mut Tensor,
    start: Start<'_>,
    rows: &Tensor,
    (weight, layout): (&Parameter, Layout),
    groups: Option<&Arc<DepthGroups>>,
) {
    if let Some(weight) = half_matrix(weight, layout) {
        return multiply_halves(out, start, rows, weight, groups);
    }
    let weight = matrix(weight, layout);
    if rows.shape().rows() == 1 {
        return vector_product(out.f32_mut(), start, rows.f32(), weight);
    }
    let rows = Matrix::new(rows.f32(), weight.rows());
    matmul(out.f32_mut(), start, rows, unpacked(weight, groups));
}

/// A right operand that is packed for one product.
fn unpacked<'a>(weight: Matrix<'a>, groups: Option<&'a Arc<DepthGroups>>) -> Right<'a> {
    groups.map_or(Right::Matrix(weight), |groups| Right::InGroups(weight, groups))
}

/// `out = start + rows weight` of weights that are held in 16 bits. With rows of `f32` it has the bits that
/// the same weights in `f32` give. Nothing is kept.
pub(crate) fn multiply_halves(
    out: &mut Tensor,
    start: Start<'_>,
    rows: &Tensor,
    weight: Matrix<'_, bf16>,
    groups: Option<&Arc<DepthGroups>>,
) {
    let width = weight.rows();
    match rows.dtype() {
        DType::F32 if rows.shape().rows() == 1 => {
            vector_product(out.f32_mut(), start, rows.f32(), weight);
        }
        DType::F32 => {
            let mut wide = Buffer::pooled(weight.numbers().len());
            widen(&mut wide, weight.numbers());
            let right = unpacked(weight.with_numbers(&wide), groups);
            matmul(out.f32_mut(), start, Matrix::new(rows.f32(), width), right);
        }
        DType::Bf16 => {
            let rows = Matrix::new(rows.bf16(), width);
            let plain = bf16_kernels::Right::Matrix(weight);
            let right = groups.map_or(plain, |groups| bf16_kernels::Right::InGroups(weight, groups));
            bf16_kernels::product(out.bf16_mut(), start, rows, right);
        }
    }
}

fn widen(wide: &mut [f32], numbers: &[bf16]) {
    cut((By(wide, 1), By(numbers, 1)), 1, |_, (wide, numbers)| convert(wide, numbers));
}

/// Weights in the order of a product, kept until they change. A layer computes in one number format, so it
/// has one of the two at most.
#[derive(Debug, Default)]
pub(crate) struct Operand {
    packed: Option<Packed>,
    panels: Option<Panels>,
    /// The groups in which products are added up over the depth, if not from first to last.
    groups: Option<Arc<DepthGroups>>,
    /// Whether each product is treated like one with many rows.
    has_many_rows: bool,
}

impl Operand {
    /// Adds products up in these groups from now on.
    pub(crate) fn add_up_in(&mut self, groups: Option<DepthGroups>) {
        *self = Self { groups: groups.map(Arc::new), ..Self::default() };
    }

    /// Treats each product like one with many rows from now on.
    pub(crate) fn expect_many_rows(&mut self) {
        self.has_many_rows = true;
    }

    /// The groups in which products are added up, if not from first to last.
    pub(crate) fn groups(&self) -> Option<&Arc<DepthGroups>> {
        self.groups.as_ref()
    }

    /// The weights change.
    pub(crate) fn forget(&mut self) {
        (self.packed, self.panels) = (None, None);
    }

    /// `out = start + rows weight`, in the number format of the rows.
    pub(crate) fn multiply(&mut self, out: &mut Tensor, start: Start<'_>, rows: &Tensor, weight: Matrix<'_>) {
        in_format!(rows.dtype(), N => {
            N::multiply(self, out.numbers_mut(), start, Matrix::new(rows.numbers(), weight.rows()), weight);
        });
    }

    /// `out = rows weight`, in `f32`, of rows in any number format.
    pub(crate) fn multiply_to_f32(&mut self, out: &mut Tensor, rows: &Tensor, weight: Matrix<'_>) {
        let width = weight.rows();
        match rows.dtype() {
            DType::F32 => {
                let rows = Matrix::new(rows.f32(), width);
                f32::multiply(self, out.f32_mut(), Start::Zero, rows, weight);
            }
            DType::Bf16 => {
                let groups = self.groups.as_ref();
                let panels = self.panels.get_or_insert_with(|| Panels::new(weight, groups));
                let rows = Matrix::new(rows.bf16(), width);
                bf16_kernels::product(out.f32_mut(), Start::Zero, rows, bf16_kernels::Right::Panels(panels));
            }
        }
    }

    /// The weights for a product of `f32` with this many rows: packed only for this product, or packed once
    /// and kept until the weights change.
    fn right<'a>(&'a mut self, weight: Matrix<'a>, rows: usize) -> Right<'a> {
        if (self.has_many_rows || rows >= MANY_ROWS) && !weight.is_turned() {
            unpacked(weight, self.groups.as_ref())
        } else {
            let groups = self.groups.as_ref();
            Right::Packed(self.packed.get_or_insert_with(|| Packed::new(weight, groups)))
        }
    }
}

/// `out = start + a^T b`, in `f32`. Both operands have the same number format and as many rows.
pub(crate) fn add_turned_product(out: &mut [f32], start: Start<'_>, a: &Tensor, b: &Tensor) {
    let columns = [a, b].map(|operand| operand.shape().last());
    in_format!(a.dtype(), N => {
        let (a, b) = (Matrix::new(a.numbers(), columns[0]), Matrix::new(b.numbers(), columns[1]));
        N::add_turned_product(out, start, a, b);
    });
}

/// A number format in which the products of a linear layer are computed.
pub(crate) trait Factor: Real {
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
        let groups = operand.groups.as_ref();
        let panels = operand.panels.get_or_insert_with(|| Panels::new(weight, groups));
        bf16_kernels::product(out, start, rows, bf16_kernels::Right::Panels(panels));
    }

    /// In blocks of rows, as in `f32`: a gradient has the same bits if its rows come in whole blocks.
    fn add_turned_product(out: &mut [f32], start: Start<'_>, a: Matrix<'_, Self>, b: Matrix<'_, Self>) {
        let mut add = |start, rows: Range<usize>| {
            let (a, b) = (a.part(rows.clone()), b.part(rows));
            bf16_kernels::product(out, start, a.t(), bf16_kernels::Right::Matrix(b));
        };
        let first = BLOCK_DEPTH.min(a.rows);
        add(start, 0..first);
        for from in (first..a.rows).step_by(BLOCK_DEPTH) {
            add(Start::Old, from..a.rows.min(from + BLOCK_DEPTH));
        }
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
        Layout::InOut => of_blocks(inputs, rows),
        Layout::OutIn => of_blocks(outputs, rows),
    }
}

/// What the products of blocks of rows need. A last block that is shorter has memory of its own.
fn of_blocks(left_rows: usize, rows: usize) -> usize {
    let shorter = match rows > BLOCK_DEPTH {
        true => rows % BLOCK_DEPTH,
        false => 0,
    };
    let more = if shorter > 0 { bf16_kernels::scratch(left_rows, shorter) } else { 0 };
    bf16_kernels::scratch(left_rows, rows.min(BLOCK_DEPTH)) + more
}
