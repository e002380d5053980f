//! What passes, transfers and reductions cost, in time and memory.

use crate::error::CostOf;
use crate::groups::is_exchanged;
use crate::id::StageId;
use crate::plan::{LinkCost, Queue};
use crate::schedule::{Pass, Placement};
use crate::{Error, Result};

/// What one micro-batch costs one stage. All times share one unit, and all memory shares one unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageCost {
    /// Time of the forward.
    pub forward: f64,
    /// Time of the backward-input.
    pub backward_input: f64,
    /// Time of the backward-weight. A whole backward takes this time and the time of the backward-input.
    pub backward_weight: f64,
    /// Time of the parameter update, once a step.
    pub update: f64,
    /// Time of the sum of the stage's gradients over its replicas, once a step.
    pub reduce: f64,
    /// Time to collect the stage's updated weights from its replicas, once a step (ZeRO-1).
    pub gather: f64,
    /// Memory held from the forward to the backward-input.
    pub saved: f64,
    /// The part of it that cannot be offloaded, because it is not on the device.
    pub stays: f64,
    /// Time to copy the rest to the host, or back, beside other work, where it is
    /// [offloaded](crate::schedule::Schedule::offloading).
    pub copy: f64,
    /// Memory held from the backward-input to the backward-weight.
    pub pending: f64,
    /// Extra memory during the backward-input or a whole backward, for recomputed activations. It is free
    /// again when the pass ends.
    pub restored: f64,
}

impl Default for StageCost {
    /// The costs that papers draw: the three passes take the same time. The update, and what replicas send
    /// each other, take none. The backward-input frees all that the forward saved.
    fn default() -> Self {
        Self { forward: 1.0, backward_input: 1.0, backward_weight: 1.0, saved: 1.0, ..Self::NOTHING }
    }
}

impl StageCost {
    /// No time and no memory.
    pub const NOTHING: Self = Self {
        forward: 0.0,
        backward_input: 0.0,
        backward_weight: 0.0,
        update: 0.0,
        reduce: 0.0,
        gather: 0.0,
        saved: 0.0,
        stays: 0.0,
        copy: 0.0,
        pending: 0.0,
        restored: 0.0,
    };

    /// The time of this pass.
    pub fn time(&self, pass: Pass) -> f64 {
        match pass {
            Pass::Forward => self.forward,
            Pass::Backward => self.backward_input + self.backward_weight,
            Pass::BackwardInput => self.backward_input,
            Pass::BackwardWeight => self.backward_weight,
        }
    }

    /// The time of all passes of one micro-batch.
    pub fn work(&self) -> f64 {
        self.forward + self.backward_input + self.backward_weight
    }

    /// By how much this pass changes the memory held.
    pub fn change(&self, pass: Pass) -> f64 {
        match pass {
            Pass::Forward => self.saved,
            Pass::Backward => -self.saved,
            Pass::BackwardInput => self.pending - self.saved,
            Pass::BackwardWeight => -self.pending,
        }
    }

    /// The extra memory held only during this pass.
    pub(crate) fn restored(&self, pass: Pass) -> f64 {
        match pass {
            Pass::Backward | Pass::BackwardInput => self.restored,
            Pass::Forward | Pass::BackwardWeight => 0.0,
        }
    }

    /// By how much memory rises above its level before the pass, at most, during the pass or at its end.
    pub(crate) fn rise(&self, pass: Pass) -> f64 {
        self.change(pass).max(self.restored(pass))
    }

    /// The memory held when `saved` micro-batches wait for their backward-input and `pending` for their
    /// backward-weight, and `away` of the former are on the host.
    pub(crate) fn held(&self, saved: u32, pending: u32, away: u32) -> f64 {
        let there = f64::from(saved) * self.saved + f64::from(pending) * self.pending;
        match away {
            0 => there,
            away => there - f64::from(away) * self.offloaded(),
        }
    }

    /// The memory that an offloaded micro-batch has on the host, and not on the device.
    pub fn offloaded(&self) -> f64 {
        (self.saved - self.stays).max(0.0)
    }

    /// Refuses a cost that is negative or not a number.
    pub(super) fn check(&self, of: &CostOf) -> Result<()> {
        check(self.named(), of)
    }

    /// The cost of the same stage with recomputation. It keeps only its input, of this size, and each
    /// backward runs the forward again first. The time is an upper bound: layers whose result only the output
    /// needs are not recomputed. During the backward the stage holds all its activations.
    #[must_use]
    pub fn recomputed(&self, input: f64) -> Self {
        Self {
            backward_input: self.forward + self.backward_input,
            saved: input,
            restored: (self.saved + self.restored - input).max(0.0),
            ..*self
        }
    }

    /// The same stage where its passes and its update take this many times as long.
    #[must_use]
    pub fn slower(self, times: f64) -> Self {
        Self {
            forward: self.forward * times,
            backward_input: self.backward_input * times,
            backward_weight: self.backward_weight * times,
            update: self.update * times,
            ..self
        }
    }

