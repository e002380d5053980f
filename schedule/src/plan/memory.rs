//! The memory that ranks need to train, and to be built again after a failure, estimated before anything is
//! allocated.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::groups::{GradientGroups, Node, Sums};
use crate::id::Rank;
use crate::plan::{Costs, offloaded, simulate};
use crate::schedule::{LinkKind, Pass, Schedule};

/// How many activations are assumed to travel between two ranks at once, and how many gradients.
const ON_THE_WAY: f64 = 2.0;

/// The most sums of gradients that a replica keeps for later while one grows, when it has these groups of the
/// batch. `in_place`: a group of one micro-batch that the tree adds to the group before is added there at
/// once.
pub fn waiting_sums(groups: GradientGroups, own: Range<u32>, in_place: bool) -> u32 {
    let mut sums = Sums::default();
    let waiting = own.map(|group| {
        let waiting = sums.nodes().len() as u32;
        sums.push(Node::of_group(group), (), |(), ()| ());
        let is_one = groups.micro_batches_of(group..group + 1).len() == 1;
        let is_added_before = sums.nodes().len() as u32 <= waiting;
        waiting - u32::from(in_place && is_one && is_added_before)
    });
    waiting.max().unwrap_or(0)
}

/// How many sums are left when these groups are added by their tree.
pub(crate) fn sums(groups: Range<u32>) -> u32 {
    let mut sums = Sums::default();
    groups.for_each(|group| sums.push(Node::of_group(group), (), |(), ()| ()));
    sums.nodes().len() as u32
}

/// How many steps of data are in memory: the one that trains, and the one that is read ahead.
const STEPS_OF_DATA: f64 = 2.0;

/// What a stage needs under any schedule. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageMemory {
    /// Its weights. With a server whose weights may be stale, also those that its rank owns, and those that
    /// other owners have sent.
    pub weights: f64,
    /// Their gradients, and the sums of gradient groups that wait for others. With such a server, also the
    /// sums of steps that are no updates yet.
    pub gradients: f64,
    /// The part of `gradients` that is sums of gradient groups which wait for others.
    pub waiting: f64,
    /// The part of the gradients, without the sums that wait, that other stages of the rank may use after
    /// the sum over the replicas: two stages need theirs at a time. The sums that wait are lent with it.
    pub lent: f64,
    /// A copy of the part of `lent` that the replica owns. It is needed only if gradients are lent.
    pub own: f64,
    /// The optimizer's tensors. With ZeRO-1 only a replica's part of them.
    pub optimizer: f64,
    /// A snapshot of what training changes: trained weights, running means, the optimizer's tensors.
    pub snapshot: f64,
    /// Copies of weights for matrix products.
    pub packed: f64,
    /// Copies of weights and of the optimizer's tensors, from which a checkpoint is written.
    pub copies: f64,
    /// Buffers that a pass needs only while it runs.
    pub working: f64,
    /// Its output for one micro-batch. The output's gradient has the same size.
    pub output: f64,
}

impl StageMemory {
    /// What each of this many shards of the stage needs. The first shard has the copies for checkpoints. A
    /// pass gathers rows of all shards, so its buffers count whole.
    #[must_use]
    pub fn divided(self, shards: u32) -> Self {
        let part = |bytes: f64| bytes / f64::from(shards);
        Self {
            weights: part(self.weights),
            gradients: part(self.gradients),
            waiting: part(self.waiting),
            lent: part(self.lent),
            own: part(self.own),
            optimizer: part(self.optimizer),
            snapshot: part(self.snapshot),
            packed: part(self.packed),
            output: part(self.output),
            ..self
        }
    }
}

/// The memory of the data. Bytes of one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataMemory {
    /// The input of the first stage.
    pub input: f64,
    /// The targets that the loss compares the last stage's output with.
    pub target: f64,
}

