//! What a layer is.

use crate::error::Result;
use crate::kept::Kept;
use crate::parameter::Parameter;
use crate::shape::Shape;
use crate::stage::ForwardContext;
use crate::tensor::Tensor;

/// One layer of a [`crate::Sequential`] stage, with forward, backward-input and backward-weight as three functions.
///
/// The `Result` of these functions is [`crate::Result`]; as seen from the engine `pipewright::stages::Result`, and not
/// `pipewright::Result`. Check a layer of your own with [`crate::testing::check_gradients`].
///
/// Weight gradients are sums over the rows of a micro-batch, never means: the step divides once by the total weight.
pub trait Layer: std::fmt::Debug + 'static {
    /// The name errors and partitions use, such as `h.3.attn`.
    fn name(&self) -> &str;

    /// Whether the layer also runs on GPUs: its tensors and parameters are there when its stage is.
    ///
    /// A layer of your own can say `true` when all that it does with tensors is to give them to ready layers inside of
    /// it. There is no public way to launch a kernel yet, and [`Tensor::f32`] does not read the memory of a GPU: a layer
    /// that computes by itself runs on the CPU only, and its rank has to be there.
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
