//! A pipeline whose stages only take time.

mod same;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pipewright::plan::StageCost;
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{Loss, Score};
use pipewright::stages::{Bytes, ForwardContext, Parameter, Result, Shape, Stage, StageBuilder, Tensor};
use pipewright::{Pipeline, PipelineBuilder};
use same::Same;

/// A wire that holds nothing.
#[derive(Clone)]
pub(crate) struct Nothing;

impl Bytes for Nothing {
    fn bytes(&self) -> u64 {
        0
    }
}

/// A stage that only sleeps, for given times.
pub(crate) struct Sleeping(pub(crate) StageCost);

/// Sleeps for this many seconds.
fn sleep(seconds: f64) {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::sleep(left);
    }
}

impl Stage for Sleeping {
    type Wire = Nothing;
    type Saved = ();
    type Pending = ();

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn load(&mut self, _: Tensor) -> Result<Nothing> {
        Ok(Nothing)
    }

    fn forward(&mut self, _: ForwardContext, _: Nothing) -> Result<(Nothing, ())> {
        sleep(self.0.forward);
        Ok((Nothing, ()))
    }

    fn backward_input(&mut self, (): (), _: Nothing) -> Result<(Option<Nothing>, ())> {
        sleep(self.0.backward_input);
        Ok((Some(Nothing), ()))
    }

    fn backward_weight(&mut self, (): ()) -> Result<()> {
        sleep(self.0.backward_weight);
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, _: &mut dyn FnMut(&'a mut Parameter)) {}
}

#[derive(Clone, Debug)]
struct NoLoss;

impl Loss<Nothing> for NoLoss {
    fn check(&self, _: &Shape, _: &Shape) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, _: Nothing, _: Tensor) -> Result<(Score, Nothing)> {
        Ok((Score::new(1.0, 1.0), Nothing))
    }

    fn score(&mut self, _: Nothing, _: Tensor) -> Result<Score> {
        Ok(Score::default())
    }
}

/// Builds a pipeline whose passes take this many seconds at each stage.
pub(crate) fn builder(schedule: Schedule, costs: Vec<StageCost>) -> PipelineBuilder<Sleeping> {
    let stages = costs
        .into_iter()
        .map(|cost| Box::new(move || Ok(Sleeping(cost))) as StageBuilder<Sleeping>)
        .collect();
    Pipeline::builder()
        .schedule(schedule)
        .stages(stages)
        .loss(NoLoss)
        .data(Arc::new(Same(Tensor::zeros(&[1]))))
}
