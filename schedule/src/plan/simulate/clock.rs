//! The clock of a schedule: when each action starts and ends, step after step.

use super::copies::Copies;
use super::held_activations::HeldActivations;
use super::queue::Sent;
use crate::Result;
use crate::id::{Rank, StageId};
use crate::plan::{Costs, StageCost};
use crate::schedule::{
    Action, Cell, Event, Flow, Id, LinkKind, NONE, Pass, Placement, Program, Replay, Schedule, Timed,
    TimedCopy, TimedReduction, TimedTransfer, Timeline,
};

/// An action whose time is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Played {
    /// A pass of this rank. The passes of one rank come in order.
    Pass(Rank, Timed),
    /// The delay of this rank's next pass by copies to the host and back.
    Late(Rank, f64),
    /// A copy to the host or back. Copies of one rank come in order.
    Copy(TimedCopy),
    /// A transfer. Transfers come in the order in which they happen.
    Transfer(TimedTransfer),
    /// A reduction. Reductions come in the order in which they happen; reductions of one rank come in the
    /// order of its list.
    Reduction(TimedReduction),
}

/// Plays one step after another. Every action starts as early as it can. A rank that has finished a step
/// begins its next one at once and does not wait for other ranks.
///
/// Transfers and reductions run beside compute: no rank stops for them. On buffered links they wait for each
/// other only as far as the [`Queue`](crate::plan::Queue) of the costs says. On ordered links a transfer
/// occupies the queues of both its ranks, and a reduction occupies the queue of its rank. A step waits for
/// its stage's reduction. The parameter update takes its time where the stage steps. Copies of offloaded
/// activations run beside compute too, until a pass needs them or their memory.
pub(crate) struct Clock<'a> {
    program: Program<'a>,
    links: LinkKind,
    times: Times<'a>,
}

impl<'a> Clock<'a> {
    /// A clock at 0.
    ///
    /// # Errors
    /// [`Error::Plan`](crate::Error::Plan) when the costs are for another number
    /// of stages.
    pub(crate) fn new(schedule: &'a Schedule, costs: &Costs, links: LinkKind) -> Result<Self> {
        let stages = costs.of(schedule.placement())?;
        let program = schedule.program();
        let ranks = schedule.ranks() as usize;
        let buffered = links == LinkKind::Buffered;
        Ok(Self {
            links,
            times: Times {
                placement: schedule.placement(),
                comm: costs.comm(),
                work: costs.work(schedule.micro_batches()),
                kept: HeldActivations::new(schedule.placement(), &stages),
                copies: schedule.offloads().then(|| Copies::of(schedule)),
                sent: buffered.then(|| Sent::new(costs.queue(), &program, &stages)),
                stages,
                free: vec![0.0; ranks],
                queue: (links == LinkKind::Ordered && (ranks > 1 || schedule.has_reductions()))
                    .then(|| vec![0.0; ranks]),
                at: vec![0.0; program.len()],
                reductions_from: Vec::new(),
            },
            program,
        })
    }

    /// The same clock, by which no stage's reduction starts before these times: other replicas are not there
    /// yet. It is for a single step.
    pub(crate) fn reductions_from(mut self, times: &[f64]) -> Self {
        self.times.reductions_from = times.to_vec();
        self
    }

    /// Plays a step and shows it to `visit`.
    ///
    /// # Errors
    /// [`ScheduleError::Deadlock`](crate::error::ScheduleError::Deadlock) when the schedule cannot end on
    /// these links.
    pub(crate) fn step(&mut self, mut visit: impl FnMut(Played)) -> Result<()> {
        let Self { program, links, times } = self;
        times.kept.clear();
        if let Some(copies) = &mut times.copies {
            copies.begin_step();
        }
        Ok(Replay::new(program, *links).run(|event| match event {
            Event::Ran { rank, id, action } => times.ran(program, rank, id, action, &mut visit),
            Event::Moved { send, recv, flow, cell } => times.moved([send, recv], flow, cell, &mut visit),
            Event::Reduced { rank, id, stage } => visit(times.reduced(rank, id, stage)),
        })?)
    }

    /// When each rank has finished the steps so far. On ordered links the times of the ranks' queues follow.
    pub(crate) fn fronts(&self) -> impl Iterator<Item = f64> + '_ {
        self.times.free.iter().chain(self.times.queue.iter().flatten()).copied()
    }
}

