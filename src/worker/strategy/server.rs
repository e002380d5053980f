//! A rank's part of a parameter server: it is the shard that updates what the rank owns, while the rank and
//! the other replicas work with weights that may be stale.
//!
//! Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server" (NIPS 2013).
//! Here an update is always for a whole step: an owner makes it when the sums of all replicas have come. Then
//! it sends the new weights to all replicas, without being asked: a rank that waits for other ranks of its
//! process is not awake to answer. For the same reason a rank ends a step only when its own shard has the
//! updates that the step waits for. So a rank that waits for a shard waits for one that is awake.

use std::collections::VecDeque;
use std::time::Instant;

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::access::{ReplicaAccess, Topic};
use super::served::{BlockQueue, Served};
use crate::error::Result;
use crate::id::{StageId, WorldRank};
use crate::worker::finish::agreement::StepOutcome;
use crate::worker::progress::WaitsFor;

/// A rank's part of the server, from one settlement to the next.
#[derive(Debug)]
pub(in crate::worker) struct Server {
    max_staleness: u64,
    /// The step with which it began.
    first: u64,
    /// How many steps this rank has done since.
    steps: u64,
    /// The steps that have not become an update.
    open: VecDeque<OpenStep>,
    /// How many updates this rank has made of what it owns.
    version: u64,
    /// How many of them are in this rank's stages.
    installed: u64,
    /// Whether the next update's sums are added up, and the other ranks have been told of them.
    is_told: bool,
    stages: Vec<Served>,
    /// What the other ranks tell of each step.
    told: Vec<BlockQueue>,
    /// The totals of the updates from `reported` on.
    ended: VecDeque<StepEnd>,
    reported: u64,
    staleness: Staleness,
}

/// A step of this rank: what it tells of it, and the learning rate.
#[derive(Debug)]
struct OpenStep {
    told: Vec<u8>,
    learning_rate: f64,
}

/// How a step ended, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(in crate::worker) struct StepEnd {
    pub(in crate::worker) outcome: StepOutcome,
    /// Whether a rank asked all to end.
    pub(in crate::worker) asks: bool,
}

impl Server {
    /// A server that begins with this step.
    pub(in crate::worker) fn new<S: Stage>(first: u64, access: &mut ReplicaAccess<'_, S>) -> Result<Self> {
        let own = access.transport.rank();
        let others = (0..access.transport.ranks()).map(WorldRank);
        let told = others.filter(|rank| *rank != own);
        let served = access.chunks.iter_mut().map(|chunk| Served::new(chunk, access.share));
        Ok(Self {
            max_staleness: access.plan.max_staleness().into(),
            first,
            steps: 0,
            open: VecDeque::new(),
            version: 0,
            installed: 0,
            is_told: false,
            stages: served.collect::<Result<_>>()?,
            told: told.map(|rank| BlockQueue::new(rank, Topic::Told.tag(StageId(0)))).collect(),
            ended: VecDeque::new(),
            reported: 0,
            staleness: Staleness::default(),
        })
    }

    /// How many steps' updates the weights of the step that begins lack. Counts it.
    pub(super) fn count_staleness(&mut self, own: u32) -> u32 {
        let stages = self.stages.iter();
        let installed = stages.map(|served| served.installed(own, self.installed));
        let missing = (self.steps - installed.fold(self.installed, u64::min)) as u32;
        self.staleness.count(missing);
        missing
    }

    /// Sends a stage's sums of this step to their owners.
    pub(super) fn push<S: Stage>(&mut self, stage: StageId, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let since = Instant::now();
        let mut stages = self.stages.iter_mut();
        let served = stages.find(|served| served.stage == stage);
        let served = served.expect("it has all stages of the rank");
        served.push(access)?;
        access.meter.reduced(since.elapsed());
        Ok(())
    }

