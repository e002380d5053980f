//! One listing, decision by decision.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::policy::{First, Policy};
use super::task::{Listed, Task, least_memory};
use crate::plan::StageCost;
use crate::schedule::{Cell, Pass};

/// Lists the passes of every rank. `None` when a rank cannot hold even one micro-batch.
pub(super) fn list(task: &Task<'_>, policy: &Policy) -> Option<Listed> {
    let mut lister = Lister::new(task, policy);
    if least_memory(task.placement, task.stages) > task.memory + lister.slack_memory {
        return None;
    }
    while let Some(Reverse((Time(now), rank))) = lister.calls.pop() {
        if lister.ranks[rank].called == now {
            lister.ranks[rank].called = f64::INFINITY;
            lister.decide(rank, now);
        }
    }
    Some(lister.listed())
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Time(f64);

impl Eq for Time {}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Clone, Debug)]
struct RankState {
    stages: Vec<usize>,
    passes: Vec<(Pass, Cell)>,
    /// When it started its first pass.
    began: f64,
    /// When it has finished its passes so far.
    free: f64,
    /// How long it has waited between passes.
    idle: f64,
    held: f64,
    /// The most that a backward-input may add to the memory held, during the pass or after it.
    extra: f64,
    /// When it decides next. Infinite while nothing is known to come.
    called: f64,
    last: Pass,
}

/// How many micro-batches a stage has done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    forward: usize,
    input: usize,
    weight: usize,
}

struct Lister<'a> {
    task: &'a Task<'a>,
    policy: &'a Policy,
    micro_batches: usize,
    /// Each stage's cost, as the policy counts it.
    stages: Vec<StageCost>,
    rank_of: Vec<usize>,
    ranks: Vec<RankState>,
    done: Vec<Done>,
    /// When the inputs of each forward and of each backward-input are there: `[stage][micro_batch]`.
    forward_at: Vec<f64>,
    input_at: Vec<f64>,
    calls: BinaryHeap<Reverse<(Time, usize)>>,
    /// The longest that a rank has waited between passes.
    most_idle: f64,
    /// Smaller differences count as rounding errors.
    slack_time: f64,
    slack_memory: f64,
}

/// The passes that a rank could run next.
struct Options {
    /// The first ready pass in the order of the rank's rule, with its stage.
    ready: Option<((bool, usize), Pass, usize)>,
    /// When the next forward or backward-input is ready, if known.
    soon: f64,
    /// When the next backward-input is ready, if known.
    input: f64,
    /// Whether the memory has no room for some pass.
    blocked: bool,
}

impl<'a> Lister<'a> {
    fn new(task: &'a Task<'a>, policy: &'a Policy) -> Self {
        let micro_batches = task.micro_batches as usize;
        let rank_of: Vec<_> = task.placement.iter().map(|rank| rank.index()).collect();
        let mut ranks = vec![
            RankState {
                stages: Vec::new(),
                passes: Vec::new(),
                began: f64::INFINITY,
                free: 0.0,
                idle: 0.0,
                held: 0.0,
                extra: 0.0,
                called: 0.0,
                last: Pass::BackwardWeight,
            };
            task.placement.ranks() as usize
        ];
        let mut stages = task.stages.to_vec();
        if policy.thrifty {
            for cost in &mut stages {
                cost.pending = cost.pending.max(cost.saved);
            }
        }
        for (stage, (&rank, cost)) in rank_of.iter().zip(&stages).enumerate() {
            ranks[rank].stages.push(stage);
            ranks[rank].extra = ranks[rank].extra.max(cost.rise(Pass::BackwardInput));
        }
        let cells = rank_of.len() * micro_batches;
        let mut forward_at = vec![f64::INFINITY; cells];
        forward_at[..micro_batches].fill(0.0);
        let longest = task.stages.iter().map(StageCost::work).fold(0.0, f64::max);
        Self {
            task,
            policy,
            micro_batches,
            stages,
            calls: (0..ranks.len()).map(|rank| Reverse((Time(0.0), rank))).collect(),
            done: vec![Done::default(); rank_of.len()],
            rank_of,
            ranks,
            forward_at,
            input_at: vec![f64::INFINITY; cells],
            most_idle: 0.0,
            slack_time: 1e-9 * longest,
            slack_memory: 1e-9 * task.memory,
        }
    }

