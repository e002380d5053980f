//! Layer normalisation.

use crate::error::Result;
use crate::layers::Cheap;
use crate::layers::norm::RowNorm;
use crate::parameter::Parameter;
use crate::stage::ForwardContext;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::shape::Shape;

/// Added to the variance, as in PyTorch.
const EPSILON: f32 = 1e-5;

/// Normalises the innermost dimension to mean 0 and standard deviation 1, then scales and shifts it. Ba,
/// Kiros and Hinton, "Layer normalization" (2016).
///
/// Parameters: `{name}.weight` (starts at 1) and `{name}.bias` (starts at 0). It keeps its input and two
/// numbers for each row.
#[derive(Debug)]
pub struct LayerNorm(RowNorm);

impl LayerNorm {
    /// A layer for rows of `width` numbers.
    pub fn new(name: &str, width: usize) -> Self {
        Self(RowNorm::new(name, width, EPSILON, true))
    }
}

impl Cheap for LayerNorm {
    fn backward_with_output(&mut self, saved: Kept, grad: Tensor) -> Result<(Tensor, Kept, Tensor)> {
        self.0.backward_with_output(saved, grad)
    }

    fn backward_with_output_onto(
        &mut self,
        saved: Kept,
        grad: Tensor,
        onto: Tensor,
    ) -> Result<(Tensor, Kept, Tensor)> {
        self.0.backward_with_output_onto(saved, grad, onto)
    }
}

impl Layer for LayerNorm {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn runs_on_gpus(&self) -> bool {
        self.0.runs_on_gpus()
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.0.output_shape(input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        self.0.forward(ctx, input)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        self.0.backward_input(saved, grad)
    }

    fn backward_input_onto(&mut self, saved: Kept, grad: Tensor, onto: Tensor) -> Result<(Tensor, Kept)> {
        self.0.backward_input_onto(saved, grad, onto)
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        self.0.backward_weight(pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.0.visit_parameters(visit);
    }
}
