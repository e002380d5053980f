//! What a layer is.

use crate::error::Result;
use crate::kept::Kept;
use crate::parameter::Parameter;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// One layer of a [`crate::Sequential`] stage, with forward, backward-input and backward-weight as three functions.
///
/// Weight gradients are sums over the rows of a micro-batch, never means: the step divides once by the total weight.
pub trait Layer: std::fmt::Debug + 'static {
    /// The name errors and partitions use, such as `h.3.attn`.
    fn name(&self) -> &str;

    /// Whether the layer also runs on GPUs: its tensors and parameters are there when its stage is.
    fn runs_on_gpus(&self) -> bool {
        false
    }

    /// The shape of the output for an input of `input`.
    ///
    /// # Errors
    /// When the layer cannot work on such an input.
    fn output_shape(&self, input: &Shape) -> Result<Shape>;

    /// Output, and what backward-input will need.
    ///
    /// # Errors
    /// Whatever stops the layer, such as a token outside the vocabulary.
    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)>;

    /// Input gradient (`None` where the input has none), and what backward-weight will need.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)>;

    /// What [`Layer::forward`] in training keeps, once more. A layer may override it to leave out what only the output needs.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        Ok(self.forward(ctx, input)?.1)
    }

    /// What forward keeps, where that does not depend on the input: a forward once more stops before such layers at its end.
    fn kept_without_input(&self, _ctx: ForwardContext) -> Option<Kept> {
        None
    }

    /// Adds this micro-batch's weight gradients; the default is for layers without parameters.
    ///
    /// # Errors
    /// Whatever stops the layer.
    fn backward_weight(&mut self, _pending: Kept) -> Result<()> {
        Ok(())
    }

    /// Shows every parameter, in an order that never changes; the default is for layers without parameters. Weights change in no
    /// other way, so a layer that holds something made of them lets go of it here.
    fn visit_parameters<'a>(&'a mut self, _visit: &mut dyn FnMut(&'a mut Parameter)) {}

    /// The parameters, as [`Layer::visit_parameters`] shows them: that is the one to write for a layer of one's own.
    fn parameters(&mut self) -> Vec<&mut Parameter> {
        let mut all = Vec::new();
        self.visit_parameters(&mut |parameter| all.push(parameter));
        all
    }

    /// Told once, before training, to the first layer with parameters of a model: nobody uses its input gradient, and
    /// backward-input may give `None`.
    fn drop_input_gradient(&mut self) {}

    /// Told once, before training: a composite layer keeps only its input, and backward-input makes the rest again. Others do
    /// nothing.
    fn recompute_interior(&mut self) {}
}
