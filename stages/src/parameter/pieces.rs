//! The pieces of a parameter's gradient, in which its norm is added up, and how it is divided among shards.

use std::ops::Range;
use std::sync::Arc;

use crate::parameter::description::PIECE;
use crate::shards::Division;

/// Where the pieces of a parameter's gradient lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// This many numbers in pieces of [`PIECE`](crate::Parameter::PIECE) numbers, and what is left at the
    /// end.
    Even(usize),
    /// Pieces of rows of a tensor that is divided among shards.
    Rows(Arc<RowPieces>),
}

/// Pieces of whole rows. Each has a sum for every group of the tensor's division, so that the sums are the
/// same for any number of shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPieces {
    /// The end of each piece among this shard's numbers.
    pub(super) ends: Vec<usize>,
    /// The number of the first sum of each piece among the sums of the whole tensor.
    pub(super) sums: Vec<usize>,
    /// The columns of each group here, if rows are divided: a piece has a sum for each.
    pub(super) columns: Vec<Vec<Range<usize>>>,
    /// The numbers of a row.
    pub(super) row: usize,
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
    pub(super) fn new(dims: &[usize], is_first: bool, division: &Division) -> Self {
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

impl RowPieces {
    /// How many sums there are here.
    pub(super) fn sums_here(&self) -> usize {
        self.ends.len() * self.sums_of_piece()
    }

    /// How many sums a piece has.
    pub(super) fn sums_of_piece(&self) -> usize {
        self.columns.len().max(1)
    }

    /// Where the numbers of each sum are, for a GPU. They are blocks of rows and columns. First, for each sum
    /// the number of its first block, and the number of all blocks. Then four numbers for each block: its
    /// first place, its rows, its columns, and the numbers from one row to the next.
    pub(super) fn table(&self) -> Vec<u64> {
        let (mut firsts, mut blocks) = (vec![0], Vec::new());
        let mut start = 0;
        for &end in &self.ends {
            if self.columns.is_empty() {
                blocks.push([start, 1, end - start, end - start]);
                firsts.push(blocks.len());
            }
            for columns in &self.columns {
                let of = |columns: &Range<usize>| {
                    [start + columns.start, (end - start) / self.row, columns.len(), self.row]
                };
                blocks.extend(columns.iter().map(of));
                firsts.push(blocks.len());
            }
            start = end;
        }
        firsts.into_iter().chain(blocks.into_iter().flatten()).map(|number| number as u64).collect()
    }
}

/// How many rows of this many numbers a piece has.
fn rows_of_piece(row: usize) -> usize {
    (PIECE / row.max(1)).max(1)
}
