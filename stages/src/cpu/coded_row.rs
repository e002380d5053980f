//! The product of one row and a quantised matrix: decoded in registers. It has the bits of
//! [`vector`](super::vector).

use multiversion::multiversion;

use super::coded::Coded;
use super::lanes::{LANES, fold};
use super::matmul::Start;
use super::parts::{By, cut};
use crate::quantised::codes::{Code, PIECE, with_code};
use crate::quantised::decode::piece;

/// How many columns are added up before their lanes are.
const BLOCK: usize = 64;

/// The columns that a thread adds up at a time, if rows are rows of blocks.
const COLUMNS: usize = 1024;

/// `out = start + row matrix`. It takes as long as reading the blocks.
pub(crate) fn coded_vector_product(out: &mut [f32], start: Start<'_>, row: &[f32], matrix: Coded<'_>) {
    let (blocks, is_turned) = matrix.stored();
    if is_turned {
        cut(By(out, 1), row.len(), |first, out| {
            for (index, out) in out.chunks_mut(BLOCK).enumerate() {
                let first = first + index * BLOCK;
                let mut lanes = [[0.0; LANES]; BLOCK];
                let mut rest = &mut lanes[..out.len()];
                for (kind, bytes, count) in blocks.runs(first..first + out.len()) {
                    let (lanes, after) = rest.split_at_mut(count);
                    with_code!(kind, C => add_products::<C>(lanes, row, bytes));
                    rest = after;
                }
                for (column, (number, lanes)) in out.iter_mut().zip(lanes).enumerate() {
                    *number = start.from(first).at(column, *number, fold(lanes));
                }
            }
        });
        return;
    }
    cut(By(out, COLUMNS), row.len() * COLUMNS, |first, out| {
        for (index, out) in out.chunks_mut(COLUMNS).enumerate() {
            let column = (first + index) * COLUMNS;
            match start.from(column) {
                Start::Zero => out.fill(0.0),
                Start::Row(before) => out.copy_from_slice(&before[..out.len()]),
                Start::Old => {}
            }
            for (line, &factor) in row.iter().enumerate() {
                let (kind, bytes) = blocks.row(line);
                with_code!(kind, C => add_row::<C>(out, factor, bytes, column / PIECE));
            }
        }
    });
}

impl Start<'_> {
    #[inline(always)]
    fn at(self, column: usize, old: f32, sum: f32) -> f32 {
        match self {
            Self::Zero => sum,
            Self::Row(before) => before[column] + sum,
            Self::Old => old + sum,
        }
    }
}

/// Fills the lanes of some columns, in the order of a matrix of `f32`: see [`vector`](super::vector).
fn add_products<C: Code>(lanes: &mut [[f32; LANES]], row: &[f32], bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        let row_bytes = bytes.len() / lanes.len();
        let columns = bytes.chunks_exact(row_bytes);
        return simd.vectorize(wide::Products::<C> {
            lanes,
            row,
            columns,
            simd,
            code: std::marker::PhantomData,
        });
    }
    add_products_by_piece::<C>(lanes, row, bytes);
}

#[multiversion(targets = "simd")]
fn add_products_by_piece<C: Code>(lanes: &mut [[f32; LANES]], row: &[f32], bytes: &[u8]) {
    let pieces = row.as_chunks::<PIECE>().0;
    let (pairs, last) = pieces.as_chunks::<2>();
    let columns = bytes.chunks_exact(bytes.len() / lanes.len());
    for (column, lanes) in columns.zip(lanes) {
        let [mut a, mut b, mut c, mut d] = [[0.0; LANES]; 4];
        for (at, [x, y]) in pairs.iter().enumerate() {
            let [first, second] = [piece::<C>(column, 2 * at), piece::<C>(column, 2 * at + 1)];
            add_piece([&mut a, &mut b], x, &first);
            add_piece([&mut c, &mut d], y, &second);
        }
        if let [x] = last {
            let numbers = piece::<C>(column, 2 * pairs.len());
            for (x, y) in x.as_chunks::<LANES>().0.iter().zip(numbers.as_chunks::<LANES>().0) {
                add_chunk(&mut a, x, y);
            }
        }
        for lane in 0..LANES {
            lanes[lane] = (a[lane] + b[lane]) + (c[lane] + d[lane]);
        }
    }
}

