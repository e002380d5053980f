//! The products of a linear layer on the CPU, and their packed operands.

use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use crate::cpu::bf16_kernels::{self, Panels};
use crate::cpu::coded::Coded;
use crate::cpu::coded_row::coded_vector_product;
use crate::cpu::depth::{BLOCK_DEPTH, DepthGroups};
use crate::cpu::matmul::right::decoded;
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

/// Weights as they are held.
#[derive(Clone, Copy)]
pub(crate) enum Held<'a> {
    Numbers(Matrix<'a>),
    Halves(Matrix<'a, bf16>),
    Coded(Coded<'a>),
}

impl<'a> Held<'a> {
    /// The weights as `[inputs, outputs]`.
    pub(crate) fn of(weight: &'a Parameter, layout: Layout) -> Self {
        let columns = weight.dims()[1];
        let stored = match (weight.blocks(), weight.halves()) {
            (Some(blocks), _) => Self::Coded(Coded::new(blocks)),
            (None, Some(halves)) => Self::Halves(Matrix::new(halves, columns)),
            (None, None) => Self::Numbers(Matrix::new(&weight.value, columns)),
        };
        match layout {
            Layout::InOut => stored,
            Layout::OutIn => stored.t(),
        }
    }

    /// The transpose.
    pub(crate) fn t(self) -> Self {
        match self {
            Self::Numbers(matrix) => Self::Numbers(matrix.t()),
            Self::Halves(matrix) => Self::Halves(matrix.t()),
            Self::Coded(matrix) => Self::Coded(matrix.t()),
        }
    }

    fn rows(self) -> usize {
        match self {
            Self::Numbers(matrix) => matrix.rows(),
            Self::Halves(matrix) => matrix.rows(),
            Self::Coded(matrix) => matrix.rows(),
        }
    }
}

/// `out = start + rows weight` in `f32`, when text is written. It has the bits of [`Operand::multiply`] if
/// there are several rows. Nothing is kept.
pub(crate) fn multiply_next(
    out: &mut Tensor,
    start: Start<'_>,
    rows: &Tensor,
    weight: Held<'_>,
    groups: Option<&Arc<DepthGroups>>,
) {
    let (out, count, rows) = (out.f32_mut(), rows.shape().rows(), rows.f32());
    if count == 1 {
        return multiply_row(out, start, rows, weight);
    }
    let rows = Matrix::new(rows, weight.rows());
    match weight {
        Held::Numbers(weight) => matmul(out, start, rows, unpacked(weight, groups)),
        Held::Halves(weight) => multiply_widened(out, start, rows, weight, groups),
        Held::Coded(weight) => matmul(out, start, rows, Right::Coded(weight, groups)),
    }
}

/// `out = start + row weight`. Nothing is packed.
pub(crate) fn multiply_row(out: &mut [f32], start: Start<'_>, row: &[f32], weight: Held<'_>) {
    match weight {
        Held::Numbers(weight) => vector_product(out, start, row, weight),
        Held::Halves(weight) => vector_product(out, start, row, weight),
        Held::Coded(weight) => coded_vector_product(out, start, row, weight),
    }
}

/// A right operand that is packed for one product.
fn unpacked<'a>(weight: Matrix<'a>, groups: Option<&'a Arc<DepthGroups>>) -> Right<'a> {
    groups.map_or(Right::Matrix(weight), |groups| Right::InGroups(weight, groups))
}

/// `out = start + rows weight` of weights that are held in 16 bits. It has the bits that the same weights in
/// `f32` give. Nothing is kept.
fn multiply_widened(
    out: &mut [f32],
    start: Start<'_>,
    rows: Matrix<'_>,
    weight: Matrix<'_, bf16>,
    groups: Option<&Arc<DepthGroups>>,
) {
    let mut wide = Buffer::pooled(weight.numbers().len());
    widen(&mut wide, weight.numbers());
    matmul(out, start, rows, unpacked(weight.with_numbers(&wide), groups));
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
    pub(crate) fn multiply(&mut self, out: &mut Tensor, start: Start<'_>, rows: &Tensor, weight: Held<'_>) {
        in_format!(rows.dtype(), N => {
            N::multiply(self, out.numbers_mut(), start, Matrix::new(rows.numbers(), weight.rows()), weight);
        });
    }

    /// `out = rows weight`, in `f32`, of rows in any number format.
    pub(crate) fn multiply_to_f32(&mut self, out: &mut Tensor, rows: &Tensor, weight: Held<'_>) {
        let width = weight.rows();
        match rows.dtype() {
            DType::F32 => {
                let rows = Matrix::new(rows.f32(), width);
                f32::multiply(self, out.f32_mut(), Start::Zero, rows, weight);
            }
            DType::Bf16 => {
                let rows = Matrix::new(rows.bf16(), width);
                bf16_kernels::product(out.f32_mut(), Start::Zero, rows, self.half_right(weight));
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

    /// The weights for a product of `bf16`: packed once and kept until they change, or, if they are held in
    /// fewer bits than `f32`, packed only for this product.
    fn half_right<'a>(&'a mut self, weight: Held<'a>) -> bf16_kernels::Right<'a> {
        let groups = self.groups.as_ref();
        match weight {
            Held::Numbers(weight) => {
                let panels = self.panels.get_or_insert_with(|| Panels::new(weight, groups));
                bf16_kernels::Right::Panels(panels)
            }
            Held::Halves(weight) => {
                let plain = bf16_kernels::Right::Matrix(weight);
                groups.map_or(plain, |groups| bf16_kernels::Right::InGroups(weight, groups))
            }
            Held::Coded(weight) => bf16_kernels::Right::Coded(weight, groups),
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
        weight: Held<'_>,
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
        weight: Held<'_>,
    ) {
        match weight {
            Held::Numbers(weight) => matmul(out, start, rows, operand.right(weight, rows.rows())),
            Held::Halves(weight) if rows.rows() == 1 => vector_product(out, start, rows.numbers(), weight),
            Held::Halves(weight) => multiply_widened(out, start, rows, weight, operand.groups.as_ref()),
            Held::Coded(weight) => matmul(out, start, rows, Right::Coded(weight, operand.groups.as_ref())),
        }
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
        weight: Held<'_>,
    ) {
        bf16_kernels::product(out, start, rows, operand.half_right(weight));
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

/// The most numbers of the memory into which the threads of a rank decode quantised matrices. The largest
/// matrix has these dimensions. A thread that is alone decodes block by block, and needs none.
pub fn decoded_numbers([rows, columns]: [usize; 2]) -> usize {
    2 * decoded([rows, columns]).max(decoded([columns, rows]))
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
