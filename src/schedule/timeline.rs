//! When each pass and each transfer starts and ends.

use crate::Result;
use crate::id::Rank;
use crate::schedule::program::{NONE, Program};
use crate::schedule::replay::{Event, Links, Replay};
use crate::schedule::{Action, Cell, Costs, Flow, Pass, Schedule, StageCost};

/// A step in time, planned or measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Each rank's passes, in order.
    pub ranks: Vec<Vec<Timed>>,
    /// The transfers, in the order in which they start.
    pub transfers: Vec<TimedTransfer>,
}

/// A pass with its time and what its rank holds then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// What is done.
    pub pass: Pass,
    /// For which stage and micro-batch.
    pub cell: Cell,
    /// When it starts; the step starts at 0. In the unit of the costs; seconds where it was measured.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// Memory that the rank holds for backwards to come once it has ended. In the unit of the costs; bytes where it was
    /// measured.
    pub held: f64,
}

/// A transfer with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedTransfer {
    /// What travels.
    pub flow: Flow,
    /// The cell of the stage that sends.
    pub cell: Cell,
    /// The rank that sends.
    pub from: Rank,
    /// The rank that receives.
    pub to: Rank,
    /// When it starts.
    pub start: f64,
    /// When it has arrived; where it was measured, when the receiver has taken it up.
    pub end: f64,
}

impl TimedTransfer {
    /// The cell of the stage that receives.
    pub fn receiver(&self) -> Option<Cell> {
        let stage = self.flow.after(self.cell.stage)?;
        Some(Cell { stage, ..self.cell })
    }
}

impl Schedule {
    /// When each pass and transfer starts and ends, if every one starts as early as it can.
    ///
    /// A transfer keeps no rank from computing. On buffered links transfers do not wait for each other; on ordered links
    /// a transfer occupies the queues of both its ranks.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the costs are of another number of stages, or the schedule does not
    /// hold on these links.
    pub fn timeline(&self, costs: &Costs, links: Links) -> Result<Timeline> {
        let stages = costs.of(self.placement())?;
        let program = self.program();
        let mut clock = Clock::new(&program, links, costs.comm(), &stages);
        Replay::new(&program, links).run(|event| clock.tick(event))?;
        Ok(clock.timeline)
    }
}

struct Clock<'a> {
    program: &'a Program<'a>,
    links: Links,
    comm: f64,
    stages: &'a [StageCost],
    /// When each rank is done with what it has come to.
    free: Vec<f64>,
    /// What each rank holds.
    held: Vec<f64>,
    /// When each rank's queue is done with the transfers so far.
    queue: Vec<f64>,
    /// When each action was done; of a transfer under way, when it was announced.
    at: Vec<f64>,
    timeline: Timeline,
}

impl<'a> Clock<'a> {
    fn new(program: &'a Program<'a>, links: Links, comm: f64, stages: &'a [StageCost]) -> Self {
        let ranks = program.rows().len();
        Self {
            program,
            links,
            comm,
            stages,
            free: vec![0.0; ranks],
            held: vec![0.0; ranks],
            queue: vec![0.0; ranks],
            at: vec![0.0; program.len()],
            timeline: Timeline {
                ranks: vec![Vec::new(); ranks],
                transfers: Vec::new(),
            },
        }
    }

    fn tick(&mut self, event: Event) {
        match event {
            Event::Ran { rank, id, action } => {
                if let Action::Compute(pass, cell) = action {
                    self.pass(rank, action, pass, cell);
                }
                self.at[id as usize] = self.free[rank];
            }
            Event::Moved { send, recv } => self.transfer(send as usize, recv as usize),
        }
    }

    fn pass(&mut self, rank: usize, action: Action, pass: Pass, cell: Cell) {
        let needs = self
            .program
            .needs(action)
            .into_iter()
            .filter(|&need| need != NONE);
        let start = needs
            .map(|need| self.at[need as usize])
            .fold(self.free[rank], f64::max);
        let cost = &self.stages[cell.stage.index()];
        self.free[rank] = start + cost.time(pass);
        self.held[rank] += cost.change(pass);
        self.timeline.ranks[rank].push(Timed {
            pass,
            cell,
            start,
            end: self.free[rank],
            held: self.held[rank],
        });
    }

    fn transfer(&mut self, send: usize, recv: usize) {
        let place = self.program.place(send as u32);
        let (from, to) = (place.rank, Rank(self.program.rank_of(recv as u32) as u32));
        let mut start = self.at[send];
        if self.links == Links::Ordered {
            let queues = self.queue[from.index()].max(self.queue[to.index()]);
            start = start.max(self.at[recv]).max(queues);
            self.queue[from.index()] = start + self.comm;
            self.queue[to.index()] = start + self.comm;
        }
        let end = start + self.comm;
        self.at[recv] = self.at[recv].max(end);
        if let Action::Send(flow, cell) = place.action {
            self.timeline.transfers.push(TimedTransfer {
                flow,
                cell,
                from,
                to,
                start,
                end,
            });
        }
    }
}