#[inline(always)]
fn add_piece([low, high]: [&mut [f32; LANES]; 2], x: &[f32; PIECE], y: &[f32; PIECE]) {
    let [x, y] = [x, y].map(|piece| piece.as_chunks::<LANES>().0);
    add_chunk(low, &x[0], &y[0]);
    add_chunk(high, &x[1], &y[1]);
}

#[inline(always)]
fn add_chunk(sums: &mut [f32; LANES], x: &[f32; LANES], y: &[f32; LANES]) {
    for lane in 0..LANES {
        sums[lane] = x[lane].mul_add(y[lane], sums[lane]);
    }
}

/// Adds a row, from this piece on, times a factor.
#[multiversion(targets = "simd")]
fn add_row<C: Code>(out: &mut [f32], factor: f32, bytes: &[u8], first: usize) {
    for (at, out) in out.as_chunks_mut::<PIECE>().0.iter_mut().enumerate() {
        for (sum, number) in out.iter_mut().zip(piece::<C>(bytes, first + at)) {
            *sum = number.mul_add(factor, *sum);
        }
    }
}

/// The same with AVX-512.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::__m512;
    use std::marker::PhantomData;
    use std::slice::ChunksExact;

    use bytemuck::cast;
    use pulp::NullaryFnOnce;
    use pulp::x86::V4;

    use super::{Code, LANES, PIECE};
    use crate::quantised::wide::piece;

    pub(super) struct Products<'a, C> {
        pub(super) lanes: &'a mut [[f32; LANES]],
        pub(super) row: &'a [f32],
        pub(super) columns: ChunksExact<'a, u8>,
        pub(super) simd: V4,
        pub(super) code: PhantomData<C>,
    }

    impl<C: Code> NullaryFnOnce for Products<'_, C> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Self { lanes, row, columns, simd, .. } = self;
            let (pairs, last) = row.as_chunks::<PIECE>().0.as_chunks::<2>();
            for (column, lanes) in columns.zip(lanes) {
                let mut sums = [simd.avx512f._mm512_setzero_ps(); 4];
                for (at, [x, y]) in pairs.iter().enumerate() {
                    let [a, b] = piece::<C>(simd, column, 2 * at);
                    let [c, d] = piece::<C>(simd, column, 2 * at + 1);
                    let ([x, z], [y, w]) = (halves(x), halves(y));
                    sums[0] = simd.avx512f._mm512_fmadd_ps(x, a, sums[0]);
                    sums[1] = simd.avx512f._mm512_fmadd_ps(z, b, sums[1]);
                    sums[2] = simd.avx512f._mm512_fmadd_ps(y, c, sums[2]);
                    sums[3] = simd.avx512f._mm512_fmadd_ps(w, d, sums[3]);
                }
                if let [x] = last {
                    for (x, number) in halves(x).into_iter().zip(piece::<C>(simd, column, 2 * pairs.len())) {
                        sums[0] = simd.avx512f._mm512_fmadd_ps(x, number, sums[0]);
                    }
                }
                let add = |[a, b]: [__m512; 2]| simd.avx512f._mm512_add_ps(a, b);
                *lanes = cast(add([add([sums[0], sums[1]]), add([sums[2], sums[3]])]));
            }
        }
    }

    #[inline(always)]
    fn halves(piece: &[f32; PIECE]) -> [__m512; 2] {
        cast(*piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantised::{Quantisation, Quantised};
    use crate::rng;

    /// On a CPU without AVX-512 both ways are one.
    #[test]
    fn registers_add_up_in_the_order_of_the_plain_code() {
        let mut row = vec![0.0; 1024 + 32];
        rng::fill_normal(rng::key(7, "row"), 1.0, &mut row);
        let numbers: Vec<f32> = row.iter().chain(&row).chain(&row).copied().collect();
        let matrix = Quantised::of(Quantisation::Q8_0, row.len(), &numbers).expect("they are finite");
        let (kind, bytes, count) = matrix.runs(0..3).next().expect("rows");
        let (mut wide, mut narrow) = ([[0.0; LANES]; 3], [[0.0; LANES]; 3]);
        assert_eq!((kind, count), (Quantisation::Q8_0, 3));
        with_code!(kind, C => {
            add_products::<C>(&mut wide, &row, bytes);
            add_products_by_piece::<C>(&mut narrow, &row, bytes);
        });
        assert_eq!(wide, narrow);
    }
}
