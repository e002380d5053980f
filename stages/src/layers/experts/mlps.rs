//! The experts themselves: all their products, on rows that are sorted by expert.

use std::ops::Range;

use super::choice::Choice;
use super::routing::Routing;
use crate::cpu::{experts, gated};
use crate::error::Result;
use crate::init::Init;
use crate::layers::GateForm;
use crate::layers::operands::Factor;
use crate::layers::weight_matrix::WeightMatrix;
use crate::parameter::Parameter;
use crate::tensor::Tensor;

/// The experts of a layer, and their sizes.
#[derive(Debug)]
pub(super) struct Mlps {
    experts: Vec<Expert>,
    dim: usize,
    ffn: usize,
}

#[derive(Debug)]
struct Expert {
    gate_up: WeightMatrix,
    down: WeightMatrix,
}

impl Mlps {
    pub(super) fn new(name: &str, [dim, ffn]: [usize; 2], routing: Routing, init: Init, seed: u64) -> Self {
        let matrix = |index: usize, which: &str, [inputs, outputs]: [usize; 2]| {
            let name = format!("{name}.experts.{index}.{which}.weight");
            WeightMatrix::new(
                [inputs, outputs],
                Parameter::new(name, &[outputs, inputs], init, seed),
            )
        };
        let expert = |index| Expert {
            gate_up: matrix(index, "gate_up", [dim, 2 * ffn]),
            down: matrix(index, "down", [ffn, dim]),
        };
        Self {
            experts: (0..routing.experts).map(expert).collect(),
            dim,
            ffn,
        }
    }

    /// Whether any of them is trained.
    pub(super) fn are_trained(&self) -> bool {
        let is_trained = |matrix: &WeightMatrix| !matrix.parameter().is_frozen();
        let mut experts = self.experts.iter();
        experts.any(|expert| is_trained(&expert.gate_up) || is_trained(&expert.down))
    }

