//! A stage of one's own, whose wire is two tensors: the activation `h`, and the model's input `x`, which
//! every stage sees.
//!
//! Each block computes `h + tanh(a h + b x)`, so the gradient of `x` gathers on its way back through all
//! stages. Four blocks are cut into one, two and four stages; the trained weights are the same.

use std::sync::Arc;

use pipewright::Pipeline;
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{Loss, MeanSquaredError, Score};
use pipewright::stages::optimizer::LearningRate;
use pipewright::stages::{
    Bytes, ForwardContext, Init, Kept, Parameter, Result, Shape, Stage, StageBuilder, Tensor,
};

/// What crosses a boundary. Backward, `x` is what the blocks behind it make of the gradient of the model's
/// input.
struct Wire {
    h: Tensor,
    x: Tensor,
}

impl Bytes for Wire {
    fn bytes(&self) -> u64 {
        self.h.bytes() + self.x.bytes()
    }
}

/// Some blocks, each with its weights `a` and `b`.
struct Blocks(Vec<[Parameter; 2]>);

impl Stage for Blocks {
    type Wire = Wire;
    type Saved = Kept;
    type Pending = Kept;

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn load(&mut self, input: Tensor) -> Result<Wire> {
        Ok(Wire { h: input.clone(), x: input })
    }

    /// Keeps `h`, `x` and the tanh of each block.
    fn forward(&mut self, ctx: ForwardContext, Wire { mut h, x }: Wire) -> Result<(Wire, Kept)> {
        let mut kept = Vec::new();
        for [a, b] in &self.0 {
            let (a, b) = (a.value[0], b.value[0]);
            let tanh = map(&h, &x, |h, x| (a * h + b * x).tanh());
            let output = map(&h, &tanh, |h, tanh| h + tanh);
            kept.push(Kept::new(ctx, [h, x.clone(), tanh]));
            h = output;
        }
        Ok((Wire { h, x }, Kept::nested(ctx, kept)))
    }

    /// Keeps `h`, `x` and the gradient of `a h + b x` of each block, last block first.
    fn backward_input(&mut self, mut saved: Kept, grad: Wire) -> Result<(Option<Wire>, Kept)> {
        let Wire { h: mut dh, x: mut dx } = grad;
        let ctx = saved.ctx;
        let mut pending = Vec::new();
        for ([a, b], kept) in self.0.iter().zip(saved.take_inner()).rev() {
            let (a, b) = (a.value[0], b.value[0]);
            let [h, x, tanh] = kept.into_tensors();
            let dz = map(&dh, &tanh, |dh, tanh| dh * (1.0 - tanh * tanh));
            dh = map(&dh, &dz, |dh, dz| dh + a * dz);
            dx = map(&dx, &dz, |dx, dz| dx + b * dz);
            pending.push(Kept::new(ctx, [h, x, dz]));
        }
        Ok((Some(Wire { h: dh, x: dx }), Kept::nested(ctx, pending)))
    }

    fn backward_weight(&mut self, mut pending: Kept) -> Result<()> {
        for ([a, b], kept) in self.0.iter_mut().rev().zip(pending.take_inner()) {
            let [h, x, dz] = kept.into_tensors();
            a.grad[0] += dot(&h, &dz);
            b.grad[0] += dot(&x, &dz);
        }
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        self.0.iter_mut().flatten().for_each(visit);
    }
}

/// Mean-squared error on the activation; the loss does not look at `x`.
#[derive(Clone, Debug)]
struct OnActivation(MeanSquaredError);

impl Loss<Wire> for OnActivation {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        self.0.check(output, target)
    }

    fn forward(&mut self, output: Wire, target: Tensor) -> Result<(Score, Wire)> {
        let x = Tensor::zeros(output.x.dims());
        let (score, h) = self.0.forward(output.h, target)?;
        Ok((score, Wire { h, x }))
    }

    fn score(&mut self, output: Wire, target: Tensor) -> Result<Score> {
        self.0.score(output.h, target)
    }
}

fn map(a: &Tensor, b: &Tensor, f: impl Fn(f32, f32) -> f32) -> Tensor {
    let mut output = a.clone();
    output.f32_mut().iter_mut().zip(b.f32()).for_each(|(a, &b)| *a = f(*a, b));
    output
}

fn dot(a: &Tensor, b: &Tensor) -> f32 {
    a.f32().iter().zip(b.f32()).map(|(a, b)| a * b).sum()
}

/// Four blocks in `stages` stages.
fn model(stages: u32) -> Vec<StageBuilder<Blocks>> {
    let weight = |name: String| Parameter::new(name, &[1], Init::Normal(0.5), 1);
    let blocks: Vec<usize> = (0..4).collect();
    let cut = blocks.chunks(4 / stages as usize).map(|blocks| {
        let blocks = blocks.to_vec();
        let build = move || {
            let weights =
                |block: &usize| [weight(format!("block.{block}.a")), weight(format!("block.{block}.b"))];
            Ok(Blocks(blocks.iter().map(weights).collect()))
        };
        Box::new(build) as StageBuilder<Blocks>
    });
    cut.collect()
}

/// Eight numbers from -1 to 1 a micro-batch, and their cubes.
struct Cubes;

impl DataSource for Cubes {
    fn micro_batch(&self, _: u64, at: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let numbers: Vec<f32> = (0..8).map(|row| (8 * at.0 + row) as f32 / 15.5 - 1.0).collect();
        let cubes = numbers.iter().map(|number| number.powi(3)).collect();
        Ok((Tensor::from_vec(&[8, 1], numbers)?, Tensor::from_vec(&[8, 1], cubes)?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[8, 1]), Shape::f32(&[8, 1]))
    }
}

fn main() -> pipewright::Result<()> {
    for stages in [1, 2, 4] {
        let mut pipeline = Pipeline::builder()
            .schedule(Schedule::one_f_one_b(stages, 4)?)
            .stages(model(stages))
            .loss(OnActivation(MeanSquaredError::default()))
            .data(Arc::new(Cubes))
            .learning_rate(LearningRate::Constant(0.02))
            .launch()?;
        let first = pipeline.step()?.loss;
        let last = (1..200).try_fold(first, |_, _| pipeline.step().map(|report| report.loss))?;
        let hash = pipeline.weights_hash()?;
        println!("{stages} stages: loss {first:.4} to {last:.4}, weights {}", &hash[..16]);
    }
    Ok(())
}
