//! The clock of a schedule: when each rank comes to each of its actions, step after step.

use crate::Result;
use crate::id::{Rank, StageId};
use crate::plan::kept::Kept;
use crate::plan::{Costs, StageCost};
use crate::schedule::{Action, Cell, Flow, Links, Pass, Placement, Schedule, Timed};
use crate::schedule::{Event, Id, NONE, Program, Replay};
use crate::schedule::{TimedReduction, TimedTransfer, Timeline};

/// What has got its time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Played {
    /// A pass of this rank. Those of one rank come in order.
    Pass(Rank, Timed),
    /// Transfers come in the order in which they happen.
    Transfer(TimedTransfer),
    /// Reductions come in the order in which they happen; those of one rank in the order of its list.
    Reduction(TimedReduction),
}

/// Plays steps one after the other, every action as early as it can be. A rank that is through with a step begins its
/// next at once, without waiting for the others.
///
/// A transfer or a reduction keeps no rank from computing. On buffered links they do not wait for each other; on ordered links
/// a transfer occupies the queues of both its ranks, and a reduction the queue of its rank. A step waits for its stage's
/// reduction, and a parameter update takes its time where its stage steps.
pub(crate) struct Clock<'a> {
    program: Program<'a>,
    links: Links,
    times: Times<'a>,
}

impl<'a> Clock<'a> {
    /// A clock at 0.
    ///
    /// # Errors
    /// [`Error`](crate::Error) when the costs are of another number of stages.
    pub(crate) fn new(schedule: &'a Schedule, costs: &Costs, links: Links) -> Result<Self> {
        let stages = costs.of(schedule.placement())?;
        let program = schedule.program();
        let ranks = schedule.ranks() as usize;
        Ok(Self {
            links,
            times: Times {
                placement: schedule.placement(),
                comm: costs.comm(),
                kept: Kept::new(schedule.placement(), &stages),
                stages,
                free: vec![0.0; ranks],
                queue: (links == Links::Ordered && (ranks > 1 || schedule.has_reductions()))
                    .then(|| vec![0.0; ranks]),
                at: vec![0.0; program.len()],
            },
            program,
        })
    }

    /// Plays a step and shows it to `visit`.
    ///
    /// # Errors
    /// [`Error`](crate::Error) when the schedule does not hold on these links.
    pub(crate) fn step(&mut self, mut visit: impl FnMut(Played)) -> Result<()> {
        let Self {
            program,
            links,
            times,
        } = self;
        times.kept.clear();
        Ok(Replay::new(program, *links).run(|event| match event {
            Event::Ran { rank, id, action } => times.ran(program, rank, id, action, &mut visit),
            Event::Moved {
                send,
                recv,
                flow,
                cell,
            } => times.moved([send, recv], flow, cell, &mut visit),
            Event::Reduced { rank, id, stage } => visit(times.reduced(rank, id, stage)),
        })?)
    }

    /// When each rank is through with the steps so far, and then, on ordered links, each rank's queue.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = f64> + '_ {
        self.times
            .free
            .iter()
            .chain(self.times.queue.iter().flatten())
            .copied()
    }
}

struct Times<'a> {
    placement: &'a Placement,
    comm: f64,
    stages: Vec<StageCost>,
    /// When each rank is done with what it has come to.
    free: Vec<f64>,
    /// What each rank holds.
    kept: Kept,
    /// When each rank's queue is done with the communication so far; on ordered links only.
    queue: Option<Vec<f64>>,
    /// When each action of the step was done; of communication under way, when its rank came to it.
    at: Vec<f64>,
}

impl Times<'_> {
    fn ran(
        &mut self,
        program: &Program<'_>,
        rank: usize,
        id: Id,
        action: Action,
        visit: &mut impl FnMut(Played),
    ) {
        match action {
            Action::Compute(pass, cell) => {
                let start = self.start(program, rank, action);
                visit(Played::Pass(
                    Rank(rank as u32),
                    self.pass(rank, pass, cell, start),
                ));
            }
            Action::Step(stage) => {
                let start = self.start(program, rank, action);
                self.free[rank] = start + self.stages[stage.index()].update;
            }
            Action::Send(..) | Action::Recv(..) | Action::Reduce(_) => {}
        }
        self.at[id as usize] = self.free[rank];
    }

    /// When a rank can start an action: it is free, and what the action needs is done.
    fn start(&self, program: &Program<'_>, rank: usize, action: Action) -> f64 {
        let needs = program.needs(action).into_iter().filter(|&need| need != NONE);
        needs
            .map(|need| self.at[need as usize])
            .fold(self.free[rank], f64::max)
    }

    fn pass(&mut self, rank: usize, pass: Pass, cell: Cell, start: f64) -> Timed {
        let cost = &self.stages[cell.stage.index()];
        self.free[rank] = start + cost.time(pass);
        let before = self.kept.held(rank);
        self.kept.count(cell.stage.index(), pass);
        let held = self.kept.held(rank);
        Timed {
            pass,
            cell,
            start,
            end: self.free[rank],
            held,
            most: held.max(before + cost.restored(pass)),
        }
    }

    fn reduced(&mut self, rank: usize, id: Id, stage: StageId) -> Played {
        let at = &mut self.at[id as usize];
        let mut start = *at;
        let queue = self.queue.as_mut().map(|queue| &mut queue[rank]);
        if let Some(queue) = &queue {
            start = start.max(**queue);
        }
        *at = start + self.stages[stage.index()].reduce;
        if let Some(queue) = queue {
            *queue = *at;
        }
        Played::Reduction(TimedReduction {
            stage,
            rank: Rank(rank as u32),
            start,
            end: *at,
        })
    }

    fn moved(&mut self, [send, recv]: [Id; 2], flow: Flow, cell: Cell, visit: &mut impl FnMut(Played)) {
        let (from, to) = self
            .placement
            .ends(flow, cell.stage)
            .expect("checked: transfers have two ends");
        let (send, recv) = (send as usize, recv as usize);
        let mut start = self.at[send];
        if let Some(queue) = &mut self.queue {
            let queues = queue[from.index()].max(queue[to.index()]);
            start = start.max(self.at[recv]).max(queues);
            queue[from.index()] = start + self.comm;
            queue[to.index()] = start + self.comm;
        }
        let end = start + self.comm;
        self.at[recv] = self.at[recv].max(end);
        visit(Played::Transfer(TimedTransfer {
            flow,
            cell,
            from,
            to,
            start,
            end,
        }));
    }
}

impl Schedule {
    /// When each pass, transfer and reduction starts and ends, if every one starts as early as it can.
    ///
    /// A transfer or a reduction keeps no rank from computing. On buffered links they do not wait for each other; on ordered
    /// links a transfer occupies the queues of both its ranks, and a reduction the queue of its rank.
    ///
    /// # Errors
    /// [`Error`](crate::Error) when the costs are of another number of stages, or the schedule does not
    /// hold on these links.
    pub fn timeline(&self, costs: &Costs, links: Links) -> Result<Timeline> {
        let mut timeline = Timeline {
            ranks: vec![Vec::new(); self.ranks() as usize],
            transfers: Vec::new(),
            reductions: Vec::new(),
        };
        Clock::new(self, costs, links)?.step(|played| match played {
            Played::Pass(rank, timed) => timeline.ranks[rank.index()].push(timed),
            Played::Transfer(transfer) => timeline.transfers.push(transfer),
            Played::Reduction(reduction) => timeline.reductions.push(reduction),
        })?;
        Ok(timeline)
    }
}