    /// This rank has done a step, of whose losses it tells the others. It waits until no more updates are
    /// missing than may be, and returns how the newest step ended that every rank knows of. `asks`: whether
    /// it asks all to end.
    pub(in crate::worker) fn end_step<S: Stage>(
        &mut self,
        (asks, learning_rate): (bool, f64),
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<StepEnd> {
        let mut told = vec![u8::from(asks)];
        told.extend_from_slice(access.agreement.told());
        self.open.push_back(OpenStep { told, learning_rate });
        self.steps += 1;
        self.take_weights_of(self.needed(), access)?;
        Ok(self.report())
    }

    /// Waits until all steps so far have become updates, and gives the stages what is theirs.
    pub(in crate::worker) fn settle<S: Stage>(
        mut self,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<Settled> {
        self.take_weights_of(self.steps, access)?;
        let unreported = self.ended.iter().skip(usize::from(self.steps > 0));
        let settled = Settled {
            unreported: unreported.map(|ended| ended.outcome).collect(),
            staleness: self.staleness,
        };
        for served in self.stages {
            let stage = &mut access.chunk(served.stage).stage;
            served.owned.give_back(stage)?;
        }
        Ok(settled)
    }

    /// Waits for weights with at least `version` updates, and puts the newest ones into the stages.
    fn take_weights_of<S: Stage>(&mut self, version: u64, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        loop {
            let moved = self.progress(access)?;
            if self.has(access.share.replica, version) {
                break;
            }
            if !moved {
                access.listen(WaitsFor::All)?;
            }
        }
        for chunk in &mut *access.chunks {
            chunk.discard_gradients(access.together)?;
        }
        self.installed = self.version;
        let mut stages = self.stages.iter_mut();
        stages.try_for_each(|served| served.install(access))
    }

    /// How many updates must be there before the next step may begin: all but the updates of the last
    /// `max_staleness` steps, and one that can be reported.
    fn needed(&self) -> u64 {
        self.steps.saturating_sub(self.max_staleness).max(1)
    }

    /// Whether `version` updates are made here, and have come from all other owners.
    fn has(&self, own: u32, version: u64) -> bool {
        let mut stages = self.stages.iter();
        self.version >= version && stages.all(|served| served.has_weights(own, version))
    }

    /// Does all that it can without waiting. Returns whether it did anything.
    pub(super) fn progress<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<bool> {
        let mut moved = false;
        for served in &mut self.stages {
            moved |= served.take_in(access)?;
        }
        for told in &mut self.told {
            moved |= told.take_in(access.transport)?;
        }
        loop {
            let own = access.share.replica;
            if !self.is_told && !self.open.is_empty() && self.stages.iter().all(|served| served.has_sums(own))
            {
                self.add_up(access)?;
                moved = true;
            }
            if !self.is_told || self.told.iter().any(|told| told.blocks.is_empty()) {
                return Ok(moved);
            }
            self.update(access)?;
            moved = true;
        }
    }

    /// Adds up the next update's sums, and tells the other ranks what this one knows of the step.
    fn add_up<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let step = self.open.front_mut().expect("the rank has done the step");
        access.agreement.begin();
        for served in &mut self.stages {
            served.add_up(access)?;
            let (stage, agreement) = (served.stage, &mut *access.agreement);
            served.owned.squares(|index, piece, square| agreement.tell_gradient(stage, index, piece, square));
        }
        step.told.extend_from_slice(access.agreement.told());
        for peer in &self.told {
            let mut block = access.block();
            block.extend_from_slice(&step.told);
            let tag = Topic::Told.tag(StageId(0));
            access.transport.send_bytes(peer.from, tag, block)?;
        }
        self.is_told = true;
        Ok(())
    }

    /// Makes the next update, and sends the new weights to the other replicas.
    fn update<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        let step = self.open.pop_front().expect("the rank has told of it");
        let ended = self.outcome(&step, access)?;
        let number = self.first + self.version + 1;
        if let StepOutcome::Updated(totals) = ended.outcome {
            let update = totals.update(access.plan, number, step.learning_rate);
            for served in &mut self.stages {
                served.owned.update(&*access.plan.optimizer, update)?;
            }
        }
        self.is_told = false;
        self.version += 1;
        self.ended.push_back(ended);
        self.stages.iter().try_for_each(|served| served.send_weights(access))
    }

    /// How the step ended whose parts have come from all ranks.
    fn outcome<S: Stage>(&mut self, step: &OpenStep, access: &mut ReplicaAccess<'_, S>) -> Result<StepEnd> {
        access.agreement.begin();
        let own = access.transport.rank();
        let mut asks = false;
        let mut hear = |rank, told: &[u8]| {
            let (first, entries) = told.split_first().unwrap_or((&0, &[]));
            asks |= *first != 0;
            access.agreement.hear(rank, entries)
        };
        hear(own, &step.told)?;
        for peer in &mut self.told {
            let block = peer.blocks.pop_front().expect("it has come");
            hear(peer.from, &block)?;
            access.blocks.push(block);
        }
        let outcome = access.agreement.outcome(None);
        Ok(StepEnd { outcome, asks })
    }

    /// How the newest step ended that every rank knows of after this one's last step.
    fn report(&mut self) -> StepEnd {
        let newest = self.needed() - 1;
        self.ended.drain(..(newest - self.reported) as usize);
        self.reported = newest;
        *self.ended.front().expect("the update that is reported was kept")
    }
}

/// What a rank tells when no weight is stale any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settled {
    /// How the steps ended that no step has reported. It is the same on all ranks.
    pub(crate) unreported: Vec<StepOutcome>,
    /// How stale the rank's weights were since the last settlement.
    pub(crate) staleness: Staleness,
}

/// How stale the weights were with which ranks began their steps. A step is counted once for each rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// How many steps' updates were missing, at most.
    pub largest: u32,
    /// The sum over all steps of all ranks.
    sum: u64,
    /// The steps of all ranks.
    steps: u64,
}

impl Staleness {
    /// How many steps' updates were missing on average. 0 if there were no steps.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.steps.max(1) as f64
    }

    /// Counts a step.
    fn count(&mut self, staleness: u32) {
        *self += Self { largest: staleness, sum: staleness.into(), steps: 1 };
    }
}

impl std::ops::AddAssign for Staleness {
    fn add_assign(&mut self, more: Self) {
        self.largest = self.largest.max(more.largest);
        self.sum += more.sum;
        self.steps += more.steps;
    }
}

impl std::fmt::Display for Staleness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "weights at most {} steps old, {:.1} on average", self.largest, self.mean())
    }
}
