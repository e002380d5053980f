//! A second computation of times, as simple as possible and slow. It gives every action the earliest time
//! that the actions before it allow, and repeats this until nothing changes.

use crate::*;

/// When each pass, each transfer (by its send) and each reduction starts and ends.
pub(crate) type Times = BTreeMap<Action, (f64, f64)>;

/// What is timed, and what it costs.
pub(crate) struct Clock<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) costs: &'a [StageCost],
    /// How much work the micro-batches of a batch are. A replica has some of them, evenly spread, which
    /// have the same mean.
    pub(crate) work: &'a [f64],
    pub(crate) comm: f64,
    pub(crate) links: LinkKind,
}

/// More rounds than any of these schedules needs. With more, replicas wait for each other for ever.
const ROUNDS: usize = 1000;

/// The times of a step of several replicas, which add up their gradients together. `None` if they wait for
/// each other for ever.
pub(crate) fn together(replicas: &[Clock<'_>]) -> Option<Vec<Times>> {
    let begins: Vec<Vec<f64>> =
        replicas.iter().map(|clock| vec![0.0; clock.schedule.ranks() as usize]).collect();
    begun_at(replicas, &begins).map(|all| all.into_iter().map(|(times, _)| times).collect())
}

/// The times of each replica, whose ranks begin at these times, and when each rank has finished.
fn begun_at(replicas: &[Clock<'_>], begins: &[Vec<f64>]) -> Option<Vec<(Times, Vec<f64>)>> {
    let mut states = vec![(Times::new(), BTreeMap::new()); replicas.len()];
    for _ in 0..ROUNDS {
        let before = states.clone();
        let mut ends = Vec::new();
        let mut ready: BTreeMap<Action, f64> = BTreeMap::new();
        for ((clock, begin), (times, reached)) in replicas.iter().zip(begins).zip(&mut states) {
            let ranks = (0..clock.schedule.ranks()).map(Rank);
            let run = |rank: Rank| clock.run(rank, begin[rank.index()], times, reached);
            ends.push(ranks.map(run).collect::<Vec<f64>>());
            clock.transfer(times, reached);
            for (action, time) in clock.ready(times, reached) {
                let last = ready.entry(action).or_default();
                *last = time.max(*last);
            }
        }
        for (clock, (times, _)) in replicas.iter().zip(&mut states) {
            for (&action, &start) in &ready {
                let cost = clock.costs[action.stage().index()].reduce;
                times.insert(action, (start, start + cost));
            }
        }
        if before == states {
            return Some(states.into_iter().map(|(times, _)| times).zip(ends).collect());
        }
    }
    None
}

impl Clock<'_> {
    /// The times of a step that each rank begins at `begin`, and when each rank has finished it, update
    /// included.
    pub(crate) fn times(&self, begin: &[f64]) -> (Times, Vec<f64>) {
        let mut one = begun_at(std::slice::from_ref(self), &[begin.to_vec()]).expect("it is alone");
        one.remove(0)
    }

    fn run(&self, rank: Rank, begin: f64, times: &mut Times, reached: &mut BTreeMap<Action, f64>) -> f64 {
        let mut now = begin;
        for &action in self.schedule.actions(rank) {
            match action {
                Action::Compute(pass, cell) => {
                    let start = self.needs(pass, cell, times).fold(now, f64::max);
                    now = start + self.time(pass, cell);
                    times.insert(action, (start, now));
                }
                Action::Step(stage) => {
                    let reduced = times.get(&Action::Reduce(stage)).map_or(0.0, |&(_, end)| end);
                    let cost = self.costs[stage.index()];
                    now = f64::max(now, reduced) + cost.update + cost.gather;
                }
                Action::Send(..) | Action::Recv(..) | Action::Reduce(_) => drop(reached.insert(action, now)),
            }
        }
        now
    }

    fn time(&self, pass: Pass, cell: Cell) -> f64 {
        let cost = self.costs[cell.stage.index()];
        let count = self.schedule.micro_batches() as usize;
        let of = |micro_batch: usize| self.work[micro_batch * self.work.len() / count];
        let sum: f64 = self.work.iter().sum();
        let own: f64 = (0..count).map(of).sum();
        let work = of(cell.micro_batch.index()) * (sum / self.work.len() as f64) / (own / count as f64);
        work * match pass {
            Pass::Forward => cost.forward,
            Pass::Backward => cost.backward_input + cost.backward_weight,
            Pass::BackwardInput => cost.backward_input,
            Pass::BackwardWeight => cost.backward_weight,
        }
    }

    /// When the inputs of a pass are there, as far as is known.
    fn needs(&self, pass: Pass, cell: Cell, times: &Times) -> impl Iterator<Item = f64> {
        let flow = match pass {
            Pass::Forward => Flow::Activation,
            _ => Flow::Gradient,
        };
        let own = [Action::Compute(Pass::Forward, cell), Action::Compute(Pass::BackwardInput, cell)];
        let mut needs = own[..match pass {
            Pass::Forward => 0,
            Pass::Backward | Pass::BackwardInput => 1,
            Pass::BackwardWeight => 2,
        }]
            .to_vec();
        if let Some(stage) = flow.before(cell.stage)
            && pass != Pass::BackwardWeight
        {
            let from = Cell { stage, ..cell };
            needs.push(Action::Send(flow, from));
            if self.schedule.placement().rank(stage) == self.schedule.placement().rank(cell.stage) {
                let makers = match flow {
                    Flow::Activation => vec![Pass::Forward],
                    Flow::Gradient => vec![Pass::Backward, Pass::BackwardInput],
                };
                needs.extend(makers.into_iter().map(|pass| Action::Compute(pass, from)));
            }
        }
        let ends: Vec<_> = needs.iter().filter_map(|need| times.get(need)).map(|&(_, end)| end).collect();
        ends.into_iter()
    }

    fn transfer(&self, times: &mut Times, reached: &BTreeMap<Action, f64>) {
        let sends = reached.keys().filter(|action| matches!(action, Action::Send(..)));
        for &send in sends {
            let recv = send.partner().expect("a send has another end");
            let mut start = reached[&send];
            if self.links == LinkKind::Ordered {
                let ahead = [send, recv].map(|end| self.ahead(end, times));
                start = ahead.into_iter().fold(start.max(reached[&recv]), f64::max);
            }
            times.insert(send, (start, start + self.comm));
        }
    }

    /// When this replica is ready for each of its reductions, as far as is known.
    fn ready(&self, times: &Times, reached: &BTreeMap<Action, f64>) -> BTreeMap<Action, f64> {
        let reductions = reached.iter().filter(|(action, _)| matches!(action, Action::Reduce(_)));
        let ready = reductions.map(|(&action, &now)| match self.links {
            LinkKind::Buffered => (action, now),
            LinkKind::Ordered => (action, now.max(self.ahead(action, times))),
        });
        ready.collect()
    }

    /// When the communication before this one in its rank's list has ended.
    fn ahead(&self, communication: Action, times: &Times) -> f64 {
        let rank = self.schedule.rank_of(communication.stage());
        let mut before = None;
        for &action in self.schedule.actions(rank) {
            match action {
                _ if action == communication => break,
                Action::Send(..) | Action::Reduce(_) => before = Some(action),
                Action::Recv(..) => before = action.partner(),
                _ => {}
            }
        }
        before.and_then(|send| times.get(&send)).map_or(0.0, |&(_, end)| end)
    }
}
