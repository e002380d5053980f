//! When each pass starts and ends, given what passes and transfers cost.

use crate::Result;
use crate::id::Rank;
use crate::schedule::program::{NONE, Program};
use crate::schedule::replay::{Event, Links, Replay};
use crate::schedule::{Action, Cell, Pass, Schedule};

/// A pass with its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// What is done.
    pub pass: Pass,
    /// For which stage and micro-batch.
    pub cell: Cell,
    /// When it starts; the step starts at 0. In the unit of the costs.
    pub start: f64,
    /// When it ends.
    pub end: f64,
}

impl Schedule {
    /// When each rank's passes start and end, if every pass starts as early as it can.
    ///
    /// A pass takes `cost`; a transfer takes `comm` and keeps no rank from computing. On buffered links
    /// transfers do not wait for each other; on ordered links a transfer occupies the queues of both its
    /// ranks.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) when the schedule does not hold on these links.
    pub fn timeline(
        &self,
        links: Links,
        comm: f64,
        cost: impl Fn(Rank, Pass, Cell) -> f64,
    ) -> Result<Vec<Vec<Timed>>> {
        let program = self.program();
        let mut clock = Clock::new(&program, links, comm, cost);
        Replay::new(&program, links).run(|event| clock.tick(event))?;
        Ok(clock.rows)
    }
}

struct Clock<'a, C> {
    program: &'a Program<'a>,
    links: Links,
    comm: f64,
    cost: C,
    /// When each rank is done with what it has come to.
    free: Vec<f64>,
    /// When each rank's queue is done with the transfers so far.
    queue: Vec<f64>,
    /// When each action was done; of a transfer under way, when it was announced.
    at: Vec<f64>,
    rows: Vec<Vec<Timed>>,
}

impl<'a, C: Fn(Rank, Pass, Cell) -> f64> Clock<'a, C> {
    fn new(program: &'a Program<'a>, links: Links, comm: f64, cost: C) -> Self {
        let ranks = program.rows().len();
        Self {
            program,
            links,
            comm,
            cost,
            free: vec![0.0; ranks],
            queue: vec![0.0; ranks],
            at: vec![0.0; program.len()],
            rows: vec![Vec::new(); ranks],
        }
    }

    fn tick(&mut self, event: Event) {
        match event {
            Event::Ran { rank, id, action } => {
                if let Action::Compute(pass, cell) = action {
                    let needs = self
                        .program
                        .needs(action)
                        .into_iter()
                        .filter(|&need| need != NONE);
                    let start = needs
                        .map(|need| self.at[need as usize])
                        .fold(self.free[rank], f64::max);
                    let end = start + (self.cost)(Rank(rank as u32), pass, cell);
                    self.rows[rank].push(Timed {
                        pass,
                        cell,
                        start,
                        end,
                    });
                    self.free[rank] = end;
                }
                self.at[id as usize] = self.free[rank];
            }
            Event::Moved { send, recv } => {
                let (from, to) = (self.program.rank_of(send), self.program.rank_of(recv));
                let (send, recv) = (send as usize, recv as usize);
                let mut start = self.at[send];
                if self.links == Links::Ordered {
                    start = start.max(self.at[recv]).max(self.queue[from]).max(self.queue[to]);
                    self.queue[from] = start + self.comm;
                    self.queue[to] = start + self.comm;
                }
                self.at[recv] = self.at[recv].max(start + self.comm);
            }
        }
    }
}