struct Times<'a> {
    placement: &'a Placement,
    comm: f64,
    /// How much work each micro-batch is, beside a mean one.
    work: Vec<f64>,
    stages: Vec<StageCost>,
    /// When each rank has finished the actions it has reached.
    free: Vec<f64>,
    /// What each rank holds.
    kept: HeldActivations,
    /// Their copies to the host and back, if anything is offloaded.
    copies: Option<Copies>,
    /// What the ranks have sent. Only on buffered links.
    sent: Option<Sent>,
    /// When each rank's queue has finished its communication so far. Only on ordered links.
    queue: Option<Vec<f64>>,
    /// When each action of the step was done. For communication that is still under way: when its rank
    /// reached it.
    at: Vec<f64>,
    /// When each stage's reduction can start at the earliest. Empty: at any time.
    reductions_from: Vec<f64>,
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
                let in_time = self.start(program, rank, action);
                let start = in_time.max(self.copied(rank, pass, cell, visit));
                if start > in_time {
                    visit(Played::Late(Rank(rank as u32), start - in_time));
                }
                visit(Played::Pass(Rank(rank as u32), self.pass(rank, pass, cell, start)));
            }
            Action::Step(stage) => {
                let start = self.start(program, rank, action);
                let cost = &self.stages[stage.index()];
                self.free[rank] = start + cost.update + cost.gather;
            }
            Action::Send(..) => {
                self.at[id as usize] = self.leaves(rank, id as usize);
                return;
            }
            Action::Recv(..) | Action::Reduce(_) => {}
        }
        self.at[id as usize] = self.free[rank];
    }

    /// When a rank's next pass can start, as far as copies are concerned.
    fn copied(&mut self, rank: usize, pass: Pass, cell: Cell, visit: &mut impl FnMut(Played)) -> f64 {
        let Some(copies) = &mut self.copies else {
            return 0.0;
        };
        let visit = &mut |copy| visit(Played::Copy(copy));
        let free = copies.before_pass(rank, self.free[rank], &self.stages, &mut self.kept, visit);
        match pass {
            Pass::Backward | Pass::BackwardInput => free.max(copies.end(rank, cell)),
            Pass::Forward | Pass::BackwardWeight => free,
        }
    }

    /// When a rank's transfer starts, if it goes on without a pause from then.
    fn leaves(&mut self, rank: usize, id: usize) -> f64 {
        let now = self.free[rank];
        match &mut self.sent {
            Some(sent) => sent.transfer(rank, id, now),
            None => now,
        }
    }

    /// When a rank can start an action: it is free, and what the action needs is done.
    fn start(&self, program: &Program<'_>, rank: usize, action: Action) -> f64 {
        let needs = program.needs(action).into_iter().filter(|&need| need != NONE);
        needs.map(|need| self.at[need as usize]).fold(self.free[rank], f64::max)
    }

    fn pass(&mut self, rank: usize, pass: Pass, cell: Cell, start: f64) -> Timed {
        let cost = &self.stages[cell.stage.index()];
        self.free[rank] = start + cost.time(pass) * self.work[cell.micro_batch.index()];
        let before = self.kept.held(rank);
        self.kept.count(cell.stage.index(), pass);
        let held = self.kept.held(rank);
        Timed {
            pass,
            cell,
            start,
            end: self.free[rank],
            before,
            held,
            most: held.max(before + cost.restored(pass)),
        }
    }

    fn reduced(&mut self, rank: usize, id: Id, stage: StageId) -> Played {
        let at = &mut self.at[id as usize];
        let others = self.reductions_from.get(stage.index()).copied();
        let mut start = at.max(others.unwrap_or(0.0));
        let queue = self.queue.as_mut().map(|queue| &mut queue[rank]);
        if let Some(queue) = &queue {
            start = start.max(**queue);
        }
        let time = self.stages[stage.index()].reduce;
        if let Some(sent) = &mut self.sent {
            start = sent.reduction(rank, time, start);
        }
        *at = start + time;
        if let Some(queue) = queue {
            *queue = *at;
        }
        Played::Reduction(TimedReduction { stage, rank: Rank(rank as u32), start, end: *at })
    }

    fn moved(&mut self, [send, recv]: [Id; 2], flow: Flow, cell: Cell, visit: &mut impl FnMut(Played)) {
        let (from, to) = self.placement.ends(flow, cell.stage).expect("checked: transfers have two ends");
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
        visit(Played::Transfer(TimedTransfer { flow, cell, from, to, start, end }));
    }
}

impl Schedule {
    /// When each pass, transfer and reduction starts and ends, if every one starts as early as it can.
    ///
    /// Transfers and reductions run beside compute: no rank stops for them. On buffered links they wait for
    /// each other only as far as the [`Queue`](crate::plan::Queue) of the costs says. On ordered links a
    /// transfer occupies the queues of both its ranks, and a reduction occupies the queue of its rank.
    ///
    /// # Errors
    /// [`Error::Plan`](crate::Error::Plan) when the costs are for another number
    /// of stages. [`ScheduleError::Deadlock`](crate::error::ScheduleError::Deadlock) when the schedule cannot
    /// end on these links.
    pub fn timeline(&self, costs: &Costs, links: LinkKind) -> Result<Timeline> {
        self.timeline_from(costs, links, &[])
    }

    /// The same, if no stage's reduction starts before these times.
    pub(crate) fn timeline_from(
        &self,
        costs: &Costs,
        links: LinkKind,
        reductions_from: &[f64],
    ) -> Result<Timeline> {
        let mut timeline = Timeline {
            ranks: vec![Vec::new(); self.ranks() as usize],
            transfers: Vec::new(),
            reductions: Vec::new(),
            ..Timeline::default()
        };
        let clock = Clock::new(self, costs, links)?;
        clock.reductions_from(reductions_from).step(|played| match played {
            Played::Pass(rank, timed) => timeline.ranks[rank.index()].push(timed),
            Played::Transfer(transfer) => timeline.transfers.push(transfer),
            Played::Reduction(reduction) => timeline.reductions.push(reduction),
            Played::Copy(copy) => timeline.copies.push(copy),
            Played::Late(..) => {}
        })?;
        Ok(timeline)
    }
}
