//! Products of large matrices: blocks of the operands in cache, tiles of the output in registers.
//!
//! The blocking is that of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008). Every
//! number of the output is summed over the depth from the first to the last, in blocks of a fixed size: its bits depend
//! on its own row and column alone.

use pulp::{Arch, Simd, WithSimd};

use super::pack::{PANEL, pack};
use super::tile::{ROWS, tile, width};
use crate::pool::Buffer;

/// The depth of a block.
const DEPTH: usize = 512;
/// Columns of a block: with this depth, half a megabyte, which the second cache holds.
const BLOCK: usize = 256;

/// A matrix that is read: a view of a slice in which rows or columns are contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(super) numbers: &'a [f32],
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From a row to the next; from a column to the next when turned.
    pub(super) stride: usize,
    /// Whether columns are contiguous, and not rows.
    pub(super) turned: bool,
}

impl<'a> Matrix<'a> {
    /// The slice as rows of `columns` numbers, one after the other.
    pub(crate) fn new(numbers: &'a [f32], columns: usize) -> Self {
        Self {
            numbers,
            rows: numbers.len() / columns,
            columns,
            stride: columns,
            turned: false,
        }
    }

    /// The transpose: the same numbers, seen the other way.
    pub(crate) fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            turned: !self.turned,
            ..self
        }
    }
}

/// What a product is added to.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    /// Nothing.
    Zero,
    /// This row, at every row of the output.
    Row(&'a [f32]),
    /// What the output holds.
    Old,
}

impl Start<'_> {
    /// What columns from this one on are added to.
    #[inline(always)]
    fn from(self, column: usize) -> Self {
        match self {
            Self::Row(row) => Self::Row(&row[column..]),
            other => other,
        }
    }
}

/// `out = start + a b`; `out` has contiguous rows.
pub(crate) fn matmul(out: &mut [f32], start: Start<'_>, a: Matrix<'_>, b: Matrix<'_>) {
    assert_eq!(a.columns, b.rows, "as many columns as rows");
    assert_eq!(out.len(), a.rows * b.columns, "the product fills the output");
    Arch::new().dispatch(Multiply { out, start, a, b });
}

struct Multiply<'a> {
    out: &'a mut [f32],
    start: Start<'a>,
    a: Matrix<'a>,
    b: Matrix<'a>,
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { out, start, a, b } = self;
        let mut packed = Buffer::pooled(BLOCK * DEPTH);
        let mut packed_a = Buffer::pooled(PANEL * DEPTH);
        for at in (0..a.columns).step_by(DEPTH) {
            let start = if at == 0 { start } else { Start::Old };
            let depth = at..a.columns.min(at + DEPTH);
            for first in (0..b.columns).step_by(BLOCK) {
                let columns = first..b.columns.min(first + BLOCK);
                pack(&mut packed, b, depth.clone(), columns.clone());
                let block = Block {
                    packed: &packed,
                    depth: depth.len(),
                    width: columns.len(),
                    start: start.from(first),
                };
                for row in (0..a.rows).step_by(ROWS) {
                    let rows = row..a.rows.min(row + ROWS);
                    let out = Out {
                        numbers: &mut out[row * b.columns + first..],
                        stride: b.columns,
                        rows: rows.len(),
                    };
                    if a.turned {
                        if row % PANEL == 0 {
                            pack(&mut packed_a, a.t(), depth.clone(), row..a.rows.min(row + PANEL));
                        }
                        let (lines, part) = (packed_a.as_chunks::<PANEL>().0, row % PANEL / ROWS);
                        block.row_of_tiles(simd, out, |at| lines[at].as_chunks().0[part]);
                    } else {
                        // Rows that are not there are the last one again, and not written.
                        let lines: [&[f32]; ROWS] = std::array::from_fn(|index| {
                            let line = (row + index).min(rows.end - 1);
                            &a.numbers[line * a.stride..][depth.clone()]
                        });
                        block.row_of_tiles(simd, out, |at| std::array::from_fn(|index| lines[index][at]));
                    }
                }
            }
        }
    }
}

/// A row of tiles of the output.
struct Out<'a> {
    numbers: &'a mut [f32],
    stride: usize,
    rows: usize,
}

/// A packed block of the right operand.
#[derive(Clone, Copy)]
struct Block<'a> {
    packed: &'a [f32],
    depth: usize,
    width: usize,
    start: Start<'a>,
}

impl Block<'_> {
    #[inline(always)]
    fn row_of_tiles<S: Simd>(self, simd: S, mut out: Out<'_>, a: impl Fn(usize) -> [f32; ROWS] + Copy) {
        for (panel, first) in self
            .packed
            .chunks_exact(PANEL * self.depth)
            .zip((0..self.width).step_by(PANEL))
        {
            for part in (0..PANEL).step_by(width::<S>() * S::F32_LANES) {
                if width::<S>() == 2 {
                    self.tile::<S, 2>(simd, &mut out, a, panel, [first, part]);
                } else {
                    self.tile::<S, 1>(simd, &mut out, a, panel, [first, part]);
                }
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const WIDTH: usize>(
        self,
        simd: S,
        out: &mut Out<'_>,
        a: impl Fn(usize) -> [f32; ROWS],
        panel: &[f32],
        [first, part]: [usize; 2],
    ) {
        let (lines, lanes) = (panel.as_chunks::<PANEL>().0, S::F32_LANES);
        let sums = tile::<S, WIDTH>(simd, lines.len(), a, |at| &lines[at][part..part + WIDTH * lanes]);
        let whole = out.rows == ROWS && first + part + WIDTH * lanes <= self.width;
        for (row, sums) in sums.into_iter().enumerate() {
            for (index, sum) in sums.into_iter().enumerate() {
                let column = first + part + index * lanes;
                if whole || (row < out.rows && column < self.width) {
                    let width = if whole {
                        lanes
                    } else {
                        lanes.min(self.width - column)
                    };
                    let out = &mut out.numbers[row * out.stride + column..][..width];
                    self.write(simd, out, column, sum, whole);
                }
            }
        }
    }

    /// Writes the sums of a register's columns, or of as many as there are.
    #[inline(always)]
    fn write<S: Simd>(self, simd: S, out: &mut [f32], column: usize, sum: S::f32s, whole: bool) {
        let read = |from: &[f32]| {
            if whole {
                S::as_simd_f32s(from).0[0]
            } else {
                simd.partial_load_f32s(from)
            }
        };
        let sum = match self.start {
            Start::Zero => sum,
            Start::Row(start) => simd.add_f32s(read(&start[column..column + out.len()]), sum),
            Start::Old => simd.add_f32s(read(out), sum),
        };
        if whole {
            S::as_mut_simd_f32s(out).0[0] = sum;
        } else {
            simd.partial_store_f32s(out, sum);
        }
    }
}