    fn decide(&mut self, rank: usize, now: f64) {
        let mut options = self.options(rank, now);
        if let Some((_, Pass::Forward, stage)) = options.ready {
            let patience = self.policy.rules[rank].patience * self.stages[stage].forward;
            let wait = options.input - now;
            if wait > self.slack_time && wait < patience {
                options.ready = None;
                options.soon = options.input;
            }
        }
        match (options.ready, self.weight(rank)) {
            (Some((_, pass, stage)), _) => self.perform(rank, now, pass, stage),
            (None, Some(stage)) if self.fills(rank, stage, now, &options) => {
                self.perform(rank, now, Pass::BackwardWeight, stage);
            }
            _ if options.soon > now => self.call(rank, options.soon),
            _ => {}
        }
    }

    fn options(&self, rank: usize, now: f64) -> Options {
        let mut options = Options { ready: None, soon: f64::INFINITY, input: f64::INFINITY, blocked: false };
        let turn = match self.policy.rules[rank].first {
            First::Backward => Pass::BackwardInput,
            First::Forward => Pass::Forward,
            First::InTurn if self.ranks[rank].last == Pass::Forward => Pass::BackwardInput,
            First::InTurn => Pass::Forward,
        };
        let (next_forward, next_input) = self.rounds(rank);
        for &stage in &self.ranks[rank].stages {
            let Done { forward, input, .. } = self.done[stage];
            if input < forward && next_input.is_none_or(|next| next == stage) {
                let at = self.input_at[self.cell(stage, input)];
                let fits = || self.fits(rank, self.stages[stage].rise(Pass::BackwardInput));
                options.offer(
                    now + self.slack_time,
                    at,
                    fits,
                    (turn != Pass::BackwardInput, stage),
                    Pass::BackwardInput,
                    stage,
                );
                options.input = options.input.min(at);
            }
            if forward < self.micro_batches
                && next_forward.is_none_or(|next| next == stage)
                && forward - input < self.policy.in_flight[stage] as usize
            {
                let fits = || self.fits(rank, self.stages[stage].saved) && self.is_safe(rank, stage);
                let at = self.forward_at[self.cell(stage, forward)];
                options.offer(
                    now + self.slack_time,
                    at,
                    fits,
                    (turn != Pass::Forward, self.done.len() - stage),
                    Pass::Forward,
                    stage,
                );
            }
        }
        options
    }

    /// Where the policy goes in rounds: the only stages whose forward and whose backward-input may come next.
    fn rounds(&self, rank: usize) -> (Option<usize>, Option<usize>) {
        let RankState { stages, .. } = &self.ranks[rank];
        if !self.policy.rounds || stages.len() == 1 {
            return (None, None);
        }
        let round = |done: usize| done / self.ranks.len();
        let open = |done: usize| done < self.micro_batches;
        let forwards = stages.iter().copied().filter(|&stage| open(self.done[stage].forward));
        let inputs = stages.iter().copied().filter(|&stage| open(self.done[stage].input));
        (
            forwards.min_by_key(|&stage| (round(self.done[stage].forward), stage)),
            inputs.min_by_key(|&stage| (round(self.done[stage].input), Reverse(stage))),
        )
    }

    /// Whether every micro-batch can still be finished here after one more forward of this stage, the oldest
    /// first. For each micro-batch there has to be room for its missing forwards beside what younger ones
    /// hold (Dijkstra's banker's algorithm). From one micro-batch to the next, the sum of both grows only
    /// where a stage's forwards end. So only those micro-batches and the oldest one are checked.
    fn is_safe(&self, rank: usize, next: usize) -> bool {
        let RankState { stages, extra, .. } = &self.ranks[rank];
        let forwards = |stage: usize| self.done[stage].forward + usize::from(stage == next);
        let room = self.task.memory + self.slack_memory - extra;
        let oldest = stages.iter().map(|&stage| self.done[stage].input).min();
        stages.iter().map(|&stage| forwards(stage)).chain(oldest).all(|micro_batch| {
            let share = |&stage: &usize| {
                let (done, input) = (forwards(stage), self.done[stage].input);
                let younger = done.saturating_sub(input.max(micro_batch));
                let missing = usize::from(done <= micro_batch);
                self.stages[stage].saved * (younger + missing) as f64
            };
            stages.iter().map(share).sum::<f64>() <= room
        })
    }

