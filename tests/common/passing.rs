//! A stage that passes on what it gets, and data for it.

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::stages::{ForwardContext, Parameter, Result, Shape, Stage, StageBuilder, Tensor};

/// Passes its input on. Each forward pass calls a function first.
pub(crate) struct PassOn(Box<dyn FnMut(ForwardContext)>);

impl PassOn {
    /// Builds one that calls this function.
    pub(crate) fn calling(call: impl FnMut(ForwardContext) + Clone + Send + 'static) -> StageBuilder<Self> {
        Box::new(move || Ok(Self(Box::new(call.clone()))))
    }
}

impl Stage for PassOn {
    type Wire = Tensor;
    type Saved = ();
    type Pending = ();

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn load(&mut self, input: Tensor) -> Result<Tensor> {
        Ok(input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, ())> {
        (self.0)(ctx);
        Ok((input, ()))
    }

    fn backward_input(&mut self, (): (), grad: Tensor) -> Result<(Option<Tensor>, ())> {
        Ok((Some(grad), ()))
    }

    fn backward_weight(&mut self, (): ()) -> Result<()> {
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, _: &mut dyn FnMut(&'a mut Parameter)) {}
}

/// Inputs and targets of one number, 1.
pub(crate) struct Ones;

impl DataSource for Ones {
    fn micro_batch(&self, _: u64, _: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let ones = Tensor::from_vec(&[1], vec![1.0])?;
        Ok((ones.clone(), ones))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[1]), Shape::f32(&[1]))
    }
}