    /// Calls `visit` with all parameters, for a caller that may change weights.
    pub(super) fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        for expert in &mut self.experts {
            visit(expert.gate_up.for_weights());
            visit(expert.down.for_weights());
        }
    }

    /// Calls `visit` with all parameters, for a caller that changes gradients only.
    pub(super) fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        for expert in &mut self.experts {
            visit(expert.gate_up.for_gradients());
            visit(expert.down.for_gradients());
        }
    }

    /// The experts that have rows.
    fn busy(&mut self, choice: &Choice) -> impl Iterator<Item = (&mut Expert, Range<usize>)> {
        self.experts
            .iter_mut()
            .zip(choice.rows())
            .filter(|(_, rows)| !rows.is_empty())
    }

    /// Gate and up of every row.
    pub(super) fn gate_up<N: Factor>(&mut self, choice: &Choice, input: &Tensor) -> Result<Tensor> {
        let mut inputs = beside(input, choice, self.dim)?;
        experts::take::<N>(inputs.numbers_mut(), input.numbers(), &choice.tokens, self.dim);
        let mut gate_up = beside(input, choice, 2 * self.ffn)?;
        for (expert, rows) in self.busy(choice) {
            let out = gate_up.numbers_mut::<N>();
            expert.gate_up.forward_rows(out, inputs.numbers(), &rows);
        }
        Ok(gate_up)
    }

    /// The output, from gate and up.
    pub(super) fn output<N: Factor>(
        &mut self,
        choice: &Choice,
        gate_up: &Tensor,
        input: &Tensor,
    ) -> Result<Tensor> {
        let mut values = beside(input, choice, self.ffn)?;
        gated::forward::<N>(GateForm::Silu, values.numbers_mut(), gate_up.numbers(), self.ffn);
        let mut outputs = beside(input, choice, self.dim)?;
        for (expert, rows) in self.busy(choice) {
            let out = outputs.numbers_mut::<N>();
            expert.down.forward_rows(out, values.numbers(), &rows);
        }
        self.mixed::<N>(choice, &outputs, input)
    }

    /// The outputs of all experts, added up for each token.
    fn mixed<N: Factor>(&self, choice: &Choice, outputs: &Tensor, input: &Tensor) -> Result<Tensor> {
        let mut output = input.beside(input.dims())?;
        let sums = output.numbers_mut::<N>();
        sums.fill(N::narrow(0.0));
        let (places, weights) = (&choice.places, Some(&choice.weights[..]));
        experts::add_mixed(sums, outputs.numbers(), places, weights, self.dim);
        Ok(output)
    }

    /// The output of one token of `f32`, without packed copies of weights.
    pub(super) fn next(&self, choice: &Choice, input: &Tensor) -> Result<Tensor> {
        let mut gate_up = beside(input, choice, 2 * self.ffn)?;
        let mut values = beside(input, choice, self.ffn)?;
        let mut outputs = beside(input, choice, self.dim)?;
        let of_token = || {
            self.experts
                .iter()
                .zip(choice.rows())
                .filter(|(_, rows)| !rows.is_empty())
        };
        let rows = || of_token().map(|(expert, rows)| (expert, rows.start));
        for (expert, row) in rows() {
            let out = &mut gate_up.f32_mut()[2 * self.ffn * row..][..2 * self.ffn];
            expert.gate_up.forward_row(out, input.f32());
        }
        gated::forward::<f32>(GateForm::Silu, values.f32_mut(), gate_up.f32(), self.ffn);
        for (expert, row) in rows() {
            let out = &mut outputs.f32_mut()[self.dim * row..][..self.dim];
            expert
                .down
                .forward_row(out, &values.f32()[self.ffn * row..][..self.ffn]);
        }
        self.mixed::<f32>(choice, &outputs, input)
    }

    /// Gradients of gate and up, in place of them, the slope of each row's weight, and the inputs of the
    /// second products times these weights.
    pub(super) fn inner_grads<N: Factor>(
        &mut self,
        choice: &Choice,
        gate_up: &mut Tensor,
        grad: &Tensor,
    ) -> Result<[Tensor; 2]> {
        let mut grads = beside(grad, choice, self.dim)?;
        experts::take::<N>(grads.numbers_mut(), grad.numbers(), &choice.tokens, self.dim);
        let mut inner = beside(grad, choice, self.ffn)?;
        for (expert, rows) in self.busy(choice) {
            expert
                .down
                .backward_rows(inner.numbers_mut::<N>(), grads.numbers(), &rows);
        }
        let (mut values, ffn) = (beside(grad, choice, self.ffn)?, self.ffn);
        gated::forward::<N>(GateForm::Silu, values.numbers_mut(), gate_up.numbers(), ffn);
        let weights = &choice.weights;
        let mut slopes = Tensor::on_host(&[weights.len()])?;
        let both = (inner.numbers_mut::<N>(), values.numbers_mut());
        experts::weigh(both.0, both.1, weights, slopes.f32_mut(), ffn);
        gated::backward::<N>(GateForm::Silu, inner.numbers(), gate_up.numbers_mut(), ffn);
        Ok([slopes, values])
    }

    /// Adds what comes through the experts to the input gradient.
    pub(super) fn add_input_grad<N: Factor>(
        &mut self,
        choice: &Choice,
        input_grad: &mut Tensor,
        gate_up: &Tensor,
    ) -> Result<()> {
        let mut rows_grad = beside(input_grad, choice, self.dim)?;
        for (expert, rows) in self.busy(choice) {
            let out = rows_grad.numbers_mut::<N>();
            expert.gate_up.backward_rows(out, gate_up.numbers(), &rows);
        }
        let sums = input_grad.numbers_mut::<N>();
        experts::add_mixed(sums, rows_grad.numbers(), &choice.places, None, self.dim);
        Ok(())
    }

    /// Adds the weight gradients of all experts.
    pub(super) fn add_grads<N: Factor>(
        &mut self,
        choice: &Choice,
        [input, grad]: [&Tensor; 2],
        [gate_up, values]: [&Tensor; 2],
    ) -> Result<()> {
        let mut rows_of = beside(input, choice, self.dim)?;
        experts::take::<N>(rows_of.numbers_mut(), grad.numbers(), &choice.tokens, self.dim);
        for (expert, rows) in self.experts.iter_mut().zip(choice.rows()) {
            expert
                .down
                .add_grad_of_rows::<N>(values.numbers(), rows_of.numbers(), &rows);
        }
        experts::take::<N>(rows_of.numbers_mut(), input.numbers(), &choice.tokens, self.dim);
        for (expert, rows) in self.experts.iter_mut().zip(choice.rows()) {
            expert
                .gate_up
                .add_grad_of_rows::<N>(rows_of.numbers(), gate_up.numbers(), &rows);
        }
        Ok(())
    }
}

/// A tensor for the rows of all experts.
fn beside(tokens: &Tensor, choice: &Choice, width: usize) -> Result<Tensor> {
    tokens.beside(&[choice.tokens.len(), width])
}
