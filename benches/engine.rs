//! What the engine itself costs: an action of stages that do nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright::Pipeline;
use pipewright::data::DataSource;
use pipewright::id::{MicroBatch, Rank};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::{Loss, Score};
use pipewright::stages::{Bytes, Moment, Parameter, Result, Shape, Stage, StageBuilder, Tensor};

struct Nothing;

impl Bytes for Nothing {
    fn bytes(&self) -> u64 {
        0
    }
}

struct Idle;

impl Stage for Idle {
    type Wire = Nothing;
    type Saved = ();
    type Pending = ();

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn load(&mut self, _: Tensor) -> Result<Nothing> {
        Ok(Nothing)
    }

    fn forward(&mut self, _: Moment, _: Nothing) -> Result<(Nothing, ())> {
        Ok((Nothing, ()))
    }

    fn backward_input(&mut self, (): (), _: Nothing) -> Result<(Option<Nothing>, ())> {
        Ok((Some(Nothing), ()))
    }

    fn backward_weight(&mut self, (): ()) -> Result<()> {
        Ok(())
    }

    fn parameters(&mut self) -> Vec<&mut Parameter> {
        Vec::new()
    }
}

struct NoLoss;

impl Loss<Nothing> for NoLoss {
    fn check(&self, _: &Shape, _: &Shape) -> Result<()> {
        Ok(())
    }

    fn forward(&mut self, _: Nothing, _: Tensor) -> Result<(Score, Nothing)> {
        Ok((
            Score {
                sum: 1.0,
                weight: 1.0,
                correct: None,
            },
            Nothing,
        ))
    }

    fn score(&mut self, _: Nothing, _: Tensor) -> Result<Score> {
        Ok(Score::default())
    }
}

/// The same tensor again and again.
struct Same(Tensor);

impl DataSource for Same {
    fn micro_batch(&self, _: u64, _: MicroBatch, _: u32) -> pipewright::Result<(Tensor, Tensor)> {
        Ok((self.0.clone(), self.0.clone()))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (*self.0.shape(), *self.0.shape())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median time of a step, and the number of actions of the rank that has the most.
fn step(schedule: Schedule, traced: bool) -> pipewright::Result<(Duration, usize)> {
    let actions = (0..schedule.ranks())
        .map(|rank| schedule.actions(Rank(rank)).len())
        .max()
        .unwrap_or(0);
    let stages = (0..schedule.stages())
        .map(|_| Box::new(|| Ok(Idle)) as StageBuilder<Idle>)
        .collect();
    let data = Same(Tensor::zeros(&[1]));
    let mut pipeline = Pipeline::builder()
        .schedule(schedule)
        .stages(stages)
        .loss(NoLoss)
        .data(Arc::new(data))
        .launch()?;
    let times = (0..220).map(|_| {
        let started = Instant::now();
        let step = if traced {
            pipeline.step_traced().map(|_| ())
        } else {
            pipeline.step().map(|_| ())
        };
        step.map(|()| started.elapsed())
    });
    let times = times.collect::<pipewright::Result<Vec<_>>>()?;
    Ok((median(times[20..].to_vec()), actions))
}

fn main() -> pipewright::Result<()> {
    println!("2 ranks, stages that do nothing: median step, divided by the actions of one rank");
    for (name, traced) in [("gpipe", false), ("1f1b", false), ("1f1b", true)] {
        for micro_batches in [1, 8, 64, 256] {
            let (time, actions) = step(Schedule::named(name, 2, micro_batches)?, traced)?;
            let microseconds = 1e6 * time.as_secs_f64();
            let each = microseconds / actions as f64;
            let traced = if traced { "traced" } else { "" };
            println!(
                "{name:>6}{traced:>7}, {micro_batches:>3} micro-batches: {microseconds:>7.0} us a step, {each:>5.2} us an action"
            );
        }
    }
    Ok(())
}
