//! A matrix of one expert, and its products.

use std::ops::Range;

use crate::cpu::matmul::Start;
use crate::cpu::matrix::Matrix;
use crate::cpu::vector::vector_product;
use crate::layers::operands::{Factor, Layout, Operand, adds_in_place, matrix};
use crate::parameter::{Init, Parameter};

/// A matrix `[outputs, inputs]`, with its copies in the order of products.
#[derive(Debug)]
pub(super) struct Weight {
    pub(super) parameter: Parameter,
    forward: Operand,
    backward: Operand,
}

impl Weight {
    pub(super) fn new(name: String, [inputs, outputs]: [usize; 2], init: Init, seed: u64) -> Self {
        Self {
            parameter: Parameter::new(name, &[outputs, inputs], init, seed).asked_by_layer(),
            forward: Operand::default(),
            backward: Operand::default(),
        }
    }

    /// Drops the packed copies: the weights may change.
    pub(super) fn forget_packed(&mut self) {
        self.forward = Operand::default();
        self.backward = Operand::default();
    }

    /// The outputs of these rows of inputs.
    pub(super) fn forward<N: Factor>(&mut self, out: &mut [N], inputs: &[N], rows: &Range<usize>) {
        let (weight, [outputs, width]) = (matrix(&self.parameter, Layout::OutIn), self.dims());
        let inputs = Matrix::new(part(inputs, rows, width), width);
        let out = part_mut(out, rows, outputs);
        N::multiply(&mut self.forward, out, Start::Zero, inputs, weight);
    }

    /// The output of the first row, without a packed copy.
    pub(super) fn forward_row(&self, out: &mut [f32], input: &[f32]) {
        let ([outputs, inputs], weight) = (self.dims(), matrix(&self.parameter, Layout::OutIn));
        vector_product(&mut out[..outputs], Start::Zero, &input[..inputs], weight);
    }

    /// The gradients of the inputs in these rows.
    pub(super) fn backward<N: Factor>(&mut self, out: &mut [N], grads: &[N], rows: &Range<usize>) {
        let [outputs, inputs] = self.dims();
        let weight = matrix(&self.parameter, Layout::OutIn).t();
        let grads = Matrix::new(part(grads, rows, outputs), outputs);
        let out = part_mut(out, rows, inputs);
        N::multiply(&mut self.backward, out, Start::Zero, grads, weight);
    }

    /// Adds the weight gradient of these rows. There may be none.
    pub(super) fn add_grad<N: Factor>(&mut self, grads: &[N], inputs: &[N], rows: &Range<usize>) {
        let [outputs, width] = self.dims();
        let start = match self.parameter.starts_sum(adds_in_place(rows.len())) {
            true if rows.is_empty() => return self.parameter.grad.fill(0.0),
            true => Start::Zero,
            false if rows.is_empty() => return,
            false => Start::Old,
        };
        let grads = Matrix::new(part(grads, rows, outputs), outputs);
        let inputs = Matrix::new(part(inputs, rows, width), width);
        N::add_turned_product(&mut self.parameter.grad, start, grads, inputs);
    }

    fn dims(&self) -> [usize; 2] {
        let &[outputs, inputs] = self.parameter.dims() else {
            unreachable!("it is a matrix")
        };
        [outputs, inputs]
    }
}

fn part<'a, N>(numbers: &'a [N], rows: &Range<usize>, width: usize) -> &'a [N] {
    &numbers[rows.start * width..rows.end * width]
}

fn part_mut<'a, N>(numbers: &'a mut [N], rows: &Range<usize>, width: usize) -> &'a mut [N] {
    &mut numbers[rows.start * width..rows.end * width]
}
