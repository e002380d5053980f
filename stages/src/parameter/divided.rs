//! A parameter that is divided among shards: what it holds of the whole tensor, and the pieces in which the
//! norm of its gradient is added up.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use crate::cpu::lanes::sum_of_squares;
use crate::cuda::Together;
use crate::error::{Error, Result};
use crate::parameter::Parameter;
use crate::parameter::cut::{Cut, How};
use crate::parameter::description::PIECE;
use crate::parameter::init::starts_at_zero;
use crate::parameter::pieces::{Pieces, RowPieces};
use crate::shards::{Division, Shard};
use crate::tensor::numbers::Numbers;

impl Parameter {
    /// Keeps this shard's numbers only, of the whole tensor that it holds.
    pub(crate) fn keep_own(&mut self, is_first: bool, division: &Division) {
        if division.shard().of == 1 {
            return;
        }
        let how = if is_first { How::First } else { How::Last };
        let how = how(division.clone());
        let cut = Cut { dims: self.dims.clone(), fused: self.fused.clone(), how };
        let divided = if is_first { 0 } else { self.dims.len() - 1 };
        self.dims[divided] = division.len();
        if is_first && !self.fused.is_empty() {
            self.fused = division.own().iter().map(Range::len).collect();
        }
        self.shard = division.shard();
        let count = self.dims.iter().product();
        let whole = std::mem::replace(&mut self.value, Numbers::zeros(count));
        self.grad = Numbers::zeros(if self.is_frozen() { 0 } else { count });
        self.owned = 0..self.grad.len();
        self.cut = Some(cut);
        // Zeros need not be copied: a large tensor of zeros takes no memory until it is read.
        if !starts_at_zero() {
            let mut own = std::mem::take(&mut self.value);
            self.take_own(&whole, &mut own);
            self.value = own;
        }
    }

    /// Keeps all its numbers if this shard is the owner, and none otherwise.
    pub(crate) fn keep_if_owner(&mut self, owner: u32, shard: Shard) {
        if shard.of == 1 {
            return;
        }
        self.shard = shard;
        self.cut = Some(Cut { dims: self.dims.clone(), fused: self.fused.clone(), how: How::Only(owner) });
        if shard.index != owner {
            self.dims[0] = 0;
            self.fused.fill(0);
            (self.value, self.grad) = (Numbers::zeros(0), Numbers::zeros(0));
            self.owned = 0..0;
        }
    }

    /// The dimensions of the whole tensor, of which it may hold a part.
    pub fn whole_dims(&self) -> &[usize] {
        self.cut.as_ref().map_or(&self.dims, |cut| &cut.dims)
    }

    /// As [`Parameter::fused`], of the whole tensor.
    pub fn whole_fused(&self) -> &[usize] {
        self.cut.as_ref().map_or(&self.fused, |cut| &cut.fused)
    }

    /// The places of its own numbers in the whole tensor, in the order of its memory.
    pub fn own_places(&self) -> Vec<Range<usize>> {
        match &self.cut {
            Some(cut) => cut.ranges(self.shard.index),
            None => iter::once(0..self.count()).collect(),
        }
    }

    /// Copies its own numbers out of the numbers of the whole tensor.
    ///
    /// # Panics
    /// When there are too few numbers.
    pub fn take_own(&self, whole: &[f32], mut own: &mut [f32]) {
        for range in self.own_places() {
            let (to, rest) = own.split_at_mut(range.len());
            to.copy_from_slice(&whole[range]);
            own = rest;
        }
    }

    /// Copies a shard's numbers to their places in the whole tensor.
    ///
    /// # Panics
    /// When there are too few numbers.
    pub fn put_in_whole(&self, shard: u32, mut own: &[f32], whole: &mut [f32]) {
        let Some(cut) = &self.cut else {
            return whole.copy_from_slice(own);
        };
        for range in cut.ranges(shard) {
            let (from, rest) = own.split_at(range.len());
            whole[range].copy_from_slice(from);
            own = rest;
        }
    }
}

impl Parameter {
    /// The length of a piece: this number of consecutive numbers, or what is left at the end; but see
    /// [`Division`]. The norm of a gradient is added up piece by piece, and replicas share the update
    /// of a parameter by whole pieces.
    pub const PIECE: usize = PIECE;

    /// Keeps this shard's rows: its places of the first dimension, which is divided. For a layer of one's
    /// own, after [`Parameter::new`] and before anything else. The norm of the gradient has the same bits
    /// for any number of shards.
    ///
    /// # Errors
    /// When the parameter has not as many rows as the division has places.
    pub fn divide_rows(&mut self, division: &Division) -> Result<()> {
        let (rows, places) = (self.dims[0], division.of_whole().len());
        if rows != places {
            return Err(Error::new(format!(
                "`{}` has {rows} rows, and its division {places} places: they have to be equal",
                self.name()
            )));
        }
        self.divide(true, division);
        Ok(())
    }

    /// Says that the first dimension, or else the last one, is divided among shards. Its pieces are then
    /// whole rows, and no sum of squares has numbers of two groups: see
    /// [`Sharding::groups`](crate::Sharding::groups).
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

    /// Calls `tell` with each sum of the squares of a piece of the gradient: its number among the sums of
    /// the whole tensor, and the sum in double precision, always added up in the same order. A [running
    /// mean](Parameter::running) has no gradient: its sum is 0, or NaN if a number is not finite. On a GPU
    /// it is the sum of the last [start](Parameter::start_grad_squares); the GPU must be done.
    pub fn grad_squares(&self, piece: usize, mut tell: impl FnMut(usize, f64)) {
        let is_running = self.running_share().is_some();
        let pieces = self.pieces();
        if let Some(weights) = self.on_gpu() {
            let (first, count) = match &pieces {
                Pieces::Even(_) => (piece, 1),
                Pieces::Rows(rows) => (rows.sums[piece], rows.sums_of_piece()),
            };
            let squares = weights.squares()[piece * count..][..count].iter();
            return (first..).zip(squares).for_each(|(sum, squares)| {
                tell(sum, if is_running { 0.0 * squares } else { *squares });
            });
        }
        let numbers = self.in_gradient(pieces.numbers(piece..piece + 1));
        self.squares_of(&self.grad[numbers], piece, tell);
    }

    /// As [`Parameter::grad_squares`], of these numbers of a piece, on the CPU.
    pub(super) fn squares_of(&self, numbers: &[f32], piece: usize, mut tell: impl FnMut(usize, f64)) {
        let is_running = self.running_share().is_some();
        let pieces = self.pieces();
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
    /// the CPU, or if the parameter follows another one.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn start_grad_squares(&self, together: &mut Together) -> Result<()> {
        let weights = self.on_gpu().filter(|_| !self.follows());
        weights.map_or(Ok(()), |weights| weights.start_squares(together))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::parameter::init::Init;
    use crate::rng;
    use crate::shards::Sharding;

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
                            let mut shard = parameter(rows, columns, is_first, &division);
                            let width = if is_first { columns } else { own.len() };
                            for (at, grad) in shard.grad.iter_mut().enumerate() {
                                let (row, column) = (at / width, at % width);
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
