//! Cuts a model: which layers go to which stage, by their costs.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::plan::memory_peaks::Holding;
use crate::plan::{ModelCosts, StageCost};
use crate::schedule::Schedule;
use crate::{Error, Result};

/// How many partial cuts are kept for each stage and each number of layers. The search is exact as long as no
/// more cuts than that are candidates. That holds with one stage a rank, and with few ranks.
const WIDTH: usize = 64;

/// How many layers each stage of the schedule gets, in model order. The cut makes a step as short as
/// possible. With `m` micro-batches on `p` ranks, a step is taken to last `m` times the slowest rank (all its
/// stages together, with what they add up and collect over replicas) and `p - 1` times the slowest stage.
/// With a limit, no rank may hold more bytes of activations than the limit.
///
/// # Errors
/// [`Error::Plan`] when there are more stages than layers, or when every cut found exceeds the limit on some
/// rank.
pub fn partition(costs: &ModelCosts, schedule: &Schedule, memory: Option<f64>) -> Result<Vec<usize>> {
    let (stages, layers) = (schedule.stages() as usize, costs.layers().len());
    if stages > layers {
        return Err(Error::plan(format!(
            "{stages} stages for {layers} layers: use at most {layers} stages or a deeper model"
        )));
    }
    let search = Search::new(costs, schedule, memory);
    let mut front = vec![Vec::new(); layers + 1];
    front[0].push(Cut::none(schedule.ranks() as usize));
    for stage in 0..stages {
        front = search.grow(&front, stage);
    }
    front[layers]
        .iter()
        .min_by(|a, b| search.score(a).total_cmp(&search.score(b)))
        .map(|cut| cut.counts.clone())
        .ok_or_else(|| {
            let memory = memory.unwrap_or(f64::INFINITY);
            Error::plan(format!(
                "no cut of {layers} layers into {stages} stages keeps every rank within {memory} bytes"
            ))
        })
}

/// A partial cut: the first stages of a model with their layers.
#[derive(Clone, Debug)]
struct Cut {
    counts: Vec<usize>,
    /// The cost of each stage so far.
    stages: Vec<StageCost>,
    /// The time of each rank's stages so far, for a micro-batch.
    loads: Vec<f64>,
    /// The most bytes that each rank's stages so far hold. 0 without a limit.
    held: Vec<f64>,
    /// The time of the slowest stage.
    slowest: f64,
}

impl Cut {
    fn none(ranks: usize) -> Self {
        Self {
            counts: Vec::new(),
            stages: Vec::new(),
            loads: vec![0.0; ranks],
            held: vec![0.0; ranks],
            slowest: 0.0,
        }
    }

    /// The same with one more stage, on this rank.
    fn with(&self, count: usize, cost: StageCost, own: &Own, rank: usize) -> Self {
        let mut cut = Self {
            counts: [&self.counts[..], &[count]].concat(),
            stages: [&self.stages[..], &[cost]].concat(),
            loads: self.loads.clone(),
            held: self.held.clone(),
            slowest: own.slowest,
        };
        (cut.loads[rank], cut.held[rank]) = (own.load, own.held);
        cut
    }
}

/// What changes in a cut that gets one more stage.
struct Own {
    /// The load of the stage's rank.
    load: f64,
    /// What that rank holds.
    held: f64,
    /// The time of the slowest stage.
    slowest: f64,
}

/// Where the next stage goes.
struct NextStage {
    rank: usize,
    /// By rank: its load after this stage if the work were shared evenly.
    even: Vec<f64>,
    /// By rank: whether it gets more stages after this one.
    goes_on: Vec<bool>,
}

impl NextStage {
    fn of(search: &Search<'_>, stage: usize) -> Self {
        Self {
            rank: search.rank_of[stage],
            even: search.even(stage),
            goes_on: (0..search.ranks).map(|rank| search.rank_of[stage + 1..].contains(&rank)).collect(),
        }
    }

    /// The largest excess of a rank's load over its even one, without the rank of the stage.
    fn others(&self, cut: &Cut) -> f64 {
        let others = (0..self.even.len()).filter(|&rank| rank != self.rank);
        others.map(|rank| cut.loads[rank] - self.even[rank]).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The numbers on which the final score of a partial cut with one more stage depends. Smaller is better
    /// for each.
    fn judge(&self, cut: &Cut, own: &Own, is_limited: bool, judged: &mut Vec<f64>) {
        let mut done: f64 = 0.0;
        judged.clear();
        judged.push(own.slowest);
        for (rank, goes_on) in self.goes_on.iter().enumerate() {
            let (load, held) = match rank == self.rank {
                true => (own.load, own.held),
                false => (cut.loads[rank], cut.held[rank]),
            };
            match goes_on {
                true => judged.extend(std::iter::once(load).chain(is_limited.then_some(held))),
                false => done = done.max(load),
            }
        }
        judged.push(done);
    }
}

/// A partial cut that gets one more stage.
struct Grown {
    /// The largest excess of a rank's load over its even one. A smaller one is more promising. The slowest
    /// stage decides between equal ones.
    lead: f64,
    /// Its layers so far.
    start: usize,
    /// Its place among the cuts of these layers.
    index: usize,
}

/// The most promising is the greatest. Among equal ones it is the one with the fewest layers so far.
impl Ord for Grown {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |grown: &Self| (grown.start, grown.index);
        other.lead.total_cmp(&self.lead).then_with(|| place(other).cmp(&place(self)))
    }
}