    fn fits(&self, rank: usize, more: f64) -> bool {
        self.ranks[rank].held + more <= self.task.memory + self.slack_memory
    }

    /// The stage whose backward-weight has waited longest.
    fn weight(&self, rank: usize) -> Option<usize> {
        let open = |stage: &&usize| self.done[**stage].weight < self.done[**stage].input;
        let stages = self.ranks[rank].stages.iter().filter(open);
        stages.min_by_key(|&&stage| (self.done[stage].weight, Reverse(stage))).copied()
    }

    /// Whether a backward-weight is put into the gap before the next pass.
    fn fills(&self, rank: usize, stage: usize, now: f64, options: &Options) -> bool {
        let gap = options.soon - now + self.slack_time;
        options.blocked
            || gap >= self.policy.rules[rank].fill * self.stages[stage].backward_weight
            || (self.policy.rules[rank].even
                && self.ranks[rank].idle + gap > self.most_idle + 2.0 * self.slack_time)
    }

    fn perform(&mut self, rank: usize, now: f64, pass: Pass, stage: usize) {
        let cost = &self.stages[stage];
        let done = &mut self.done[stage];
        let count = match pass {
            Pass::Forward => &mut done.forward,
            Pass::BackwardInput => &mut done.input,
            Pass::BackwardWeight | Pass::Backward => &mut done.weight,
        };
        let micro_batch = *count;
        *count += 1;
        let state = &mut self.ranks[rank];
        if state.passes.is_empty() {
            state.began = now;
        } else {
            state.idle += now - state.free;
            self.most_idle = self.most_idle.max(state.idle);
        }
        if pass != Pass::BackwardWeight {
            state.last = pass;
        }
        state.held += cost.change(pass);
        state.free = now + cost.time(pass);
        state.passes.push((pass, Cell::new(stage as u32, micro_batch as u32)));
        let end = state.free;
        self.call(rank, end);
        match pass {
            Pass::Forward if stage + 1 == self.done.len() => {
                self.input_at[stage * self.micro_batches + micro_batch] = end
            }
            Pass::Forward => self.hand(now, end, stage, stage + 1, micro_batch, Pass::Forward),
            Pass::BackwardInput if stage > 0 => {
                self.hand(now, end, stage, stage - 1, micro_batch, Pass::BackwardInput)
            }
            _ => {}
        }
    }

    /// Records when the next stage's input arrives, and has that stage's rank decide again then.
    fn hand(&mut self, now: f64, end: f64, from: usize, to: usize, micro_batch: usize, pass: Pass) {
        let (sender, receiver) = (self.rank_of[from], self.rank_of[to]);
        let at = if sender == receiver { end } else { end + self.task.comm };
        let cell = self.cell(to, micro_batch);
        match pass {
            Pass::Forward => self.forward_at[cell] = at,
            _ => self.input_at[cell] = at,
        }
        if sender != receiver {
            self.call(receiver, now.max(self.ranks[receiver].free));
        }
    }

    /// Has a rank decide at this time, unless it decides earlier anyway.
    fn call(&mut self, rank: usize, at: f64) {
        if at < self.ranks[rank].called {
            self.ranks[rank].called = at;
            self.calls.push(Reverse((Time(at), rank)));
        }
    }

    fn cell(&self, stage: usize, micro_batch: usize) -> usize {
        stage * self.micro_batches + micro_batch
    }

    fn listed(self) -> Listed {
        let makespan = self.ranks.iter().map(|rank| rank.free).fold(0.0, f64::max);
        let span = self.ranks.iter().map(|rank| rank.free - rank.began).fold(0.0, f64::max);
        Listed { passes: self.ranks.into_iter().map(|rank| rank.passes).collect(), makespan, span }
    }
}

impl Options {
    fn offer(
        &mut self,
        now: f64,
        at: f64,
        fits: impl FnOnce() -> bool,
        order: (bool, usize),
        pass: Pass,
        stage: usize,
    ) {
        if at == f64::INFINITY {
            return;
        }
        if !fits() {
            self.blocked = true;
            return;
        }
        self.soon = self.soon.min(at);
        if at <= now && self.ready.is_none_or(|(best, ..)| order < best) {
            self.ready = Some((order, pass, stage));
        }
    }
}
