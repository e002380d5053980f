//! A rank's part of a parameter server: it is the shard that updates what the rank owns, while the rank and
//! the other replicas work with weights that may be stale.
//!
//! Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server" (NIPS 2013).
//! Here an update is always for a whole step: an owner makes it when the sums of all replicas have come. Then
//! it sends the new weights to all replicas, without being asked: a rank that waits for other ranks of its
//! process is not awake to answer. For the same reason a rank ends a step only when its own shard has the
//! updates that the step waits for. So a rank that waits for a shard waits for one that is awake.

use std::collections::VecDeque;

use pipewright_stages::Stage;
use pipewright_stages::optimizer::{Optimizer, Update};

use super::agreement::Agreement;
use super::chunk::{Chunk, chunk_of};
use super::outcome::{Outcome, Settled};
use super::reduction::{Reach, Topic};
use super::served::Served;
use super::staleness::Staleness;
use super::stream::Stream;
use crate::error::Result;
use crate::id::{StageId, WorldRank};

/// How an update is made of a step's outcome.
pub(super) struct Rule<'a> {
    pub(super) optimizer: &'a dyn Optimizer,
    /// The update of a step that ended in this way, from its number and its learning rate. `None`: none.
    pub(super) update: &'a dyn Fn(Outcome, u64, f64) -> Option<Update>,
}

/// A rank's part of the server, from one settlement to the next.
#[derive(Debug)]
pub(super) struct Server {
    max_staleness: u64,
    /// The step with which it began.
    first: u64,
    /// How many steps this rank has done since.
    steps: u64,
    /// The steps that have not become an update.
    open: VecDeque<Step>,
    /// How many updates this rank has made of what it owns.
    version: u64,
    /// How many of them are in this rank's stages.
    installed: u64,
    /// Whether the next update's sums are added up, and the other ranks have been told of them.
    is_told: bool,
    pub(super) stages: Vec<Served>,
    /// What the other ranks tell of each step.
    told: Vec<Stream>,
    agreement: Agreement,
    /// Of the updates from `reported` on.
    ended: VecDeque<Ended>,
    reported: u64,
    staleness: Staleness,
}

/// A step of this rank: what it tells of it, and the learning rate.
#[derive(Debug)]
struct Step {
    told: Vec<u8>,
    learning_rate: f64,
}

/// How a step ended, the same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// Whether a rank asked all to end.
    pub(super) asks: bool,
}

impl Server {
    /// A server that begins with this step, of these stages.
    pub(super) fn new(max_staleness: u32, first: u64, stages: Vec<Served>, others: Vec<WorldRank>) -> Self {
        let tag = Topic::Told.tag(StageId(0));
        Self {
            max_staleness: max_staleness.into(),
            first,
            steps: 0,
            open: VecDeque::new(),
            version: 0,
            installed: 0,
            is_told: false,
            stages,
            told: others.into_iter().map(|rank| Stream::new(rank, tag)).collect(),
            agreement: Agreement::default(),
            ended: VecDeque::new(),
            reported: 0,
            staleness: Staleness::default(),
        }
    }

    /// Of how many steps the updates are missing in the weights of the step that begins. Counts it.
    pub(super) fn count_staleness(&mut self, own: u32) -> u32 {
        let stages = self.stages.iter();
        let installed = stages.map(|served| served.installed(own, self.installed));
        let missing = (self.steps - installed.fold(self.installed, u64::min)) as u32;
        self.staleness.count(missing);
        missing
    }

    /// This rank has done a step. `scores`: what it tells of its losses. `asks`: whether it asks all to end.
    pub(super) fn end_step(&mut self, scores: &[u8], asks: bool, learning_rate: f64) {
        let mut told = vec![u8::from(asks)];
        told.extend_from_slice(scores);
        self.open.push_back(Step { told, learning_rate });
        self.steps += 1;
    }

    /// How many updates must be there before the next step may begin: all but the updates of the last
    /// `max_staleness` steps, and one that can be reported.
    pub(super) fn needed(&self) -> u64 {
        self.steps.saturating_sub(self.max_staleness).max(1)
    }

    /// How many updates there will be of all steps so far.
    pub(super) fn all(&self) -> u64 {
        self.steps
    }

