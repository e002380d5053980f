//! The left operand of a product of `bf16`, in groups of rows.

use std::ops::Range;

use half::bf16;

use super::panels::{TILE, pack, padded, padded_in, room};
use super::square::{self, SIDE};
use crate::cpu::depth::Depth;
use crate::cpu::matrix::Matrix;
use crate::pool::Buffer;

/// The rows of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    /// From the first row on.
    pub(crate) numbers: &'a [bf16],
    pub(crate) depth: usize,
    /// How many of the 32 rows count.
    pub(crate) rows: usize,
    pub(crate) order: Order,
}

/// How rows lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One after the other, with this distance.
    Rows(usize),
    /// As the columns of a panel: pair by pair.
    Pairs,
}

impl Left<'_> {
    /// A part of the depth, from an even place on.
    pub(crate) fn part(self, depth: Range<usize>) -> Self {
        let start = match self.order {
            Order::Rows(_) => depth.start,
            Order::Pairs => TILE * depth.start,
        };
        Self { numbers: &self.numbers[start..], depth: depth.len(), ..self }
    }
}

/// How many numbers there is room for if a left operand of this size is packed.
pub(crate) fn numbers(rows: usize, depth: usize) -> usize {
    room(rows.next_multiple_of(TILE) * padded(depth))
}

/// The left operand, group by group. A group is packed when it is first reached, unless its rows can be read
/// where they are.
pub(crate) struct Groups<'a> {
    from: Matrix<'a, bf16>,
    in_order: Depth<'a>,
    /// The depth in memory.
    depth: usize,
    order: Order,
    /// The packed groups, at their places.
    numbers: Option<Buffer<bf16>>,
    /// Room for a panel, from which rows are made.
    panel: Option<Buffer<bf16>>,
}

impl<'a> Groups<'a> {
    /// The columns of `from` are added up as `in_order` says.
    pub(crate) fn new(needs_rows: bool, from: Matrix<'a, bf16>, in_order: Depth<'a>) -> Self {
        let depth = padded_in(in_order);
        let in_place = !from.turned && depth == from.columns && from.rows.is_multiple_of(TILE);
        let order = match (from.turned && !needs_rows, in_place) {
            (true, _) => Order::Pairs,
            (_, true) => Order::Rows(from.stride),
            (_, false) => Order::Rows(depth),
        };
        let count = room(from.rows.next_multiple_of(TILE) * depth);
        Self {
            from,
            in_order,
            depth,
            order,
            numbers: (!in_place).then(|| Buffer::pooled(count)),
            panel: (from.turned && needs_rows).then(|| Buffer::pooled(room(TILE * depth))),
        }
    }

    /// Whether rows are read where they are, and not from a copy in the order in which they are added up.
    pub(crate) fn is_in_place(&self) -> bool {
        self.numbers.is_none()
    }

    /// The group that starts with this row. It is packed if this is the `first` block of columns.
    pub(crate) fn reach(&mut self, row: usize, first: bool) -> Left<'_> {
        let rows = TILE.min(self.from.rows - row);
        let numbers = match &mut self.numbers {
            None => &self.from.numbers[row * self.from.stride..],
            Some(numbers) => {
                let to = &mut numbers[row * self.depth..][..TILE * self.depth];
                match (first, &mut self.panel) {
                    (false, _) => {}
                    (true, _) if !self.from.turned => {
                        copy(to, self.from.part(row..row + rows), self.in_order, self.depth);
                    }
                    (true, None) => pack(to, self.from.t(), row, self.in_order),
                    (true, Some(panel)) => {
                        let panel = &mut panel[..TILE * self.depth];
                        pack(panel, self.from.t(), row, self.in_order);
                        turn(to, panel);
                    }
                }
                to
            }
        };
        Left { numbers, depth: self.depth, rows, order: self.order }
    }
}

/// Copies rows, segment by segment, and pads segments with zeros, and rows to whole tiles. `depth`: of a row.
fn copy(to: &mut [bf16], from: Matrix<'_, bf16>, in_order: Depth<'_>, depth: usize) {
    for (row, mut to) in to.chunks_exact_mut(depth).enumerate() {
        if row >= from.rows {
            to.fill(bf16::ZERO);
            continue;
        }
        for segment in in_order.segments() {
            let (part, rest) = to.split_at_mut(padded(segment.len()));
            let (numbers, zeros) = part.split_at_mut(segment.len());
            numbers.copy_from_slice(&from.row(row)[segment.range()]);
            zeros.fill(bf16::ZERO);
            to = rest;
        }
    }
}

/// Makes rows of the columns of a panel.
pub(crate) fn turn(to: &mut [bf16], panel: &[bf16]) {
    let pairs: &[u32] = bytemuck::cast_slice(panel);
    let to: &mut [u32] = bytemuck::cast_slice_mut(to);
    let depth = pairs.len() / TILE;
    for column in (0..TILE).step_by(SIDE) {
        for pair in (0..depth).step_by(SIDE) {
            let from = &pairs[pair * TILE + column..];
            square::turn((from, TILE), (&mut to[column * depth + pair..], depth));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::real::Real;

    /// All pairs of numbers of every group, as a way reads them.
    fn read(needs_rows: bool, from: Matrix<'_, bf16>) -> Vec<f32> {
        let mut groups = Groups::new(needs_rows, from, Depth::Whole(from.columns));
        let mut all = Vec::new();
        for row in (0..from.rows).step_by(TILE) {
            let left = groups.reach(row, true);
            for row in 0..left.rows {
                for depth in 0..left.depth {
                    all.push(match left.order {
                        Order::Rows(stride) => left.numbers[row * stride + depth].wide(),
                        Order::Pairs => left.numbers[depth / 2 * 2 * TILE + 2 * row + depth % 2].wide(),
                    });
                }
            }
        }
        all
    }

    #[test]
    fn every_order_has_the_same_numbers_padded_with_zeros() {
        for [rows, depth] in [[64, 64], [33, 64], [64, 37], [1, 1]] {
            let numbers: Vec<bf16> = (1..=rows * depth).map(|number| bf16::narrow(number as f32)).collect();
            let plain = Matrix::new(&numbers, depth);
            let turned: Vec<bf16> =
                (0..rows * depth).map(|at| numbers[at % rows * depth + at / rows]).collect();
            let turned = Matrix::new(&turned, rows).t();
            let expected: Vec<f32> = numbers
                .chunks(depth)
                .flat_map(|row| (0..padded(depth)).map(|at| row.get(at).map_or(0.0, |number| number.wide())))
                .collect();
            for (needs_rows, from) in [(false, plain), (true, plain), (false, turned), (true, turned)] {
                let what = format!("{rows} x {depth}, turned: {}, rows: {needs_rows}", from.turned);
                assert_eq!(read(needs_rows, from), expected, "{what}");
            }
        }
    }
}