impl PartialOrd for Grown {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Grown {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Grown {}

struct Search<'a> {
    costs: &'a ModelCosts,
    ranks: usize,
    rank_of: Vec<usize>,
    micro_batches: f64,
    holding: Holding,
    memory: Option<f64>,
    /// An even share of the work: the time of all layers, divided by the speeds of the ranks.
    share: f64,
}

impl<'a> Search<'a> {
    fn new(costs: &'a ModelCosts, schedule: &Schedule, memory: Option<f64>) -> Self {
        let micro_batches = f64::from(schedule.micro_batches());
        let work = load(&costs.stage(0..costs.layers().len()), micro_batches);
        let speeds: f64 = (0..schedule.ranks() as usize).map(|rank| 1.0 / costs.slowness(rank)).sum();
        Self {
            costs,
            ranks: schedule.ranks() as usize,
            rank_of: schedule.placement().iter().map(|rank| rank.index()).collect(),
            micro_batches,
            holding: Holding::of(schedule),
            memory,
            share: work / speeds,
        }
    }

    /// Adds the next stage to each cut, in every possible way. `front[n]` has the cuts of the first `n`
    /// layers.
    fn grow(&self, front: &[Vec<Cut>], stage: usize) -> Vec<Vec<Cut>> {
        let layers = front.len() - 1;
        let after = self.rank_of.len() - 1 - stage;
        let next = NextStage::of(self, stage);
        let others: Vec<Vec<f64>> =
            front.iter().map(|cuts| cuts.iter().map(|cut| next.others(cut)).collect()).collect();
        let ends = (0..=layers).map(|end| {
            // Each later stage needs a layer, and the last stage takes all that are left.
            if end > layers - after || (after == 0 && end < layers) {
                return Vec::new();
            }
            self.best(&front[..end], &others, &next)
        });
        ends.collect()
    }

    /// Adds a stage with all layers up to an end to the cuts before that end, and keeps the most promising.
    /// Drops a cut when another one is at least as good in every respect. Most are not kept, so a cut is made
    /// when its turn comes.
    fn best(&self, front: &[Vec<Cut>], others: &[Vec<f64>], next: &NextStage) -> Vec<Cut> {
        let (mut costs, mut grown) = (vec![StageCost::NOTHING; front.len()], Vec::new());
        for (start, cuts) in front.iter().enumerate().filter(|(_, cuts)| !cuts.is_empty()) {
            let cost = self.costs.stage_on(start..front.len(), next.rank);
            costs[start] = cost;
            let added = load(&cost, self.micro_batches);
            grown.extend(cuts.iter().enumerate().map(|(index, cut)| {
                let own = cut.loads[next.rank] + added - next.even[next.rank];
                let slowest = cut.slowest.max(cost.work()) / self.micro_batches;
                Grown { lead: others[start][index].max(own).max(slowest), start, index }
            }));
        }
        let mut grown = BinaryHeap::from(grown);
        let mut kept: Vec<(Vec<f64>, Cut)> = Vec::new();
        let mut judged = Vec::new();
        while kept.len() < WIDTH
            && let Some(Grown { start, index, .. }) = grown.pop()
        {
            let (cut, cost) = (&front[start][index], &costs[start]);
            let Some(own) = self.own(cut, cost, next) else {
                continue;
            };
            next.judge(cut, &own, self.memory.is_some(), &mut judged);
            let beats = |other: &[f64]| other.iter().zip(&judged).all(|(other, own)| other <= own);
            if !kept.iter().any(|(other, _)| beats(other)) {
                kept.push((judged.clone(), cut.with(front.len() - start, *cost, &own, next.rank)));
            }
        }
        kept.into_iter().map(|(_, cut)| cut).collect()
    }

    /// What changes when a cut gets one more stage. `None` when its rank then holds more than the limit.
    fn own(&self, cut: &Cut, cost: &StageCost, next: &NextStage) -> Option<Own> {
        let held = match self.memory {
            Some(memory) => {
                let cost_of = |stage| match stage == cut.stages.len() {
                    true => Some(cost),
                    false => cut.stages.get(stage),
                };
                let held = self.holding.peak(next.rank, cost_of);
                if held > memory {
                    return None;
                }
                held
            }
            None => 0.0,
        };
        Some(Own {
            load: cut.loads[next.rank] + load(cost, self.micro_batches),
            held,
            slowest: cut.slowest.max(cost.work()),
        })
    }

    /// The load of each rank after this stage if the work were shared evenly among ranks and their stages.
    fn even(&self, stage: usize) -> Vec<f64> {
        let count = |rank: usize, among: &[usize]| among.iter().filter(|&&of| of == rank).count() as f64;
        (0..self.ranks)
            .map(|rank| self.share * (count(rank, &self.rank_of[..=stage]) / count(rank, &self.rank_of)))
            .collect()
    }

    fn score(&self, cut: &Cut) -> f64 {
        let slowest = cut.loads.iter().copied().fold(0.0, f64::max);
        self.micro_batches * slowest + (cut.loads.len() as f64 - 1.0) * cut.slowest
    }
}

/// The time of a stage for a micro-batch, with its part of what the stage does once a step over replicas.
fn load(cost: &StageCost, micro_batches: f64) -> f64 {
    cost.work() + (cost.reduce + cost.gather) / micro_batches.max(1.0)
}
