//! A low-rank adapter of a linear layer.

use std::ops::Range;

use super::divided::Divided;
use super::weight_matrix::WeightMatrix;
use crate::error::Result;
use crate::layers::Dropout;
use crate::parameter::Parameter;
use crate::parameter::init::Init;
use crate::stage::layer::{Layer, Lora};
use crate::stage::{ForwardContext, WRITING};
use crate::tensor::Tensor;

/// Adds `scale (dropout(x) A^T) B^T` to some columns of a linear layer's output: see [`Lora`].
#[derive(Debug)]
pub(crate) struct Adapter {
    /// The columns of the output.
    columns: Range<usize>,
    scale: f32,
    dropout: Option<Dropout>,
    /// `A^T`, `[inputs, rank]`.
    down: WeightMatrix,
    /// `B^T`, `[rank, columns]`.
    up: WeightMatrix,
}

impl Adapter {
    /// The adapter of these columns, for rows of `inputs` numbers, of a layer that is divided like this.
    pub(crate) fn new(
        target: &str,
        inputs: usize,
        columns: Range<usize>,
        lora: Lora,
        divided: Option<&Divided>,
    ) -> Result<Self> {
        let (rank, outputs) = (lora.rank, columns.len());
        let parameter = |which: &str, dims: [usize; 2], init| {
            let name = format!("{target}.lora_{which}.weight");
            // Weights that are read right after belong to the layer, not to the adapter.
            Parameter::new(name, &dims, Init::Zeros, lora.seed).started(init, lora.seed)
        };
        let init = Init::Uniform(1.0 / (inputs as f32).sqrt());
        let dropout = Dropout::new(&format!("{target}.lora_dropout"), lora.dropout, lora.seed)?;
        let mut down = WeightMatrix::new([inputs, rank], parameter("a", [rank, inputs], init));
        let mut up = WeightMatrix::new([rank, outputs], parameter("b", [outputs, rank], Init::Zeros));
        if let Some(divided) = divided {
            let [of_inputs, of_outputs] = divided.depth_groups_within(&columns);
            down.add_up_in(of_inputs, None);
            up.add_up_in(None, of_outputs);
        }
        Ok(Self { down, up, dropout: (lora.dropout > 0.0).then_some(dropout), scale: lora.scale(), columns })
    }

    /// Adds the adapter's part to the output.
    pub(crate) fn forward(&mut self, ctx: ForwardContext, output: &mut Tensor, input: &Tensor) -> Result<()> {
        let input = self.dropped(ctx, input)?;
        let inner = self.down.forward(&input, None)?;
        let more = self.up.forward(&inner, None)?;
        output.add_columns(self.columns.clone(), &more, self.scale)
    }

    /// As [`Adapter::forward`], when text is written.
    pub(crate) fn forward_next(&mut self, output: &mut Tensor, input: &Tensor) -> Result<()> {
        let input = self.dropped(WRITING, input)?;
        let inner = self.down.forward_next(&input, None)?;
        let more = self.up.forward_next(&inner, None)?;
        output.add_columns(self.columns.clone(), &more, self.scale)
    }

    /// Adds the adapter's part to the input gradient.
    pub(crate) fn backward_input(
        &mut self,
        ctx: ForwardContext,
        input_grad: &mut Tensor,
        grad: &Tensor,
    ) -> Result<()> {
        let grad = grad.columns(self.columns.clone(), self.scale)?;
        let inner_grad = self.up.input_grad(&grad)?;
        let mut more = self.down.input_grad(&inner_grad)?;
        if let Some(dropout) = &mut self.dropout {
            more = dropout.forward(ctx, more)?.0;
        }
        let all = 0..input_grad.shape().last();
        input_grad.add_columns(all, &more, 1.0)
    }

    /// Adds the gradients of both matrices. What is between them is computed again: it is narrow.
    pub(crate) fn backward_weight(
        &mut self,
        ctx: ForwardContext,
        input: &Tensor,
        grad: &Tensor,
    ) -> Result<()> {
        let input = self.dropped(ctx, input)?;
        let grad = grad.columns(self.columns.clone(), self.scale)?;
        let inner = self.down.forward(&input, None)?;
        let inner_grad = self.up.input_grad(&grad)?;
        self.up.add_grad(&inner, &grad)?;
        self.down.add_grad(&input, &inner_grad)
    }

    /// Adds what the adapter adds to the weights `[outputs, inputs]` of its layer: `at` is the place of one.
    pub(crate) fn merge(&self, weights: &mut [f32], at: impl Fn(usize, usize) -> usize) {
        let [inputs, rank] = self.down.sizes();
        let (down, up) = (&self.down.parameter().value, &self.up.parameter().value);
        let mut sums = vec![0.0_f32; inputs];
        for (row, column) in self.columns.clone().enumerate() {
            sums.fill(0.0);
            for (&b, a) in up[row * rank..][..rank].iter().zip(down.chunks_exact(inputs)) {
                sums.iter_mut().zip(a).for_each(|(sum, a)| *sum += b * a);
            }
            for (input, sum) in sums.iter().enumerate() {
                weights[at(column, input)] += self.scale * sum;
            }
        }
    }

    /// Both matrices.
    pub(crate) fn matrices(&mut self) -> [&mut WeightMatrix; 2] {
        [&mut self.down, &mut self.up]
    }

    /// The input after dropout.
    fn dropped(&mut self, ctx: ForwardContext, input: &Tensor) -> Result<Tensor> {
        match &mut self.dropout {
            Some(dropout) => Ok(dropout.forward(ctx, input.clone())?.0),
            None => Ok(input.clone()),
        }
    }
}
