//! The residual connection.

use crate::cpu::elementwise;
use crate::cpu::real::in_format;
use crate::error::{Result, ShapeError};
use crate::kept::Kept;
use crate::layer::Layer;
use crate::lora::ChooseLora;
use crate::next;
use crate::parameter::Parameter;
use crate::sequential;
use crate::shape::Shape;
use crate::stage::{ForwardContext, Mode};
use crate::tensor::Tensor;

/// `x + f(x)`, where `f` is a chain of layers that keeps the shape. He et al., "Deep residual learning"
/// (2016).
///
/// It keeps what the layers keep, or only its input if it recomputes its interior.
#[derive(Debug)]
pub struct Residual {
    name: String,
    layers: Vec<Box<dyn Layer>>,
    recompute: bool,
}

impl Residual {
    /// A residual connection around these layers.
    pub fn new(name: &str, layers: Vec<Box<dyn Layer>>) -> Self {
        Self {
            name: name.to_owned(),
            layers,
            recompute: false,
        }
    }

    /// What the layers keep. Runs them again if only the input was kept.
    fn restore(&mut self, saved: Kept) -> Result<Kept> {
        if !self.recompute {
            return Ok(saved);
        }
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        sequential::forward_again((&mut self.layers, None), ctx, input)
    }
}

impl Layer for Residual {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        self.layers.iter().all(|layer| layer.runs_on_gpus())
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let output = sequential::output_shape(&self.layers, input)?;
        if output == *input {
            return Ok(output);
        }
        let input = *input;
        Err(ShapeError::Residual { input, output }.into())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let (mut output, kept) = sequential::forward((&mut self.layers, None), ctx, input.clone())?;
        add(&mut output, &input)?;
        if self.recompute && ctx.mode == Mode::Train {
            return Ok((output, Kept::new(ctx, [input])));
        }
        Ok((output, kept))
    }

    fn forward_again(&mut self, ctx: ForwardContext, input: Tensor) -> Result<Kept> {
        if self.recompute {
            return Ok(Kept::new(ctx, [input]));
        }
        sequential::forward_again((&mut self.layers, None), ctx, input)
    }

    fn forward_next(&mut self, past: usize, input: Tensor) -> Result<Tensor> {
        let mut output = next::forward_next((&mut self.layers, None), past, input.clone())?;
        add(&mut output, &input)?;
        Ok(output)
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let saved = self.restore(saved)?;
        let (inner, pending) = sequential::backward_input((&mut self.layers, None), saved, grad.clone())?;
        let Some(mut input_grad) = inner else {
            return Ok((Some(grad), pending));
        };
        add(&mut input_grad, &grad)?;
        Ok((Some(input_grad), pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        sequential::backward_weight((&mut self.layers, None), pending)
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        sequential::visit_parameters(&mut self.layers, visit);
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        sequential::visit_gradients(&mut self.layers, visit);
    }

    fn adapt(&mut self, choose: &mut ChooseLora<'_>) -> Result<()> {
        let mut layers = self.layers.iter_mut();
        layers.try_for_each(|layer| layer.adapt(choose))
    }

    fn merge_adapters(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.merge_adapters());
    }

    fn hold_in_bf16(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.hold_in_bf16());
    }

    fn recompute_interior(&mut self) {
        self.recompute = true;
    }
}

/// Adds `from` to `to`.
fn add(to: &mut Tensor, from: &Tensor) -> Result<()> {
    match from.gpu()? {
        Some(gpu) => {
            let at = to.at_mut(&gpu)?;
            gpu.add(from.dtype(), at, at, from.at(), from.shape().count())
        }
        None => {
            in_format!(from.dtype(), N => {
                elementwise::add(to.numbers_mut::<N>(), from.numbers::<N>());
            });
            Ok(())
        }
    }
}
