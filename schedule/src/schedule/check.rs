//! The schedule, and the checker: the only code that makes one.

use std::collections::BTreeSet;

use crate::Result;
use crate::error::ScheduleError;
use crate::id::{Rank, StageId};
use crate::schedule::lower::{add_reductions, add_steps, lower};
use crate::schedule::program::Program;
use crate::schedule::replay::{Event, Replay};
use crate::schedule::set::{Expected, check_set};
use crate::schedule::{Action, Cell, LinkKind, Pass, Placement};

/// What every rank does in one step, in order: passes, transfers, reductions, parameter updates.
///
/// A schedule is always checked. Each stage does each micro-batch exactly once, on the stage's rank, and a
/// replay of the lists ends. The [module](crate::schedule) says what that promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    name: String,
    placement: Placement,
    micro_batches: u32,
    actions: Vec<Vec<Action>>,
    /// The forwards of the pairs.
    pub(super) pairs: BTreeSet<Cell>,
    /// The cells whose activations are on the host meanwhile.
    pub(super) offloaded: BTreeSet<Cell>,
}

impl Schedule {
    /// Checks compute passes, one list a rank, and inserts the transfers and the steps.
    ///
    /// The result holds on ordered links, and so on all links.
    ///
    /// # Errors
    /// [`ScheduleError`] when an action is missing, repeated, on the wrong rank or not called for.
    /// It names the actions, their ranks and places. [`ScheduleError::Deadlock`] when the order cannot end.
    /// It names who waits for whom.
    pub fn from_passes(
        name: impl Into<String>,
        placement: Placement,
        micro_batches: u32,
        passes: Vec<Vec<(Pass, Cell)>>,
    ) -> Result<Self> {
        let compute = |row: Vec<_>| row.into_iter().map(|(pass, cell)| Action::Compute(pass, cell)).collect();
        Self::lowered(
            name,
            placement,
            micro_batches,
            passes.into_iter().map(compute).collect(),
            Expected::Passes,
        )
    }

    /// The same from passes and reductions, where these passes are expected. Steps belong to backward passes.
    pub(super) fn lowered(
        name: impl Into<String>,
        placement: Placement,
        micro_batches: u32,
        rows: Vec<Vec<Action>>,
        expected: Expected,
    ) -> Result<Self> {
        let program = index(&rows, &placement, micro_batches)?;
        check_set(&program, &placement, expected)?;
        let mut actions = lower(&program, &placement)?;
        if expected == Expected::Passes {
            add_steps(&mut actions, &placement);
        }
        let schedule = Self::plain(name.into(), placement, micro_batches, actions);
        schedule.holds_on(LinkKind::Ordered)?;
        Ok(schedule)
    }

    /// Checks forward passes alone, one list a rank, and inserts the transfers. An evaluation runs such a
    /// schedule. It has neither backward passes nor steps.
    ///
    /// # Errors
    /// As [`Schedule::from_passes`].
    pub fn from_forwards(
        name: impl Into<String>,
        placement: Placement,
        micro_batches: u32,
        forwards: Vec<Vec<Cell>>,
    ) -> Result<Self> {
        let forward = |cell| Action::Compute(Pass::Forward, cell);
        let rows = forwards.into_iter().map(|row| row.into_iter().map(forward).collect()).collect();
        Self::lowered(name, placement, micro_batches, rows, Expected::Forwards)
    }

    /// Checks complete lists on these links, as they are, transfers included. If no list has steps, they are
    /// added at the ends of the lists. If no list has reductions, the schedule has none.
    ///
    /// # Errors
    /// As for [`Schedule::from_passes`]; also for transfers that are missing, repeated or not called for.
    pub fn from_actions(
        name: impl Into<String>,
        placement: Placement,
        micro_batches: u32,
        mut actions: Vec<Vec<Action>>,
        links: LinkKind,
    ) -> Result<Self> {
        if !actions.iter().flatten().any(|action| matches!(action, Action::Step(_))) {
            add_steps(&mut actions, &placement);
        }
        let program = index(&actions, &placement, micro_batches)?;
        check_set(&program, &placement, Expected::Actions)?;
        Replay::new(&program, links).run(|_: Event| ())?;
        Ok(Self::plain(name.into(), placement, micro_batches, actions))
    }

