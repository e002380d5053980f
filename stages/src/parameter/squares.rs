//! The norm of a gradient, piece by piece.

use std::ops::Range;

use crate::cpu::lanes::sum_of_squares;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::description::PIECE;

impl Parameter {
    /// The length of a piece: this number of consecutive numbers, or what is left at the end. The norm of a
    /// gradient is added up piece by piece, and replicas share the update of a parameter by whole pieces.
    pub const PIECE: usize = PIECE;

    /// How many pieces its gradient has.
    pub fn pieces(&self) -> usize {
        self.trained().div_ceil(Self::PIECE)
    }

    /// The numbers of a piece.
    pub fn piece(&self, piece: usize) -> Range<usize> {
        let start = piece * Self::PIECE;
        start..(start + Self::PIECE).min(self.trained())
    }

    /// Starts the GPU's part of [`Parameter::grad_squares`], which may wait in `together`. Does nothing on
    /// the CPU.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn start_grad_squares(&self, together: &mut Together) -> Result<()> {
        self.on_gpu().map_or(Ok(()), |weights| weights.start_squares(together))
    }

    /// The sum of the squares of a piece of the gradient, in double precision, always added up in the same
    /// order. A [running mean](Parameter::running) has no gradient: its sum is 0, or NaN if a number is not
    /// finite. On a GPU it is the sum of the last [start](Parameter::start_grad_squares); the GPU must be
    /// done.
    pub fn grad_squares(&self, piece: usize) -> f64 {
        if let Some(weights) = self.on_gpu() {
            let squares = weights.squares()[piece];
            return match self.running_share() {
                None => squares,
                Some(_) => 0.0 * squares,
            };
        }
        let numbers = &self.grad[self.piece(piece)];
        match self.running_share() {
            None => sum_of_squares(numbers),
            Some(_) => numbers.iter().fold(0.0, |all, number| all + 0.0 * f64::from(*number)),
        }
    }
}
