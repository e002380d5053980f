//! What a pipeline needs to join its run again.

use std::time::Duration;

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::snapshots::Snapshots;
use crate::actor::OnStall;
use crate::fabric::{JoinAgain, Size, World};
use crate::interrupt::Interrupt;
use crate::pipeline::spec::Spec;

/// What a pipeline needs to join its run again.
pub(in crate::pipeline) struct RejoinState<S: Stage> {
    pub(super) join: JoinAgain,
    pub(super) spec: Spec<S>,
    pub(super) snapshots: Snapshots,
    pub(super) interrupt: Interrupt,
    /// The processes that were lost when this one tried to join again, and could not. `None`: it has not left
    /// its run.
    pub(super) lost: Option<Vec<u32>>,
    /// How long to wait for one that takes the place of another.
    pub(super) waits: Duration,
    /// How many processes the run has.
    pub(super) size: Size,
}

/// How a process came into a run that had begun before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejoined {
    /// The processes that were lost, as far as this one knows. Empty in one that takes the place of another,
    /// and where a process has left by itself.
    pub lost: Vec<u32>,
    /// The step with which the run goes on, with the weights that the processes kept for each other in
    /// memory. `None`: they had none that are of one step. The pipeline has its initial weights then, and a
    /// checkpoint has to be loaded.
    pub step: Option<u64>,
}

/// What a process wants before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wish {
    ToGoOn,
    /// It was asked to end, and the others may go on.
    ToLeave,
    /// The run shall end.
    TheEnd,
}

/// Who leaves a run that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The run ends for all, if any process was asked to end.
    Nobody,
    /// This process.
    Process(u32),
    /// This process was asked, but the others have too little memory for its ranks. So the run ends for all.
    NoRoom(u32, String),
}

impl<S: Stage> RejoinState<S> {
    pub(super) fn new(join: JoinAgain, world: &World, spec: Spec<S>) -> Box<Self> {
        Box::new(Self {
            join,
            snapshots: Snapshots::every(spec.restarts.snapshot_every.into()),
            interrupt: Interrupt::default(),
            lost: None,
            waits: world.deadline(),
            size: world.size(),
            spec,
        })
    }

    pub(in crate::pipeline) fn heed(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    pub(in crate::pipeline) fn on_stall(&mut self, listener: OnStall) {
        self.spec.on_stall.push(listener);
    }
}
