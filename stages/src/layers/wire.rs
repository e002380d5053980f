//! Between two units of a model.

use crate::error::Result;
use crate::shape::Shape;
use crate::shards::Team;
use crate::stage::ForwardContext;
use crate::stage::borders::Borders;
use crate::stage::kept::Kept;
use crate::stage::layer::Layer;
use crate::tensor::Tensor;
use crate::tensor::wires::WireFormat;

/// What a unit gives the next one, and the gradient that it gets back, rounded to the format of wires. It
/// keeps nothing.
#[derive(Debug)]
pub(crate) struct Wire {
    name: String,
    format: WireFormat,
}

impl Wire {
    /// After the unit of this name.
    pub(crate) fn after(unit: &str, format: WireFormat) -> Self {
        Self { name: format!("{unit}.wire"), format }
    }
}

impl Layer for Wire {
    fn name(&self) -> &str {
        &self.name
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    /// It treats each row alone.
    fn join(&mut self, _team: &Team) -> Result<()> {
        Ok(())
    }

    /// It treats each row alone.
    fn keep_apart(&mut self, _borders: &Borders) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        Ok((input.rounded_for(self.format)?, Kept::new(ctx, [])))
    }

    fn kept_without_input(&self, ctx: ForwardContext) -> Option<Kept> {
        Some(Kept::new(ctx, []))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(grad.rounded_for(self.format)?), Kept::new(saved.ctx, [])))
    }
}
