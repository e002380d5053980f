//! A stage with one parameter, whose passes do nothing: a step of its replicas is a reduction.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pipewright::fabric::World;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{Loss, Score};
use pipewright::stages::optimizer::{Optimizer, StateTensor, Update};
use pipewright::stages::{
    ForwardContext, Init, Parameter, Result, Shape, Stage, StageBuilder, Tensor, Together,
};
use pipewright::{Pipeline, RankReport};

use crate::same::Same;

/// The ranks begin a reduction together, at a multiple of this time of the clock.
const TICK: Duration = Duration::from_millis(20);

/// How long before it a rank wakes up, if it has a core of its own.
const EARLY: Duration = Duration::from_millis(1);

struct OneParameter {
    parameter: Parameter,
    replicas: u32,
}

impl OneParameter {
    fn new(numbers: usize, replicas: u32) -> Self {
        Self { parameter: Parameter::new("numbers", &[numbers], Init::Zeros, 0), replicas }
    }
}

impl Stage for OneParameter {
    type Wire = Tensor;
    type Saved = ();
    type Pending = ();

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn load(&mut self, input: Tensor) -> Result<Tensor> {
        Ok(input)
    }

    fn forward(&mut self, _: ForwardContext, input: Tensor) -> Result<(Tensor, ())> {
        Ok((input, ()))
    }

    fn backward_input(&mut self, (): (), grad: Tensor) -> Result<(Option<Tensor>, ())> {
        Ok((Some(grad), ()))
    }

    fn backward_weight(&mut self, (): ()) -> Result<()> {
        self.parameter.grad.fill(1.0);
        await_tick(self.replicas as usize);
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        visit(&mut self.parameter);
    }
}

/// Waits for the next tick.
pub(crate) fn await_tick(ranks: usize) {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let tick = TICK.as_nanos() as u64;
    let until = Duration::from_nanos((now().as_nanos() as u64 / tick + 1) * tick);
    let has_core = thread::available_parallelism().is_ok_and(|cores| ranks <= cores.into());
    let early = if has_core { EARLY } else { Duration::ZERO };
    thread::sleep(until.saturating_sub(now() + early));
    while now() < until {}
}

/// Checks the sum, and changes no weight.
#[derive(Debug)]
struct Check(f32);

impl Optimizer for Check {
    fn states(&self, _: &str, _: &[usize]) -> Vec<StateTensor> {
        Vec::new()
    }

    fn update(&self, parameter: &mut Parameter, _: Update, _: &mut Together) -> Result<()> {
        assert!(parameter.grad.iter().all(|&sum| sum == self.0), "a sum is wrong");
        Ok(())
    }
}

#[derive(Clone, Debug)]
struct NoLoss;

impl Loss<Tensor> for NoLoss {
    fn check(&self, _: &Shape, _: &Shape) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, output: Tensor, _: Tensor) -> Result<(Score, Tensor)> {
        Ok((self.score(output.clone(), output.clone())?, output))
    }

    fn score(&mut self, _: Tensor, _: Tensor) -> Result<Score> {
        Ok(Score::new(1.0, 1.0))
    }
}

/// Seconds of each of `count` reductions, on the slowest rank. Without a world, the replicas are threads of
/// this process. Each is followed by `between`.
pub(crate) fn reductions(
    numbers: usize,
    replicas: u32,
    count: usize,
    world: Option<World>,
    mut between: impl FnMut(),
) -> pipewright::Result<Vec<f64>> {
    let stage = move || Ok(OneParameter::new(numbers, replicas));
    let pipeline = Pipeline::builder()
        .schedule(Schedule::named("gpipe", 1, replicas)?)
        .stages(vec![Box::new(stage) as StageBuilder<OneParameter>])
        .loss(NoLoss)
        .data(Arc::new(Same(Tensor::zeros(&[1]))))
        .optimizer(Check(replicas as f32))
        .replicas(replicas);
    let pipeline = match world {
        Some(world) => pipeline.world(world),
        None => pipeline,
    };
    let mut pipeline = pipeline.launch()?;
    let slowest = |ranks: &[RankReport]| ranks.iter().map(|rank| rank.reducing).fold(0.0, f64::max);
    let step = |_| {
        let seconds = slowest(&pipeline.step()?.ranks);
        between();
        Ok(seconds)
    };
    (0..count).map(step).collect()
}