/// The most that a rank holds while it trains. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankMemory {
    /// Weights.
    pub weights: f64,
    /// Gradients of the weights, and the sums of gradient groups that wait for others.
    pub gradients: f64,
    /// The part of `gradients` that is sums which wait.
    #[serde(default)]
    pub waiting: f64,
    /// The optimizer's tensors.
    pub optimizer: f64,
    /// Copies of weights and of the optimizer's tensors, from which a checkpoint is written while steps run.
    /// Only the first replica has them.
    pub copies: f64,
    /// What forwards keep for later backwards, at the schedule's peak.
    pub activations: f64,
    /// Everything else: packed weights, buffers of running passes, data on its way to other ranks or waiting
    /// for its backward, and data that is read ahead.
    pub buffers: f64,
    /// What of the activations is on the host, if the rank is on a GPU.
    #[serde(default)]
    pub offloaded: f64,
    /// Snapshots for restarts, if the rank is on a GPU: they are on the host, and with them the optimizer's
    /// tensors, from which they are made there. Snapshots of a rank on the CPU are among its buffers.
    #[serde(default)]
    pub snapshots: f64,
    /// The optimizer's tensors, if the rank is on a GPU and keeps them on the host.
    #[serde(default)]
    pub state_on_host: f64,
}

impl RankMemory {
    /// The sum of all parts that are on the rank's device.
    pub fn total(&self) -> f64 {
        self.weights + self.gradients + self.optimizer + self.copies + self.activations + self.buffers
    }

    /// What the rank has on the host, if it is on a GPU.
    pub fn on_host(&self) -> f64 {
        self.offloaded + self.snapshots + self.state_on_host
    }
}

/// The most that each rank holds under this schedule, with the activations that `costs` give. `stages` has
/// one entry a stage. Stages of one rank use their pass buffers one after the other, so the largest counts.
///
/// # Errors
/// As for [`simulate`].
pub fn memory(
    schedule: &Schedule,
    costs: &Costs,
    stages: &[StageMemory],
    data: DataMemory,
) -> Result<Vec<RankMemory>> {
    let simulation = simulate(schedule, costs, LinkKind::Buffered)?;
    let rank_of: Vec<usize> = schedule.placement().iter().map(Rank::index).collect();
    let on_host = offloaded(schedule, costs)?;
    let mut ranks: Vec<RankMemory> = simulation
        .ranks
        .iter()
        .zip(on_host)
        .map(|(rank, offloaded)| RankMemory {
            activations: rank.peak_memory,
            offloaded,
            ..RankMemory::default()
        })
        .collect();
    let mut working = vec![0.0_f64; ranks.len()];
    for (index, stage) in stages.iter().enumerate() {
        let rank = rank_of[index];
        let held = &mut ranks[rank];
        held.weights += stage.weights;
        held.gradients += stage.gradients;
        held.waiting += stage.waiting;
        held.optimizer += stage.optimizer;
        held.copies += stage.copies;
        held.buffers += stage.packed;
        working[rank] = working[rank].max(stage.working);
        if let Some(&next) = rank_of.get(index + 1).filter(|&&next| next != rank) {
            // The sender holds an activation or a gradient until the receiver has taken it.
            held.buffers += ON_THE_WAY * stage.output;
            ranks[next].buffers += ON_THE_WAY * stage.output;
        }
    }
    for ((held, working), rank) in ranks.iter_mut().zip(working).zip(0..) {
        held.buffers += working;
        let of_rank = schedule.placement().stages_on(Rank(rank)).map(|stage| stages[stage.index()]);
        lend_gradients(held, &of_rank.collect::<Vec<_>>());
    }
    let ahead = STEPS_OF_DATA * f64::from(schedule.micro_batches());
    if let (Some(&first), Some(&last), Some(end)) = (rank_of.first(), rank_of.last(), stages.last()) {
        ranks[first].buffers += ahead * data.input;
        ranks[last].buffers += ahead * data.target + before_backward(schedule) * end.output;
    }
    Ok(ranks)
}

