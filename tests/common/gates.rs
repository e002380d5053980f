//! Stages of one named layer that calls a function in each pass, and listeners for stalls.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pipewright::PipelineBuilder;
use pipewright::situation::Stall;
use pipewright::stages::{
    ForwardContext, Init, Kept, Layer, Parameter, Result, Sequential, Shape, Stage, StageBuilder, Tensor,
};

/// What a layer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Forward(ForwardContext),
    Backward(ForwardContext),
    /// For a checkpoint, a hash, or an update.
    Parameters,
}

/// Passes on what it gets. It calls a function first.
struct Gate {
    name: String,
    call: Box<dyn FnMut(Asked)>,
    weight: Parameter,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Layer for Gate {
    fn name(&self) -> &str {
        &self.name
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        (self.call)(Asked::Forward(ctx));
        Ok((input, Kept::new(ctx, [])))
    }

    fn backward_input(&mut self, saved: Kept, grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        (self.call)(Asked::Backward(saved.ctx));
        Ok((Some(grad), saved))
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        (self.call)(Asked::Parameters);
        visit(&mut self.weight);
    }
}

/// Stages whose layer is `h.N`, for stage N. `call` is called in each pass, with the stage's number.
pub(crate) fn gated(
    stages: u32,
    call: impl Fn(u32, Asked) + Clone + Send + Sync + 'static,
) -> Vec<StageBuilder<Sequential>> {
    let stage = |index| {
        let call = call.clone();
        let build = move || {
            let call = call.clone();
            let name = format!("h.{index}");
            Ok(Sequential::new(vec![Box::new(Gate {
                weight: Parameter::new(format!("{name}.weight"), &[1], Init::Zeros, 0),
                name,
                call: Box::new(move |asked| call(index, asked)),
            })]))
        };
        Box::new(build) as StageBuilder<Sequential>
    };
    (0..stages).map(stage).collect()
}

/// A gate: those who wait at it go on when the sender is dropped.
pub(crate) fn gate() -> (Sender<()>, Arc<Mutex<Receiver<()>>>) {
    let (open, gate) = channel();
    (open, Arc::new(Mutex::new(gate)))
}

/// Waits at a gate.
pub(crate) fn wait_at(gate: &Mutex<Receiver<()>>) {
    let _ = gate.lock().expect("one waits at a time").recv();
}

/// Adds a listener, and returns what it hears.
pub(crate) fn heard<S: Stage>(builder: PipelineBuilder<S>) -> (PipelineBuilder<S>, Receiver<Stall>) {
    let (tell, heard) = channel();
    let builder = builder.on_stall(move |stall| {
        // A test that has ended does not listen.
        let _ = tell.send(stall.clone());
    });
    (builder, heard)
}

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The next stall that is told.
#[track_caller]
pub(crate) fn next(heard: &Receiver<Stall>) -> Stall {
    heard.recv_timeout(PATIENCE).expect("it is told")
}
