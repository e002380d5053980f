//! Tiles of sums of a head, and their use as operands.

use std::ops::Range;

use half::bf16;
use multiversion::multiversion;

use crate::cpu::bf16_kernels::left::{Left, Order, turn};
use crate::cpu::bf16_kernels::panels::{TILE, Tile, pack};
use crate::cpu::depth::Depth;
use crate::cpu::matrix::Matrix;
use crate::cpu::real::{Real, convert};
use crate::layers::attention::cpu::sizes::Sizes;
use crate::pool::Buffer;

/// Rows of tiles, in a buffer of the pool.
pub(crate) struct Tiles {
    numbers: Buffer,
    /// How many tiles are in a row.
    columns: usize,
}

impl Tiles {
    /// `rows` rows of `columns` tiles, all zeros.
    pub(crate) fn zeros([rows, columns]: [usize; 2]) -> Self {
        let mut numbers = Buffer::pooled(rows * columns * TILE * TILE);
        numbers.fill(0.0);
        Self { numbers, columns }
    }

    /// All tiles.
    pub(crate) fn all(&mut self) -> &mut [Tile] {
        self.numbers.as_chunks_mut().0.as_chunks_mut().0
    }

    /// The tiles of a row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [Tile] {
        let columns = self.columns;
        &mut self.all()[row * columns..][..columns]
    }
}

/// Room for the transpose of a block, as a left operand.
pub(crate) struct Turned {
    pairs: Buffer<bf16>,
    /// If the way needs rows.
    rows: Option<Buffer<bf16>>,
}

impl Turned {
    /// Room for `tiles` tiles.
    pub(crate) fn new(needs_rows: bool, tiles: usize) -> Self {
        let room = || Buffer::pooled(tiles * TILE * TILE);
        Self { pairs: room(), rows: needs_rows.then(room) }
    }

    /// The columns of these tiles as rows, rounded.
    pub(crate) fn of(&mut self, tiles: &[Tile]) -> Left<'_> {
        let numbers = tiles.as_flattened().as_flattened();
        let pairs = &mut self.pairs[..numbers.len()];
        let depth = tiles.len() * TILE;
        pack(pairs, Matrix::new(numbers, TILE), 0, Depth::Whole(depth));
        let (numbers, order) = match &mut self.rows {
            None => (&*pairs, Order::Pairs),
            Some(rows) => {
                let rows = &mut rows[..numbers.len()];
                turn(rows, pairs);
                (&*rows, Order::Rows(depth))
            }
        };
        Left { numbers, depth, rows: TILE, order }
    }
}

/// The rows of a tile, rounded, as a left operand.
pub(crate) fn rounded<'a>(room: &'a mut [bf16; TILE * TILE], tile: &Tile) -> Left<'a> {
    convert(&mut room[..], tile.as_flattened());
    Left { numbers: room, depth: TILE, rows: TILE, order: Order::Rows(TILE) }
}

/// Writes the rows of tiles into rows of `stride` numbers, from column `offset` on.
#[multiversion(targets = "simd")]
pub(crate) fn scatter(from: &Tiles, to: &mut [bf16], [stride, offset, width]: [usize; 3]) {
    let tiles: &[Tile] = from.numbers.as_chunks().0.as_chunks().0;
    for (row, to) in to.chunks_exact_mut(stride).enumerate() {
        let tiles = &tiles[row / TILE * from.columns..][..from.columns];
        for (to, tile) in to[offset..offset + width].chunks_mut(TILE).zip(tiles) {
            for (to, &number) in to.iter_mut().zip(&tile[row % TILE]) {
                *to = bf16::narrow(number);
            }
        }
    }
}

/// A vector of each of the rows, which have this many vectors.
pub(crate) fn part(sizes: Sizes, numbers: &[bf16], vectors: usize, vector: usize) -> Matrix<'_, bf16> {
    let [stride, offset, width] = sizes.columns(vectors, vector);
    Matrix { numbers: &numbers[offset..], rows: sizes.time, columns: width, stride, turned: false }
}

/// The tiles of keys that a block of queries sees. Tiles outside of the window are not among them.
pub(crate) fn tiles_of(sizes: Sizes, block: usize) -> Range<usize> {
    sizes.first_key(block * TILE) / TILE..block + 1
}

/// Sets the scores of keys after a query and before its window to negative infinity. The last tile has the
/// keys of the block's own queries.
#[inline(always)]
pub(crate) fn hide(scores: &mut [Tile], window: usize) {
    let last = scores.last_mut().into_iter().flatten();
    for (key, row) in last.enumerate() {
        for (query, score) in row.iter_mut().enumerate() {
            *score = if key > query { f32::NEG_INFINITY } else { *score };
        }
    }
    let ahead = (scores.len() - 1) * TILE;
    let hidden = (ahead + TILE).saturating_sub(window);
    for (key, row) in scores.as_flattened_mut()[..hidden].iter_mut().enumerate() {
        for (query, score) in row.iter_mut().enumerate() {
            let is_hidden = key + window <= ahead + query;
            *score = if is_hidden { f32::NEG_INFINITY } else { *score };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transpose_of_a_block_is_the_same_in_both_orders() {
        let mut tiles = Tiles::zeros([3, 1]);
        let numbers = tiles.all().as_flattened_mut().as_flattened_mut();
        // Each can be represented, and all are different.
        (0..).zip(numbers).for_each(|(at, number)| *number = f32::from_bits(at << 16));
        let mut read = |needs_rows: bool| -> Vec<u16> {
            let mut turned = Turned::new(needs_rows, 3);
            let left = turned.of(tiles.all());
            let at = |row: usize, depth: usize| match left.order {
                Order::Rows(stride) => left.numbers[row * stride + depth],
                Order::Pairs => left.numbers[depth / 2 * 2 * TILE + 2 * row + depth % 2],
            };
            let all = (0..TILE).flat_map(|row| (0..left.depth).map(move |depth| (row, depth)));
            all.map(|(row, depth)| at(row, depth).to_bits()).collect()
        };
        let expected = (0..TILE).flat_map(|row| (0..3 * TILE).map(move |depth| (depth * TILE + row) as u16));
        let expected: Vec<u16> = expected.collect();
        assert_eq!(read(false), expected);
        assert_eq!(read(true), expected);
    }
}