    /// The same costs without the costs of replicas.
    fn alone(self) -> Self {
        Self { reduce: 0.0, gather: 0.0, ..self }
    }

    /// The same costs without recomputed activations: for schedules that limit the micro-batches in flight.
    pub(crate) fn unrestored(self) -> Self {
        Self { restored: 0.0, ..self }
    }

    fn named(&self) -> [(&'static str, f64); 11] {
        [
            ("forward", self.forward),
            ("backward-input", self.backward_input),
            ("backward-weight", self.backward_weight),
            ("update", self.update),
            ("reduce", self.reduce),
            ("gather", self.gather),
            ("saved", self.saved),
            ("stays", self.stays),
            ("copy", self.copy),
            ("pending", self.pending),
            ("restored", self.restored),
        ]
    }

    fn over(&self, chunks: f64) -> Self {
        Self {
            forward: self.forward / chunks,
            backward_input: self.backward_input / chunks,
            backward_weight: self.backward_weight / chunks,
            update: self.update / chunks,
            reduce: self.reduce / chunks,
            gather: self.gather / chunks,
            saved: self.saved / chunks,
            stays: self.stays / chunks,
            copy: self.copy / chunks,
            pending: self.pending / chunks,
            restored: self.restored / chunks,
        }
    }
}

/// The costs of a schedule's passes and transfers. Every cost is a number from 0 on, and at least one pass
/// takes time.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    stages: Stages,
    comm: f64,
    queue: Queue,
    /// How much work each micro-batch is, beside a mean one. Empty: all are equal.
    work: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Stages {
    Share(StageCost),
    Each(Vec<StageCost>),
}

impl Default for Costs {
    /// [`StageCost::default`] for each rank's whole share, and transfers that take no time.
    fn default() -> Self {
        Self {
            stages: Stages::Share(StageCost::default()),
            comm: 0.0,
            queue: Queue::default(),
            work: Vec::new(),
        }
    }
}

impl Costs {
    /// The same cost for every rank's whole share. A rank with `V` stages has `1/V` of it in each. A transfer
    /// between two ranks takes `comm`.
    ///
    /// # Errors
    /// [`Error::Plan`] naming the cost when it is negative or not a number. Also when no pass takes time.
    pub fn share(share: StageCost, comm: f64) -> Result<Self> {
        check(share.named().into_iter().chain([("comm", comm)]), &CostOf::All)?;
        at_least_one(&[share])?;
        Ok(Self { stages: Stages::Share(share), comm, queue: Queue::default(), work: Vec::new() })
    }

    /// Each stage has a cost of its own, in model order.
    ///
    /// # Errors
    /// As for [`Costs::share`]; the message also names the stage.
    pub fn each(stages: Vec<StageCost>, comm: f64) -> Result<Self> {
        for (stage, cost) in (0..).map(StageId).zip(&stages) {
            cost.check(&CostOf::Stage(stage))?;
        }
        check([("comm", comm)], &CostOf::All)?;
        at_least_one(&stages)?;
        Ok(Self { stages: Stages::Each(stages), comm, queue: Queue::default(), work: Vec::new() })
    }

    /// The same costs on a link of each rank for which its messages wait.
    ///
    /// # Errors
    /// [`Error::Plan`] when the time in which a transfer occupies the link is negative or not a number.
    pub fn queued(self, queue: Queue) -> Result<Self> {
        check([("queue: transfer", queue.transfer)], &CostOf::All)?;
        Ok(Self { queue, ..self })
    }

    /// The same costs, where micro-batches are not equal. `work` has the work of each one of a batch,
    /// in mean micro-batches. The times of the costs are for a mean one, and the memory for the largest one.
    /// A schedule with fewer micro-batches, as of a replica, takes some of them, evenly spread, with the same
    /// mean. Empty: all are equal.
    ///
    /// # Errors
    /// [`Error::Plan`] when a number is negative or not finite.
    pub fn uneven(self, work: Vec<f64>) -> Result<Self> {
        check(work.iter().map(|work| ("work of a micro-batch", *work)), &CostOf::All)?;
        Ok(Self { work, ..self })
    }

    /// How much work each of this number of micro-batches is, beside a mean one.
    pub(crate) fn work(&self, micro_batches: u32) -> Vec<f64> {
        let (all, count) = (self.work.len(), micro_batches as usize);
        if all == 0 || count == all {
            return self.work.iter().copied().chain(std::iter::repeat(1.0)).take(count).collect();
        }
        let some: Vec<f64> = (0..count).map(|micro_batch| self.work[micro_batch * all / count]).collect();
        let mean = |work: &[f64]| work.iter().sum::<f64>() / work.len() as f64;
        // Some of them are on average as much work as all.
        let factor = mean(&self.work) / mean(&some);
        some.into_iter().map(|work| if factor.is_finite() { work * factor } else { 1.0 }).collect()
    }

    /// The same costs, but what replicas send each other takes no time.
    #[must_use]
    pub fn without_reductions(self) -> Self {
        let stages = match self.stages {
            Stages::Share(share) => Stages::Share(share.alone()),
            Stages::Each(stages) => Stages::Each(stages.into_iter().map(StageCost::alone).collect()),
        };
        Self { stages, ..self }
    }

