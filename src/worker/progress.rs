//! What a rank is doing now. Other threads may read it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pipewright_stages::CurrentLayer;

use crate::id::{MicroBatch, StageId, WorldRank};
use crate::schedule::{Action, Cell, Flow, Pass};

/// What a rank is doing now. The rank writes a few numbers for each action, without a lock. Another thread
/// may read them at any time. A reading may mix two actions; the next one then has another
/// [count](Reading::count), which shows progress.
///
/// It has cache lines of its own. If it shared a line with another rank, each write would wait for that
/// rank's core.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    /// How often the rank has begun an action, or has continued after a wait.
    count: AtomicU64,
    /// The action's place in the rank's list, plus 1. It is 0 while the rank runs no actions.
    place: AtomicU32,
    action: AtomicU64,
    waits: AtomicU32,
    /// The step, for messages.
    step: AtomicU64,
    /// Whether the rank is in a call.
    at_work: AtomicBool,
    /// The layer of the stage that it runs.
    layer: CurrentLayer,
    /// By stage: the names of its layers.
    names: Mutex<Vec<(StageId, Vec<String>)>>,
}

/// Whom a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// For no other rank: it computes.
    Nobody,
    /// For its data source.
    Data,
    /// All other ranks.
    All,
    /// One other rank.
    Rank(WorldRank),
    /// Another shard of its layers, inside of a pass.
    Shard(WorldRank),
}

/// In the number of whom a rank waits for: it is another shard.
const SHARD: u32 = 1 << 31;

/// A reading of the progress of a rank that is in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Grows with every action and every wait.
    pub(crate) count: u64,
    /// The action, with its place in the rank's list. `None` outside of actions.
    pub(crate) action: Option<(usize, Action)>,
    /// The place in its stage of the layer that it runs, if that is known.
    pub(crate) layer: Option<usize>,
    /// Whom it waits for.
    pub(crate) waits: WaitsFor,
    /// The step, where the rank runs one.
    pub(crate) step: u64,
}

impl Progress {
    /// The rank begins or ends its part of a call.
    pub(crate) fn set_at_work(&self, at_work: bool) {
        self.at_work.store(at_work, Ordering::Relaxed);
        self.end();
        self.wait_for(WaitsFor::Nobody);
    }

    /// The calling thread is the rank's, and these are the names of its stages' layers.
    pub(super) fn name_layers(&self, names: Vec<(StageId, Vec<String>)>) {
        self.layer.write_here();
        *self.names() = names;
    }

    /// The rank begins a step.
    pub(super) fn begin_step(&self, step: u64) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// The rank begins an action.
    pub(super) fn begin(&self, index: usize, action: Action) {
        self.layer.forget();
        self.place.store(index as u32 + 1, Ordering::Relaxed);
        self.action.store(pack(action), Ordering::Relaxed);
        self.wait_for(WaitsFor::Nobody);
    }

    /// The rank waits meanwhile.
    pub(super) fn during<T>(&self, waits: WaitsFor, wait: impl FnOnce() -> T) -> T {
        self.wait_for(waits);
        let result = wait();
        self.wait_for(WaitsFor::Nobody);
        result
    }

    /// The rank begins to wait, or continues.
    fn wait_for(&self, waits: WaitsFor) {
        let number = match waits {
            WaitsFor::Nobody => 0,
            WaitsFor::All => 1,
            WaitsFor::Data => 2,
            WaitsFor::Rank(rank) => 3 + rank.0,
            WaitsFor::Shard(rank) => SHARD | rank.0,
        };
        self.waits.store(number, Ordering::Relaxed);
        self.advance();
    }

    /// The rank has come further.
    pub(super) fn advance(&self) {
        let count = self.count.load(Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
    }

    /// The rank has run all its actions.
    pub(super) fn end(&self) {
        self.place.store(0, Ordering::Release);
    }

    /// What the rank is doing, or `None` while it is in no call.
    pub(crate) fn read(&self) -> Option<Reading> {
        let count = self.count.load(Ordering::Acquire);
        if !self.at_work.load(Ordering::Acquire) {
            return None;
        }
        let index = self.place.load(Ordering::Acquire).checked_sub(1);
        let action = unpack(self.action.load(Ordering::Relaxed));
        Some(Reading {
            count,
            action: index.map(|index| (index as usize, action)),
            layer: self.layer.index(),
            waits: match self.waits.load(Ordering::Relaxed) {
                0 => WaitsFor::Nobody,
                1 => WaitsFor::All,
                2 => WaitsFor::Data,
                rank if rank & SHARD > 0 => WaitsFor::Shard(WorldRank(rank & !SHARD)),
                rank => WaitsFor::Rank(WorldRank(rank - 3)),
            },
            step: self.step.load(Ordering::Relaxed),
        })
    }

    /// In words: the layer of a stage that the rank runs, or the stage's first and last one.
    pub(crate) fn layers(&self, stage: StageId, layer: Option<usize>) -> Option<String> {
        let names = self.names();
        let (_, names) = names.iter().find(|(of, _)| *of == stage)?;
        match layer.and_then(|layer| names.get(layer)) {
            Some(name) => Some(format!("layer {name}")),
            None if names.len() == 1 => Some(format!("layer {}", names[0])),
            None => Some(format!("layers {} to {}", names.first()?, names.last()?)),
        }
    }

    fn names(&self) -> MutexGuard<'_, Vec<(StageId, Vec<String>)>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The passes and flows, by their number in a packed action.
const PASSES: [Pass; 4] = [Pass::Forward, Pass::Backward, Pass::BackwardInput, Pass::BackwardWeight];
const FLOWS: [Flow; 2] = [Flow::Activation, Flow::Gradient];

/// The first number of each kind of action: passes, sends, receives, reductions, steps.
const KINDS: [u64; 5] = [0, 4, 6, 8, 9];

/// An action as one number: its kind, 28 bits of its stage and 32 bits of its micro-batch. There are at most
/// 2^23 stages.
fn pack(action: Action) -> u64 {
    let of =
        |kind: u64, cell: Cell| kind << 60 | u64::from(cell.stage.0) << 32 | u64::from(cell.micro_batch.0);
    let whole = |stage| Cell { stage, micro_batch: MicroBatch(0) };
    match action {
        Action::Compute(pass, cell) => of(KINDS[0] + pass as u64, cell),
        Action::Send(flow, cell) => of(KINDS[1] + flow as u64, cell),
        Action::Recv(flow, cell) => of(KINDS[2] + flow as u64, cell),
        Action::Reduce(stage) => of(KINDS[3], whole(stage)),
        Action::Step(stage) => of(KINDS[4], whole(stage)),
    }
}

fn unpack(packed: u64) -> Action {
    let kind = packed >> 60;
    let cell = Cell {
        stage: StageId((packed >> 32) as u32 & ((1 << 28) - 1)),
        micro_batch: MicroBatch(packed as u32),
    };
    match kind {
        0..4 => Action::Compute(PASSES[kind as usize], cell),
        4..6 => Action::Send(FLOWS[(kind - KINDS[1]) as usize], cell),
        6..8 => Action::Recv(FLOWS[(kind - KINDS[2]) as usize], cell),
        8 => Action::Reduce(cell.stage),
        _ => Action::Step(cell.stage),
    }
}