    /// Without pairs, and nothing is offloaded.
    fn plain(name: String, placement: Placement, micro_batches: u32, actions: Vec<Vec<Action>>) -> Self {
        let (pairs, offloaded) = (BTreeSet::new(), BTreeSet::new());
        Self { name, placement, micro_batches, actions, pairs, offloaded }
    }

    /// The same schedule, lowered for this number of replicas of the pipeline. For several, each stage gets a
    /// reduction: the sum of its gradients over its replicas. It comes after the stage's last backward-weight
    /// and the sends behind that. Every number above one gives the same schedule; one replica has nothing to
    /// add. A schedule that has reductions stays unchanged.
    #[must_use]
    pub fn for_replicas(mut self, replicas: u32) -> Self {
        if replicas > 1 && !self.has_reductions() {
            add_reductions(&mut self.actions);
        }
        self
    }

    /// What a replica does in a step for which it has no micro-batch: the reductions and the steps of this
    /// schedule, in its order.
    #[must_use]
    pub fn idle(&self) -> Self {
        let ends = |action: &&Action| matches!(action, Action::Reduce(_) | Action::Step(_));
        let rows = self.actions.iter().map(|row| row.iter().filter(ends).copied().collect());
        Self::plain(self.name.clone(), self.placement.clone(), 0, rows.collect())
    }

    /// Whether the schedule sums gradients over replicas.
    pub fn has_reductions(&self) -> bool {
        self.actions.iter().flatten().any(|action| matches!(action, Action::Reduce(_)))
    }

    /// Whether the schedule also ends on these links. A schedule made from passes ends on all links. One with
    /// transfers of its own is only sure to end on the links it was checked on.
    ///
    /// # Errors
    /// [`ScheduleError::Deadlock`] naming who waits for whom.
    pub fn holds_on(&self, links: LinkKind) -> Result<()> {
        Ok(Replay::new(&self.program(), links).run(|_| ())?)
    }

    /// What the schedule is called, such as `1f1b`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which rank each stage is on.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.placement.ranks()
    }

    /// How many stages there are.
    pub fn stages(&self) -> u32 {
        self.placement.stages()
    }

    /// The rank that this stage is on.
    ///
    /// # Panics
    /// When the schedule has no such stage.
    pub fn rank_of(&self, stage: StageId) -> Rank {
        self.placement.rank(stage).expect("the schedule has this stage")
    }

    /// The stage that gives the loss.
    pub fn last_stage(&self) -> StageId {
        StageId(self.stages() - 1)
    }

    /// How many micro-batches a step has.
    pub fn micro_batches(&self) -> u32 {
        self.micro_batches
    }

    /// What this rank does in one step, in order; empty when there is no such rank.
    pub fn actions(&self, rank: Rank) -> &[Action] {
        self.rows().get(rank.index()).map_or(&[], Vec::as_slice)
    }

    /// The passes of this rank, in order.
    pub fn passes(&self, rank: Rank) -> impl Iterator<Item = (Pass, Cell)> + '_ {
        self.actions(rank).iter().filter_map(|action| action.compute())
    }

    /// The rank at the other end of a transfer. `None` for an action that is no transfer of this schedule.
    pub fn peer(&self, transfer: Action) -> Option<Rank> {
        transfer.partner().and_then(|other| self.placement.rank(other.stage()))
    }

    pub(super) fn rows(&self) -> &[Vec<Action>] {
        &self.actions
    }

    pub(crate) fn program(&self) -> Program<'_> {
        Program::index(&self.actions, self.stages(), self.micro_batches)
            .expect("checked: the sizes are supported")
            .in_directions(self.placement.directions())
    }
}

fn index<'a>(rows: &'a [Vec<Action>], placement: &Placement, micro_batches: u32) -> Result<Program<'a>> {
    if micro_batches == 0 {
        return Err(ScheduleError::new("a schedule needs at least 1 micro-batch, got 0").into());
    }
    if rows.len() != placement.ranks() as usize {
        return Err(ScheduleError::new(format!(
            "there are {} lists of actions, but the stages are on {} ranks (placement {placement}); give \
             each list stages of its own, each on one rank",
            rows.len(),
            placement.ranks()
        ))
        .into());
    }
    Ok(Program::index(rows, placement.stages(), micro_batches)?.in_directions(placement.directions()))
}