/// Counts the gradients of these stages, all of a rank, as the rank holds them if the stages use the same
/// memory one after the other. It does so only where that takes less.
fn lend_gradients(held: &mut RankMemory, stages: &[StageMemory]) {
    let all = |part: fn(&StageMemory) -> f64| stages.iter().map(part).sum::<f64>();
    let at_once = |part: fn(&StageMemory) -> f64| {
        let pairs = stages.windows(2).map(|pair| pair.iter().map(part).sum());
        pairs.fold(0.0, f64::max)
    };
    let lent = |stage: &StageMemory| stage.lent;
    if stages.len() > 1 && all(|stage| stage.own) + at_once(lent) < all(lent) {
        let waiting = |stage: &StageMemory| stage.waiting;
        held.gradients -= all(lent) + all(waiting);
        held.waiting = at_once(waiting);
        held.gradients += all(|stage| stage.own) + at_once(lent) + held.waiting;
    }
}

/// The most micro-batches between forward and backward at the last stage. For each of them a gradient of the
/// loss is held.
fn before_backward(schedule: &Schedule) -> f64 {
    let last = schedule.last_stage();
    let ranks = (0..schedule.ranks()).map(Rank);
    let passes = ranks.flat_map(|rank| schedule.passes(rank));
    let (mut now, mut most) = (0_u32, 0);
    for (pass, _) in passes.filter(|(_, cell)| cell.stage == last) {
        match pass {
            Pass::Forward => now += 1,
            Pass::Backward | Pass::BackwardInput => now -= 1,
            Pass::BackwardWeight => {}
        }
        most = most.max(now);
    }
    f64::from(most)
}

/// What is kept for restarts, and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restarts {
    /// A rank makes a snapshot of what training changes after this number of steps, or earlier, when what it
    /// has received since the last one takes as much memory as a snapshot.
    pub every: u32,
    /// How often a rank receives the bytes of its gradients in a step, from the ranks with the same stages in
    /// other replicas.
    pub from_replicas: f64,
    /// Whether processes keep snapshots so that one that dies can be replaced: two of each of their own
    /// ranks, and two of each rank of another process. A restart begins with the newest of its own.
    pub replaces: bool,
}

/// The most that a rank keeps for restarts. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct KeptForRestarts {
    /// Snapshots. They are on the host, also the snapshots of a rank on a GPU.
    pub snapshots: f64,
    /// What it has received since its last snapshot.
    pub received: f64,
}

/// What each rank keeps. A process is expected to take the snapshots of another one within `every` steps.
/// Frozen weights are in no snapshot: it is expected that a rank that is built again has the same ones.
pub fn kept_for_restarts(
    schedule: &Schedule,
    stages: &[StageMemory],
    restarts: Restarts,
) -> Vec<KeptForRestarts> {
    let Restarts { every, from_replicas, replaces } = restarts;
    let rank_of: Vec<usize> = schedule.placement().iter().map(Rank::index).collect();
    let mut snapshots = vec![0.0; schedule.ranks() as usize];
    let mut received = snapshots.clone();
    for (index, stage) in stages.iter().enumerate() {
        let rank = rank_of[index];
        snapshots[rank] += stage.snapshot;
        received[rank] += from_replicas * stage.gradients;
        if let Some(&next) = rank_of.get(index + 1).filter(|&&next| next != rank) {
            // The activations go there, and as large gradients come back.
            let wires = f64::from(schedule.micro_batches()) * stage.output;
            received[next] += wires;
            received[rank] += wires;
        }
    }
    let largest = snapshots.iter().copied().fold(0.0, f64::max);
    let kept = |(snapshot, received): (f64, f64)| {
        let is_early = f64::from(every) * received >= snapshot + received;
        KeptForRestarts {
            snapshots: match (replaces, is_early) {
                (false, _) => snapshot,
                // The newest of the process is the rank's own.
                (true, false) => 2.0 * (snapshot + largest),
                (true, true) => 2.0 * (snapshot + largest) + snapshot,
            },
            received: (f64::from(every) * received).min(snapshot + received),
        }
    };
    snapshots.into_iter().zip(received).map(kept).collect()
}
