//! The pieces of a parameter's gradient, in which its norm is added up, and how it is divided among shards.

use std::ops::Range;
use std::sync::Arc;

use crate::cpu::lanes::sum_of_squares;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::description::PIECE;
use crate::shards::Division;

/// Where the pieces of a parameter's gradient lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// This many numbers in pieces of [`Parameter::PIECE`] numbers, and what is left at the end.
    Even(usize),
    /// Pieces of rows of a tensor that is divided among shards.
    Rows(Arc<RowPieces>),
}

/// Pieces of whole rows. Each has a sum for every group of the tensor's division, so that the sums are the same
/// for any number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPieces {
    /// The end of each piece among this shard's numbers.
    ends: Vec<usize>,
    /// The number of the first sum of each piece among the sums of the whole tensor.
    sums: Vec<usize>,
    /// The columns of each group here, if rows are divided: a piece has a sum for each.
    columns: Vec<Vec<Range<usize>>>,
    /// The numbers of a row.
    row: usize,
}

impl Pieces {
    /// How many there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Even(length) => length.div_ceil(PIECE),
            Self::Rows(rows) => rows.ends.len(),
        }
    }

    /// How many numbers all have.
    pub fn length(&self) -> usize {
        match self {
            Self::Even(length) => *length,
            Self::Rows(rows) => rows.ends.last().copied().unwrap_or(0),
        }
    }

    /// The numbers of consecutive pieces.
    pub fn numbers(&self, pieces: Range<usize>) -> Range<usize> {
        self.before(pieces.start)..self.before(pieces.end)
    }

    fn before(&self, piece: usize) -> usize {
        match (self, piece.checked_sub(1)) {
            (Self::Even(length), _) => (piece * PIECE).min(*length),
            (Self::Rows(_), None) => 0,
            (Self::Rows(rows), Some(last)) => rows.ends[last],
        }
    }

    /// The pieces of these numbers, which are whole pieces.
    pub fn within(&self, numbers: Range<usize>) -> Range<usize> {
        match self {
            _ if numbers.is_empty() => 0..0,
            Self::Even(_) => numbers.start / PIECE..numbers.end.div_ceil(PIECE),
            Self::Rows(rows) => {
                let before = |number| rows.ends.partition_point(|end| *end <= number);
                before(numbers.start)..before(numbers.end)
            }
        }
    }
}

impl RowPieces {
    /// The pieces of a shard with these dimensions, whose first dimension is divided, or else its last one.
    fn new(dims: &[usize], is_first: bool, division: &Division) -> Self {
        let whole = division.of_whole();
        let first = division.first_group();
        if !is_first {
            let (row, rows) = (division.len(), dims.iter().rev().skip(1).product::<usize>());
            let (each, groups) = (rows_of_piece(whole.len()), whole.all_groups());
            let starts = || (0..rows).step_by(each);
            return Self {
                ends: starts().map(|start| rows.min(start + each) * row).collect(),
                sums: (0..starts().count()).map(|piece| piece * groups + first).collect(),
                columns: division.groups(),
                row,
            };
        }
        let row = dims[1..].iter().product::<usize>();
        let each = rows_of_piece(row);
        // Each group's rows in each part, here and in the whole tensor, in the order of memory.
        let of_whole = whole.groups();
        let pairs = division.groups().into_iter().zip(&of_whole[first..]);
        let mut here: Vec<_> = pairs.flat_map(|(here, whole)| here.into_iter().zip(whole)).collect();
        here.sort_by_key(|(here, _)| here.start);
        let (mut ends, mut sums) = (Vec::new(), Vec::new());
        for (rows, of_group) in here {
            let before = of_whole.iter().flatten().filter(|other| other.start < of_group.start);
            let before: usize = before.map(|other| other.len().div_ceil(each)).sum();
            for (piece, start) in rows.clone().step_by(each).enumerate() {
                ends.push(rows.end.min(start + each) * row);
                sums.push(before + piece);
            }
        }
        Self { ends, sums, columns: Vec::new(), row }
    }
}

/// How many rows of this many numbers a piece has.
fn rows_of_piece(row: usize) -> usize {
    (PIECE / row.max(1)).max(1)
}

impl Parameter {
    /// The length of a piece: this number of consecutive numbers, or what is left at the end; but see
    /// [`Division`]. The norm of a gradient is added up piece by piece, and replicas share the update
    /// of a parameter by whole pieces.
    pub const PIECE: usize = PIECE;

    /// Says that the first dimension, or else the last one, is divided among shards. Its pieces are then whole
    /// rows, and no sum of squares has numbers of two groups: see [`Sharding::groups`](crate::Sharding::groups).
    pub(crate) fn divide(&mut self, is_first: bool, division: &Division) {
        self.keep_own(is_first, division);
        if division.all_groups() > 1 {
            self.row_pieces = Some(Arc::new(RowPieces::new(&self.dims, is_first, division)));
        }
    }

    /// Its pieces. There are none if it is frozen.
    pub fn pieces(&self) -> Pieces {
        match &self.row_pieces {
            Some(rows) if !self.is_frozen() => Pieces::Rows(Arc::clone(rows)),
            _ => Pieces::Even(self.trained()),
        }
    }

