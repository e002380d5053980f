//! The experts themselves: all their products, on rows that are sorted by expert.

use std::ops::Range;

use super::placed::Placed;
use super::routing::Routing;
use crate::error::Result;
use crate::layers::linear::weight_matrix::WeightMatrix;
use crate::layers::{GateForm, gated};
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::shards::Division;
use crate::tensor::Tensor;

/// The activation of an expert.
const FORM: GateForm = GateForm::Silu;

/// The product of some rows with a matrix: [`WeightMatrix::forward_rows`], or the one for writing text.
pub(super) type Multiply = fn(&mut WeightMatrix, &mut Tensor, &Tensor, &Range<usize>) -> Result<()>;

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
    /// `experts` says which shard has which of them. The others have no numbers here.
    pub(super) fn new(
        name: &str,
        [dim, ffn]: [usize; 2],
        experts: &Division,
        routing: Routing,
        init: Init,
        seed: u64,
    ) -> Self {
        let (shard, ends) = (experts.shard(), experts.ends());
        let matrix = |index: usize, which: &str, sizes: [usize; 2], fused: &[usize]| {
            let name = format!("{name}.experts.{index}.{which}.weight");
            let owner = ends.partition_point(|end| *end <= index) as u32;
            let init = if owner == shard.index { init } else { Init::Zeros };
            let [inputs, outputs] = sizes;
            let mut weight = Parameter::new(name, &[outputs, inputs], init, seed);
            if !fused.is_empty() {
                weight.fuse(fused);
            }
            weight.keep_if_owner(owner, shard);
            WeightMatrix::new(sizes, weight)
        };
        let expert = |index| Expert {
            gate_up: matrix(index, "gate_up", [dim, 2 * ffn], &[ffn, ffn]),
            down: matrix(index, "down", [ffn, dim], &[]),
        };
        Self { experts: (0..routing.experts).map(expert).collect(), dim, ffn }
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
    fn busy(&mut self, rows: &Placed<'_>) -> impl Iterator<Item = (&mut Expert, Range<usize>)> {
        self.experts.iter_mut().zip(rows.ranges()).filter(|(_, range)| !range.is_empty())
    }

    /// Gate and up of every row.
    pub(super) fn gate_up(
        &mut self,
        rows: &Placed<'_>,
        input: &Tensor,
        multiply: Multiply,
    ) -> Result<Tensor> {
        let inputs = rows.take(input)?;
        let mut gate_up = rows.beside(input, 2 * self.ffn)?;
        for (expert, range) in self.busy(rows) {
            multiply(&mut expert.gate_up, &mut gate_up, &inputs, &range)?;
        }
        Ok(gate_up)
    }

    /// The output of every row, from gate and up.
    pub(super) fn outputs(
        &mut self,
        rows: &Placed<'_>,
        gate_up: &Tensor,
        multiply: Multiply,
    ) -> Result<Tensor> {
        let values = self.values(rows, gate_up)?;
        let mut outputs = rows.beside(gate_up, self.dim)?;
        for (expert, range) in self.busy(rows) {
            multiply(&mut expert.down, &mut outputs, &values, &range)?;
        }
        Ok(outputs)
    }

    /// The inputs of the second products.
    fn values(&self, rows: &Placed<'_>, gate_up: &Tensor) -> Result<Tensor> {
        let mut values = rows.beside(gate_up, self.ffn)?;
        gated::forward(FORM, &mut values, gate_up)?;
        Ok(values)
    }

    /// The output of one token of `f32` on the CPU, without packed copies of weights.
    pub(super) fn next(&self, rows: &Placed<'_>, input: &Tensor) -> Result<Tensor> {
        let mut gate_up = rows.beside(input, 2 * self.ffn)?;
        let mut outputs = rows.beside(input, self.dim)?;
        let busy = || {
            let experts = self.experts.iter().zip(rows.ranges());
            let busy = experts.filter(|(_, range)| !range.is_empty());
            busy.map(|(expert, range)| (expert, range.start))
        };
        for (expert, row) in busy() {
            let out = &mut gate_up.f32_mut()[2 * self.ffn * row..][..2 * self.ffn];
            expert.gate_up.forward_row(out, input.f32());
        }
        let values = self.values(rows, &gate_up)?;
        for (expert, row) in busy() {
            let out = &mut outputs.f32_mut()[self.dim * row..][..self.dim];
            let values = &values.f32()[self.ffn * row..][..self.ffn];
            expert.down.forward_row(out, values);
        }
        rows.mixed(&outputs, input)
    }

    /// Gradients of gate and up, in place of them, the slope of each row's weight, and the inputs of the
    /// second products times these weights.
    pub(super) fn inner_grads(
        &mut self,
        rows: &Placed<'_>,
        gate_up: &mut Tensor,
        grad: &Tensor,
    ) -> Result<[Tensor; 2]> {
        let grads = rows.take(grad)?;
        let mut inner = rows.beside(grad, self.ffn)?;
        for (expert, range) in self.busy(rows) {
            expert.down.backward_rows(&mut inner, &grads, &range)?;
        }
        let mut values = self.values(rows, gate_up)?;
        let slopes = rows.weigh(&mut inner, &mut values)?;
        gated::backward(FORM, &inner, gate_up)?;
        Ok([slopes, values])
    }

    /// The input gradient of every row.
    pub(super) fn input_grads(&mut self, rows: &Placed<'_>, gate_up: &Tensor) -> Result<Tensor> {
        let mut grads = rows.beside(gate_up, self.dim)?;
        for (expert, range) in self.busy(rows) {
            expert.gate_up.backward_rows(&mut grads, gate_up, &range)?;
        }
        Ok(grads)
    }

    /// Adds the weight gradients of all second products.
    pub(super) fn add_down_grads(&mut self, rows: &Placed<'_>, values: &Tensor, grad: &Tensor) -> Result<()> {
        let grads = rows.take(grad)?;
        let mut all = self.experts.iter_mut().zip(rows.ranges());
        all.try_for_each(|(expert, range)| expert.down.add_grad_of_rows(values, &grads, &range))
    }

    /// Adds the weight gradients of all first products.
    pub(super) fn add_gate_up_grads(
        &mut self,
        rows: &Placed<'_>,
        input: &Tensor,
        gate_up: &Tensor,
    ) -> Result<()> {
        let inputs = rows.take(input)?;
        let mut all = self.experts.iter_mut().zip(rows.ranges());
        all.try_for_each(|(expert, range)| expert.gate_up.add_grad_of_rows(&inputs, gate_up, &range))
    }
}