    /// The same costs, but transfers take no time.
    #[must_use]
    pub fn without_transfers(self) -> Self {
        let queue = Queue { transfer: 0.0, ..self.queue };
        Self { comm: 0.0, queue, ..self }
    }

    /// The time of one transfer between two ranks.
    pub fn comm(&self) -> f64 {
        self.comm
    }

    /// How the messages of a rank wait for each other.
    pub fn queue(&self) -> Queue {
        self.queue
    }

    /// The number of stages that the costs are for. `None` for costs of a rank's whole share, which suit any
    /// number.
    pub fn stages(&self) -> Option<usize> {
        match &self.stages {
            Stages::Share(_) => None,
            Stages::Each(stages) => Some(stages.len()),
        }
    }

    /// The cost of each stage of this placement.
    ///
    /// # Errors
    /// [`Error::Plan`] when the costs are for another number of stages.
    pub fn of(&self, placement: &Placement) -> Result<Vec<StageCost>> {
        match &self.stages {
            Stages::Share(share) => {
                let chunks = placement.chunks();
                Ok(placement.iter().map(|rank| share.over(f64::from(chunks[rank.index()]))).collect())
            }
            Stages::Each(stages) if stages.len() == placement.stages() as usize => Ok(stages.clone()),
            Stages::Each(stages) => Err(Error::plan(format!(
                "there are costs of {} stages for {} (placement {placement}); give one a stage",
                stages.len(),
                placement.stages()
            ))),
        }
    }
}

/// The largest cost allowed. Sums over many passes of larger costs might overflow.
const MOST: f64 = 1e100;

/// Refuses a cost that is negative or not a number.
pub(super) fn check(named: impl IntoIterator<Item = (&'static str, f64)>, of: &CostOf) -> Result<()> {
    for (name, cost) in named {
        if !cost.is_finite() || cost < 0.0 {
            return Err(Error::wrong_cost(of, name, cost));
        }
        if cost > MOST {
            return Err(Error::plan(format!(
                "{of}the cost {name} is {cost:e}; it has to be no more than {MOST:e}, so take a larger unit"
            )));
        }
    }
    Ok(())
}

fn at_least_one(stages: &[StageCost]) -> Result<()> {
    match stages.iter().all(|stage| stage.work() == 0.0) {
        true => Err(Error::plan("forward, backward-input and backward-weight all cost 0; give one a cost")),
        false => Ok(()),
    }
}

/// How the replicas of a stage add up their gradients, and what that costs.
///
/// There are two ways. In an *exchange* each of `d` replicas sends all to every other: `d - 1` messages, each
/// of all bytes. In a *scatter* each replica first gets a slice of the sum, and then they give each other
/// their slices: `2 (d - 1)` messages, each of a `d`-th of the bytes. [`is_exchanged`] says which way they
/// take.
///
/// With ZeRO-1 a replica updates only its slice. So it needs no more than a slice of the sum. The slices that
/// the replicas give each other are slices of the new weights, after the update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// How many replicas there are. One has nothing to add.
    pub replicas: u32,
    /// What a message between two of them costs.
    pub link: LinkCost,
    /// Seconds to add a byte of gradients to a sum.
    pub add: f64,
    /// How many bytes are sent for a byte of gradients: 1, or less where sums are sent in fewer bits.
    pub sent: f64,
    /// Whether each replica updates only its slice of the weights (ZeRO-1).
    pub sharded: bool,
}

impl Reduction {
    /// The time to add up `bytes` bytes of gradients, before the update.
    pub fn gradients(&self, bytes: f64) -> f64 {
        let messages = |bytes, add| self.messages(self.sent * bytes, add / self.sent);
        let slices = messages(self.slice(bytes), self.add);
        let numbers = bytes as usize / size_of::<f32>();
        match is_exchanged(numbers, self.replicas) {
            _ if self.sharded => slices,
            true => messages(bytes, self.add),
            false => slices + messages(self.slice(bytes), 0.0),
        }
    }

    /// The time to collect `bytes` bytes of weights, after the update. 0 if each replica updates all.
    pub fn weights(&self, bytes: f64) -> f64 {
        match self.sharded {
            true => self.messages(self.slice(bytes), 0.0),
            false => 0.0,
        }
    }

    /// The part of the update that a replica does, from 0 to 1.
    pub fn share_of_update(&self) -> f64 {
        match self.sharded {
            true => 1.0 / self.count(),
            false => 1.0,
        }
    }

    /// The time of a message of `bytes` bytes from each other replica, with `add` seconds for each byte.
    fn messages(&self, bytes: f64, add: f64) -> f64 {
        match self.replicas {
            0 | 1 => 0.0,
            replicas => f64::from(replicas - 1) * (self.link.time(bytes) + bytes * add),
        }
    }

    fn slice(&self, bytes: f64) -> f64 {
        bytes / self.count()
    }

    fn count(&self) -> f64 {
        f64::from(self.replicas.max(1))
    }
}
