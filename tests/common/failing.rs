//! Stages, optimizers, losses and data that fail when they are told to.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::stages::loss::{CrossEntropy, Loss, Score};
use pipewright::stages::optimizer::{AdamW, Optimizer, StateTensor, Update};
use pipewright::stages::{
    BuildStage, Clock, Division, Error, ForwardContext, Mode, Packed, Parameter, Place, Result, Sequential,
    Shape, Shard, Stage, StageBuilder, Team, Tensor, Together,
};

/// How something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Fails,
    Panics,
    /// The process ends at once.
    Dies,
    /// It never returns.
    Hangs,
}

/// Counts calls, and says which of them fail. A call counts again when it is repeated after a failure.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    calls: Arc<AtomicU64>,
    at: Arc<Mutex<Vec<(u64, How)>>>,
    /// Whether passes of evaluations and visits of parameters count too.
    everywhere: bool,
}

impl Faults {
    /// These calls fail, numbered from 0.
    pub fn at(calls: &[(u64, How)]) -> Self {
        let faults = Self::default();
        faults.at.lock().expect("no panic inside").extend(calls);
        faults
    }

    /// This call fails. Passes of evaluations and visits of parameters count too.
    pub fn everywhere(call: u64, how: How) -> Self {
        let everywhere = true;
        let faults = Self::at(&[(call, how)]);
        Self { everywhere, ..faults }
    }

    /// Another call, if all count.
    fn other(&self) {
        if self.everywhere {
            self.call().expect("it counts, or the process dies");
        }
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// A call that may fail.
    pub fn call(&self) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let at = self.at.lock().expect("no panic inside").clone();
        match at.iter().find(|(call, _)| *call == number) {
            None => Ok(()),
            Some((_, How::Fails)) => Err(Error::other("the disk is on fire")),
            Some((_, How::Panics)) => panic!("a bug"),
            Some((_, How::Dies)) => std::process::abort(),
            Some((_, How::Hangs)) => loop {
                std::thread::park();
            },
        }
    }
}

/// A stage. Each of its passes may fail, before it does anything or after it has done all.
pub struct Failing {
    inner: Sequential,
    faults: Faults,
}

impl Failing {
    pub fn around(builder: StageBuilder<Sequential>, faults: Faults) -> StageBuilder<Self> {
        Box::new(Around { builder, faults })
    }
}

struct Around {
    builder: StageBuilder<Sequential>,
    faults: Faults,
}

impl BuildStage<Failing> for Around {
    fn build(&self) -> Result<Failing> {
        self.build_shard(Shard::WHOLE)
    }

    fn build_shard(&self, shard: Shard) -> Result<Failing> {
        Ok(Failing { inner: self.builder.build_shard(shard)?, faults: self.faults.clone() })
    }
}

impl Stage for Failing {
    type Wire = Tensor;
    type Saved = <Sequential as Stage>::Saved;
    type Pending = <Sequential as Stage>::Pending;

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        self.inner.output_shape(input)
    }

    fn load(&mut self, input: Tensor) -> Result<Tensor> {
        self.inner.load(input)
    }

    fn move_to(&mut self, place: Place) -> Result<()> {
        self.inner.move_to(place)
    }

    fn join(&mut self, team: &Team) -> Result<()> {
        self.inner.join(team)
    }

    fn divided_output(&self) -> Option<&Division> {
        self.inner.divided_output()
    }

    fn sum_rows(&mut self) -> Result<()> {
        self.faults.call()?;
        self.inner.sum_rows()
    }

    fn receive(&mut self, wire: Tensor) -> Result<Tensor> {
        self.inner.receive(wire)
    }

    fn wire_of(&self, numbers: Packed) -> Result<Tensor> {
        self.inner.wire_of(numbers)
    }

    fn packed_of(&self, wire: Tensor) -> Result<Packed> {
        self.inner.packed_of(wire)
    }

    fn is_idle(&self) -> Result<bool> {
        self.inner.is_idle()
    }

    fn clock(&self) -> Result<Option<Box<dyn Clock>>> {
        self.inner.clock()
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Self::Saved)> {
        if ctx.mode != Mode::Train {
            self.faults.other();
            return self.inner.forward(ctx, input);
        }
        self.faults.call()?;
        let done = self.inner.forward(ctx, input)?;
        self.faults.call()?;
        Ok(done)
    }

    fn backward_input(
        &mut self,
        saved: Self::Saved,
        grad: Tensor,
    ) -> Result<(Option<Tensor>, Self::Pending)> {
        self.faults.call()?;
        let done = self.inner.backward_input(saved, grad)?;
        self.faults.call()?;
        Ok(done)
    }

    fn backward_weight(&mut self, pending: Self::Pending) -> Result<()> {
        self.faults.call()?;
        self.inner.backward_weight(pending)?;
        self.faults.call()
    }

    fn restore(&mut self, saved: Self::Saved) -> Result<Self::Saved> {
        self.inner.restore(saved)
    }

    fn parameter_layers(&mut self) -> Vec<String> {
        self.inner.parameter_layers()
    }

    fn visit_parameters<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        let faults = &self.faults;
        self.inner.visit_parameters(&mut |parameter| {
            faults.other();
            visit(parameter);
        });
    }

    fn visit_gradients<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Parameter)) {
        let faults = &self.faults;
        self.inner.visit_gradients(&mut |parameter| {
            faults.other();
            visit(parameter);
        });
    }
}

/// An optimizer. Each of its updates may fail, before or after it.
#[derive(Clone, Debug)]
pub struct FailingOptimizer(pub AdamW, pub Faults);

impl Optimizer for FailingOptimizer {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.0.states(name, dims)
    }

    fn update(&self, parameter: &mut Parameter, update: Update, together: &mut Together) -> Result<()> {
        self.1.call()?;
        self.0.update(parameter, update, together)?;
        self.1.call()
    }

    fn updates_parts(&self) -> bool {
        true
    }
}

/// A loss that may fail.
#[derive(Clone, Debug)]
pub struct FailingLoss(pub CrossEntropy, pub Faults);

impl Loss<Tensor> for FailingLoss {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        Loss::<Tensor>::check(&self.0, output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        self.1.call()?;
        self.0.forward(output, target)
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        self.0.score(output, target)
    }

    fn join(&mut self, team: &Team, outputs: &Division) -> Result<()> {
        Loss::<Tensor>::join(&mut self.0, team, outputs)
    }
}

/// Data whose reading may fail.
pub struct FailingData(pub Arc<dyn DataSource>, pub Faults);

impl DataSource for FailingData {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        self.1.call()?;
        self.0.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0.shapes()
    }

    fn fingerprint(&self) -> pipewright::Result<pipewright::data::Fingerprint> {
        self.0.fingerprint()
    }
}