    /// Whether `version` updates are made here, and have come from all other owners.
    pub(super) fn has(&self, own: u32, version: u64) -> bool {
        let mut stages = self.stages.iter();
        self.version >= version && stages.all(|served| served.has_weights(own, version))
    }

    /// Does all that it can without waiting. Returns whether it did anything.
    pub(super) fn progress<W: 'static>(&mut self, reach: &mut Reach<'_, W>, rule: &Rule<'_>) -> Result<bool> {
        let mut moved = false;
        for served in &mut self.stages {
            moved |= served.take_in(reach)?;
        }
        for told in &mut self.told {
            moved |= told.take_in(reach.transport)?;
        }
        loop {
            let own = reach.share.replica;
            if !self.is_told && !self.open.is_empty() && self.stages.iter().all(|served| served.has_sums(own))
            {
                self.add_up(reach)?;
                moved = true;
            }
            if !self.is_told || self.told.iter().any(|told| told.blocks.is_empty()) {
                return Ok(moved);
            }
            self.update(reach, rule)?;
            moved = true;
        }
    }

    /// Adds up the next update's sums, and tells the other ranks what this one knows of the step.
    fn add_up<W: 'static>(&mut self, reach: &mut Reach<'_, W>) -> Result<()> {
        let step = self.open.front_mut().expect("the rank has done the step");
        self.agreement.begin();
        for served in &mut self.stages {
            served.add_up(reach)?;
            let stage = served.stage;
            served
                .owned
                .squares(|index, piece, square| self.agreement.tell_gradient(stage, index, piece, square));
        }
        step.told.extend_from_slice(self.agreement.told());
        for peer in &self.told {
            let mut block = reach.block();
            block.extend_from_slice(&step.told);
            let tag = Topic::Told.tag(StageId(0));
            reach.transport.send_bytes(peer.from, tag, block)?;
        }
        self.is_told = true;
        Ok(())
    }

    /// Makes the next update, and sends the new weights to the other replicas.
    fn update<W: 'static>(&mut self, reach: &mut Reach<'_, W>, rule: &Rule<'_>) -> Result<()> {
        let step = self.open.pop_front().expect("the rank has told of it");
        let ended = self.outcome(&step, reach)?;
        let number = self.first + self.version + 1;
        if let Some(update) = (rule.update)(ended.outcome, number, step.learning_rate) {
            for served in &mut self.stages {
                served.owned.update(rule.optimizer, update)?;
            }
        }
        self.is_told = false;
        self.version += 1;
        self.ended.push_back(ended);
        self.stages
            .iter()
            .try_for_each(|served| served.send_weights(reach))
    }

    /// How the step ended whose parts have come from all ranks.
    fn outcome<W: 'static>(&mut self, step: &Step, reach: &mut Reach<'_, W>) -> Result<Ended> {
        self.agreement.begin();
        let own = reach.transport.rank();
        let mut asks = false;
        let mut hear = |rank, told: &[u8]| {
            let (first, entries) = told.split_first().unwrap_or((&0, &[]));
            asks |= *first != 0;
            self.agreement.hear(rank, entries)
        };
        hear(own, &step.told)?;
        for peer in &mut self.told {
            let block = peer.blocks.pop_front().expect("it has come");
            hear(peer.from, &block)?;
            reach.blocks.push(block);
        }
        let outcome = self.agreement.outcome();
        Ok(Ended { outcome, asks })
    }

    /// Puts the newest weights into the rank's stages.
    pub(super) fn install<S: Stage>(
        &mut self,
        chunks: &mut [Chunk<S>],
        reach: &mut Reach<'_, S::Wire>,
    ) -> Result<()> {
        self.installed = self.version;
        let mut stages = self.stages.iter_mut();
        stages.try_for_each(|served| served.install(chunk_of(chunks, served.stage), reach))
    }

    /// How the newest step ended that every rank knows of after this one's last step.
    pub(super) fn report(&mut self) -> Ended {
        let newest = self.needed() - 1;
        self.ended.drain(..(newest - self.reported) as usize);
        self.reported = newest;
        *self.ended.front().expect("so many updates are made")
    }

    /// What to tell when all steps are updates.
    pub(super) fn settled(&self) -> Settled {
        let unreported = self.ended.iter().skip(usize::from(self.steps > 0));
        Settled {
            unreported: unreported.map(|ended| ended.outcome).collect(),
            staleness: self.staleness,
        }
    }
}
