//! A layer of one's own: a rectifier that learns how much of the negative side to let through.
//!
//! It is to learn `|x|`, for which its slope has to become -1.

use std::sync::Arc;

use pipewright::checkpoint::Checkpoint;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::layers::Linear;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::models::{LayerSpec, Model};
use pipewright::stages::optimizer::{LearningRate, Sgd};
use pipewright::stages::testing::check_gradients;
use pipewright::stages::{
    Error, ForwardContext, Init, Kept, Kind, Layer, Parameter, Result, Shape, Stage, Tensor,
};
use pipewright::{Pipeline, StepReport};

/// `y = x` where `x` is positive, `y = slope x` elsewhere: numbers of any shape to the same shape.
///
/// He et al., "Delving deep into rectifiers" (2015).
#[derive(Debug)]
struct LeakyRelu {
    name: String,
    slope: Parameter,
}

impl LeakyRelu {
    /// The parameter's name begins with the layer's: names differ within a model.
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), slope: Parameter::new(format!("{name}.slope"), &[1], Init::Zeros, 0) }
    }

    /// What `x` is multiplied by.
    fn factor(&self, x: f32) -> f32 {
        if x > 0.0 { 1.0 } else { self.slope.value[0] }
    }
}

impl Layer for LeakyRelu {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        match input.kind() {
            Kind::F32 => Ok(*input),
            Kind::Ids => Err(Error::shape("numbers", input)),
        }
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        let mut output = input.clone();
        output.f32_mut().iter_mut().for_each(|x| *x *= self.factor(*x));
        Ok((output, Kept::new(ctx, [input])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        let ctx = saved.ctx;
        let [input] = saved.into_tensors();
        let mut input_grad = grad.clone();
        input_grad.f32_mut().iter_mut().zip(input.f32()).for_each(|(dx, &x)| *dx *= self.factor(x));
        Ok((Some(input_grad), Kept::new(ctx, [input, grad])))
    }

    fn backward_weight(&mut self, pending: Kept) -> Result<()> {
        let [input, grad] = pending.into_tensors();
        self.slope.grad[0] += input.f32().iter().zip(grad.f32()).map(|(x, dy)| x.min(0.0) * dy).sum::<f32>();
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.slope);
    }
}

/// The layer and a linear one after it; with two stages, each has one.
fn model() -> Model {
    let linear = || Linear::new("out", [1, 1], Init::Ones, 0).without_bias();
    Model::new(vec![
        LayerSpec::of("leaky", 1.0, || LeakyRelu::new("leaky")),
        LayerSpec::of("out", 1.0, linear),
    ])
}

/// Eight numbers from -1 to 1 a micro-batch, and how far from zero they are.
struct Distances;

impl DataSource for Distances {
    fn micro_batch(&self, _: u64, at: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let numbers: Vec<f32> = (0..8).map(|row| (8 * at.0 + row) as f32 / 15.5 - 1.0).collect();
        let distances = numbers.iter().map(|number| number.abs()).collect();
        Ok((Tensor::from_vec(&[8, 1], numbers)?, Tensor::from_vec(&[8, 1], distances)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[8, 1]), Shape::f32(&[8, 1]))
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // Gradients written by hand are wrong until they are checked. The input keeps away from 0, where the
    // slope jumps.
    let numbers = vec![-1.0, -0.3, 0.4, 2.0];
    check_gradients(LeakyRelu::new("leaky"), &Tensor::from_vec(&[4, 1], numbers)?)?;

    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 4)?)
        .stages(model().split(2)?)
        .loss(MeanSquaredError::default())
        .data(Arc::new(Distances))
        .optimizer(Sgd::default())
        .learning_rate(LearningRate::Constant(0.5))
        .launch()?;
    let reports = (0..60).map(|_| pipeline.step()).collect::<pipewright::Result<Vec<StepReport>>>()?;
    reports.iter().step_by(20).for_each(|report| println!("{report}"));

    let folder = tempfile::tempdir()?;
    pipeline.save(folder.path().join("checkpoint"))?;
    let mut trained = model().whole()?;
    Checkpoint::open(&folder.path().join("checkpoint"))?.read_weights(trained.parameters())?;
    let slope = trained.parameters()[0].value[0];
    println!("the slope on the negative side became {slope:.3}");
    Ok(())
}
