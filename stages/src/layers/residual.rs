//! The residual connection.

use crate::cpu::elementwise;
use crate::error::{Error, Result};
use crate::layer::{Kept, Layer};
use crate::parameter::Parameter;
use crate::sequential;
use crate::stage::Moment;
use crate::tensor::{Shape, Tensor};

/// `x + f(x)`, where `f` is a chain of layers that keeps the shape. He et al., "Deep residual learning" (2016).
#[derive(Debug)]
pub struct Residual {
    name: String,
    layers: Vec<Box<dyn Layer>>,
}

impl Residual {
    /// A layer around these.
    pub fn new(name: &str, layers: Vec<Box<dyn Layer>>) -> Self {
        Self {
            name: name.to_owned(),
            layers,
        }
    }
}

impl Layer for Residual {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let output = sequential::output_shape(&self.layers, input)?;
        if output == *input {
            return Ok(output);
        }
        Err(Error::invalid(format!(
            "the layers inside a residual must keep the shape: {input} became {output}"
        )))
    }

    fn forward(&mut self, at: Moment, input: Tensor) -> Result<(Tensor, Kept)> {
        let (mut output, kept) = sequential::forward(&mut self.layers, at, input.clone())?;
        elementwise::add(output.f32_mut(), input.f32());
        Ok((output, kept))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let (inner, pending) = sequential::backward_input(&mut self.layers, saved, grad.clone())?;
        let Some(mut input_grad) = inner else {
            return Ok((Some(grad), pending));
        };
        elementwise::add(input_grad.f32_mut(), grad.f32());
        Ok((Some(input_grad), pending))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        sequential::backward_weight(&mut self.layers, pending)
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        sequential::parameters(&mut self.layers)
    }
}
