//! A stage that does not return is reported, and the caller stops waiting.

mod common;
#[path = "common/worlds.rs"]
mod worlds;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipewright::data::DataSource;
use pipewright::error::CallError;
use pipewright::id::{MicroBatch, Rank};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::MeanSquaredError;
use pipewright::stages::{ForwardContext, Mode, Parameter, Result, Shape, Stage, StageBuilder, Tensor};
use pipewright::{Error, Pipeline, PipelineBuilder};
use worlds::in_processes;

/// Much longer than these stages need, even on a busy machine.
const LIMIT: Duration = Duration::from_millis(500);

/// The rank that blocks.
const BLOCKED: u32 = 1;

/// Passes its input on. From step 1 on, a stage with a gate waits until the test closes the gate.
struct Gated(Option<Arc<Mutex<Receiver<()>>>>);

impl Stage for Gated {
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
        if let Some(gate) = &self.0
            && ctx.mode == Mode::Train
            && ctx.step > 0
        {
            // The test never sends: it drops the sender when it is done.
            let _ = gate.lock().expect("one stage has it").recv();
        }
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

struct Ones;

impl DataSource for Ones {
    fn micro_batch(&self, _: u64, _: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        let ones = Tensor::from_vec(&[1], vec![1.0])?;
        Ok((ones.clone(), ones))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::f32(&[1]), Shape::f32(&[1]))
    }
}

/// A pipeline of this many ranks, one of which blocks from step 1 on; and the sender that opens its gate.
fn gated(ranks: u32) -> (PipelineBuilder<Gated>, Sender<()>) {
    let (open, gate) = channel();
    let gate = Arc::new(Mutex::new(gate));
    let stage = |index| -> StageBuilder<Gated> {
        let gate = (index == BLOCKED).then(|| Arc::clone(&gate));
        Box::new(move || Ok(Gated(gate.clone())))
    };
    let builder = Pipeline::builder()
        .schedule(Schedule::gpipe(ranks, 2).expect("sizes"))
        .stages((0..ranks).map(stage).collect())
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .stall_limit(Some(LIMIT))
        .pin(false);
    (builder, open)
}

#[test]
fn a_stage_that_does_not_return_is_told_with_who_waits_for_whom() {
    let (builder, open) = gated(3);
    let mut pipeline = builder.launch().expect("it starts");
    pipeline.step().expect("the gate is open");
    let error = pipeline.step().expect_err("the gate is shut");
    let Error::Call(CallError::Stalled {
        rank,
        action,
        limit,
        others,
        ..
    }) = &error
    else {
        panic!("another error: {error}");
    };
    assert_eq!((*rank, action.as_str(), *limit), (Rank(BLOCKED), "1F0", LIMIT));
    let others: Vec<String> = others.iter().map(ToString::to_string).collect();
    assert_eq!(
        others,
        ["rank 0 (0B0) waits for rank 1", "rank 2 (2F0) waits for rank 1"]
    );
    let after = pipeline.step().expect_err("it has stopped").to_string();
    assert_eq!(
        after,
        format!("the pipeline has stopped after a failure: {error}")
    );
    // Dropping it does not wait for the rank that is still blocked.
    drop(pipeline);
    drop(open);
}

#[test]
fn the_other_processes_are_told() {
    let said = in_processes(2, |world| {
        let (builder, _open) = gated(2);
        let mut pipeline = builder.world(world).launch().expect("it starts");
        pipeline.step().expect("the gate is open");
        pipeline.step().expect_err("the gate is shut").to_string()
    });
    assert!(
        said[1].starts_with("rank 1 has not finished action ") && said[1].contains("(1F0) after 0.5 s"),
        "{}",
        said[1]
    );
    assert_eq!(said[0], format!("process 1: {}", said[1]));
}
