//! What a pipeline needs to join its run again.

use std::time::Duration;

use pipewright_stages::Stage;

use super::parts::Parts;
use super::snapshots::Snapshots;
use crate::actor::OnStall;
use crate::fabric::JoinAgain;
use crate::interrupt::Interrupt;

/// What a pipeline needs to join its run again.
pub(super) struct Again<S: Stage> {
    pub(super) join: JoinAgain,
    pub(super) parts: Parts<S>,
    pub(super) snapshots: Snapshots,
    pub(super) interrupt: Interrupt,
    /// The processes that were lost when this one tried to join again, and could not. `None`: it has not left
    /// its run.
    pub(super) lost: Option<Vec<u32>>,
    /// How often processes may be replaced.
    pub(super) most: u32,
    /// How long to wait for one that takes the place of another.
    pub(super) waits: Duration,
}

/// How a process came into a run that had begun before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejoined {
    /// The processes that were lost, as far as this one knows. Empty in one that takes the place of another.
    pub lost: Vec<u32>,
    /// The step with which the run goes on, with the weights that the processes kept for each other in
    /// memory. `None`: they had none that are of one step. The pipeline has its initial weights then, and a
    /// checkpoint has to be loaded.
    pub step: Option<u64>,
}

impl<S: Stage> Again<S> {
    pub(super) fn new(join: JoinAgain, waits: Duration, parts: Parts<S>) -> Box<Self> {
        let restarts = parts.restarting.as_ref().map(|given| given.restarts);
        let restarts = restarts.unwrap_or_default();
        Box::new(Self {
            join,
            parts,
            snapshots: Snapshots::every(restarts.snapshot_every.into()),
            interrupt: Interrupt::default(),
            lost: None,
            most: restarts.most,
            waits,
        })
    }

    pub(super) fn heed(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    pub(super) fn on_stall(&mut self, listener: OnStall) {
        self.parts.on_stall.push(listener);
    }
}