    /// Calls `tell` with each sum of the squares of a piece of the gradient: its number among the sums of the
    /// whole tensor, and the sum in double precision, always added up in the same order. A [running
    /// mean](Parameter::running) has no gradient: its sum is 0, or NaN if a number is not finite. On a GPU it is
    /// the sum of the last [start](Parameter::start_grad_squares); the GPU must be done.
    pub fn grad_squares(&self, piece: usize, mut tell: impl FnMut(usize, f64)) {
        let is_running = self.running_share().is_some();
        if let Some(weights) = self.on_gpu() {
            let squares = weights.squares()[piece];
            return tell(piece, if is_running { 0.0 * squares } else { squares });
        }
        let pieces = self.pieces();
        let numbers = &self.grad[pieces.numbers(piece..piece + 1)];
        let sum = |numbers: &[f32]| match is_running {
            false => sum_of_squares(numbers),
            true => numbers.iter().fold(0.0, |all, number| all + 0.0 * f64::from(*number)),
        };
        match &pieces {
            Pieces::Rows(rows) if !rows.columns.is_empty() => {
                for (group, columns) in rows.columns.iter().enumerate() {
                    let squares = numbers
                        .chunks_exact(rows.row)
                        .flat_map(|row| columns.iter().map(|columns| sum(&row[columns.clone()])));
                    tell(rows.sums[piece] + group, squares.sum());
                }
            }
            Pieces::Rows(rows) => tell(rows.sums[piece], sum(numbers)),
            Pieces::Even(_) => tell(piece, sum(numbers)),
        }
    }

    /// All sums of squares of the gradient, in order: see [`Parameter::grad_squares`].
    pub fn all_grad_squares(&self) -> Vec<f64> {
        let mut all = Vec::new();
        for piece in 0..self.pieces().count() {
            self.grad_squares(piece, |_, square| all.push(square));
        }
        all
    }

    /// Starts the GPU's part of [`Parameter::grad_squares`], which may wait in `together`. Does nothing on
    /// the CPU.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn start_grad_squares(&self, together: &mut Together) -> Result<()> {
        self.on_gpu().map_or(Ok(()), |weights| weights.start_squares(together))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::parameter::init::Init;
    use crate::rng;
    use crate::shards::{Shard, Sharding};

    /// The sums of squares, by number.
    fn sums(parameter: &Parameter) -> BTreeMap<usize, u64> {
        let mut all = BTreeMap::new();
        for piece in 0..parameter.pieces().count() {
            parameter.grad_squares(piece, |sum, square| {
                assert_eq!(all.insert(sum, square.to_bits()), None, "sum {sum}");
            });
        }
        all
    }

    fn parameter(rows: usize, columns: usize, is_first: bool, division: &Division) -> Parameter {
        let mut parameter = Parameter::new("w", &[rows, columns], Init::Zeros, 0);
        parameter.divide(is_first, division);
        parameter
    }

    #[test]
    fn the_sums_of_all_shards_are_those_of_the_whole() {
        for (units, widths, other) in [(700, &[1][..], 300), (9, &[60, 20, 20], 500), (9, &[2, 2], 70_000)] {
            for groups in [2, 8] {
                let of = |index, of| Sharding::new(groups, Shard { index, of }).expect("they fit");
                let whole = Division::new(of(0, 1), units, widths).expect("it fits");
                let [along, both] = [[whole.len(), other], [other, whole.len()]];
                for (is_first, [rows, columns]) in [(true, along), (false, both)] {
                    let mut all = parameter(rows, columns, is_first, &whole);
                    rng::fill_normal(rng::key(1, "grad"), 1.0, &mut all.grad);
                    let pieces = all.pieces();
                    assert_eq!(pieces.within(0..pieces.length()), 0..pieces.count());
                    assert_eq!(pieces.numbers(0..pieces.count()), 0..all.grad.len());
                    let expected = sums(&all);
                    assert!(expected.keys().copied().eq(0..expected.len()), "numbered in order");
                    for count in [1, 2, 4, 8].into_iter().filter(|count| *count <= groups) {
                        let mut found = BTreeMap::new();
                        for index in 0..count {
                            let division = Division::new(of(index, count), units, widths).expect("it fits");
                            let own: Vec<usize> = division.own().into_iter().flatten().collect();
                            let [rows, columns] = match is_first {
                                true => [own.len(), columns],
                                false => [rows, own.len()],
                            };
                            let mut shard = parameter(rows, columns, is_first, &division);
                            for (at, grad) in shard.grad.iter_mut().enumerate() {
                                let (row, column) = (at / columns, at % columns);
                                let at = match is_first {
                                    true => own[row] * columns + column,
                                    false => row * whole.len() + own[column],
                                };
                                *grad = all.grad[at];
                            }
                            found.extend(sums(&shard));
                        }
                        assert_eq!(found, expected, "{units} {widths:?}, {groups} groups, {count} shards");
                    }
                }
            }
        }
    }
}
