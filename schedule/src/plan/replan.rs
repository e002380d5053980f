//! Watches the steps of a training, and says when another cut of the model, or another schedule, would be
//! faster.

use crate::Result;
use crate::plan::{ModelCosts, Prediction, Replicas, median, partition};
use crate::schedule::LinkKind;

/// How many steps are looked at together.
const WINDOW: usize = 8;

/// How many steps after a new cut do not count: memory is touched for the first time.
const WARM_UP: usize = 2;

/// By which share of its time a step has to become shorter.
const GAIN: f64 = 0.05;

/// By which share it has to be shorter after a new cut. Otherwise the old cut comes back.
const HELD: f64 = 0.02;

/// Slowness that differs by less than this share is the same.
const SAME: f64 = 0.02;

/// What a new cut saves has to be this many times what it costs.
const PAYS: f64 = 2.0;

/// For how many windows at most nothing is changed after a cut that did not help.
const LONGEST: u32 = 64;

/// By which share the step by another schedule has to be shorter than by the schedule of now, each with its
/// best cut. A smaller gain is as likely an error of the costs.
const OTHER: f64 = 0.02;

/// By which schedules the passes of a step run, and what they compute again.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduling {
    /// The schedule's name.
    pub schedule: String,
    /// Whether stages keep only their inputs, and a backward runs the forward again.
    pub recomputed: bool,
    /// The replicas with their schedules.
    pub replicas: Replicas,
}

impl Scheduling {
    /// By these schedules, where stages keep more than their inputs.
    pub fn of(replicas: Replicas) -> Self {
        Self { schedule: replicas.largest().name().to_owned(), recomputed: false, replicas }
    }
}

/// Watches the steps of a pipeline. From what its ranks measure, it says which cut would be faster, and
/// which schedules.
///
/// A rank's slowness is the time that it worked, divided by the time that its layers should take. A cut is
/// proposed when its simulated step is 5 % shorter than the simulated step of now, when the steps that are
/// left save twice what the change costs, and when two windows of 8 steps in a row say so. If the next
/// window is not 2 % faster than before, the old cut is proposed again, and then there is a pause, which is
/// twice as long each time.
///
/// [Other schedules](Watch::or) are proposed in the same way, if their step with their best cut is 2 %
/// shorter than the step by the schedule of now with its best cut, and if no rank then holds more than the
/// memory limit. Without a limit, no rank may hold more than the fullest rank does now. A schedule that did
/// not help, or was not possible, is left out for 8 windows, and for twice as many each further time.
#[derive(Clone, Debug)]
pub struct Watch {
    /// What layers cost under any schedule.
    model: ModelCosts,
    scheduling: Scheduling,
    counts: Vec<usize>,
    others: Vec<Other>,
    /// Whether all ranks wait for each other at the end of a step.
    barrier: bool,
    /// The newest proposal, if it was one of the others.
    proposed: Option<Scheduling>,
    memory: Option<f64>,
    /// Whether the costs are seconds that were measured. Otherwise the first window says how long the layers
    /// of each rank take.
    is_measured: bool,
    /// The seconds of steps, and those in which each rank worked.
    steps: Vec<(f64, Vec<f64>)>,
    left_out: usize,
    /// Whether the window before this one was for another cut too.
    is_second: bool,
    /// The scheduling and the cut before the newest change, and the seconds of their steps.
    before: Option<(Scheduling, Vec<usize>, f64)>,
    /// How many windows are passed over.
    pause: u32,
    next_pause: u32,
    /// What a change costs, in seconds.
    cost: f64,
    /// The seconds of a step before and after a change that has helped, until somebody asks for them.
    brought: Option<[f64; 2]>,
    /// How slow the ranks were when no cut was found that is faster.
    settled: Vec<f64>,
}

/// Another scheduling that may be proposed.
#[derive(Clone, Debug)]
struct Other {
    scheduling: Scheduling,
    /// For how many windows it is left out.
    left_out: u32,
    /// For how many it will be left out, if it does not help.
    next: u32,
}

/// For how many windows another scheduling is left out that did not help.
const LEFT_OUT: u32 = 8;

/// Why a cut or a scheduling is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It should be faster.
    Faster,
    /// It was faster than the cut that followed it.
    ItWasFaster,
}

/// A cut, and perhaps another scheduling, that should be faster.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Better {
    /// The schedules, and what is recomputed.
    pub scheduling: Scheduling,
    /// The layers of each stage.
    pub counts: Vec<usize>,
    /// Why.
    pub why: Why,
    /// How many times as long each rank takes as its layers should.
    pub slowness: Vec<f64>,
    /// The seconds of a step now: a median.
    pub was: f64,
    /// The seconds that a step should take.
    pub will_be: f64,
}

impl Watch {
    /// Watches a pipeline with this cut. `model`: what layers cost under any schedule. `is_measured`: whether
    /// the costs are seconds on these ranks. `cost`: what a change costs, in seconds, until one was made.
    /// `memory`: the most bytes of activations that a rank may hold.
    #[must_use]
    pub fn new(
        (model, is_measured): (ModelCosts, bool),
        scheduling: Scheduling,
        counts: Vec<usize>,
        memory: Option<f64>,
        cost: f64,
    ) -> Self {
        Self {
            model,
            scheduling,
            counts,
            others: Vec::new(),
            barrier: true,
            proposed: None,
            memory,
            is_measured,
            steps: Vec::with_capacity(WINDOW),
            left_out: WARM_UP,
            is_second: false,
            before: None,
            pause: 0,
            next_pause: 1,
            cost,
            brought: None,
            settled: Vec::new(),
        }
    }

    /// The same, where the passes may run in one of these ways too. Each has as many ranks and replicas.
    #[must_use]
    pub fn or(self, others: Vec<Scheduling>) -> Self {
        let other = |scheduling| Other { scheduling, left_out: 0, next: LEFT_OUT };
        Self { others: others.into_iter().map(other).collect(), ..self }
    }

    /// The same, where ranks do not wait for each other at the end of a step.
    #[must_use]
    pub fn without_barrier(self) -> Self {
        Self { barrier: false, ..self }
    }

    /// The layers of each stage now.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The schedules now, and what is recomputed.
    pub fn scheduling(&self) -> &Scheduling {
        &self.scheduling
    }

    /// Whether the next call of [`Watch::better`] looks at a whole window.
    pub fn is_due(&self) -> bool {
        self.steps.len() >= WINDOW
    }

    /// Adds a step: its seconds, and those in which each rank of the pipeline worked, the slowest replica and
    /// shard of it.
    pub fn add(&mut self, seconds: f64, busy: Vec<f64>) {
        match self.left_out {
            0 => self.steps.push((seconds, busy)),
            _ => self.left_out -= 1,
        }
    }

    /// After a whole window: the cut that is proposed, if there are `left` steps to come.
    ///
    /// # Errors
    /// As for [`partition`] and [`Prediction::of_replicas`].
    pub fn better(&mut self, left: u64) -> Result<Option<Better>> {
        if !self.is_due() {
            return Ok(None);
        }
        let steps = std::mem::take(&mut self.steps);
        for other in self.others.iter_mut().filter(|other| other.left_out > 0) {
            other.left_out -= 1;
            if other.left_out == 0 {
                // It may be faster than what was found without it.
                self.settled.clear();
            }
        }
        let seconds = median(steps.iter().map(|(seconds, _)| *seconds)).unwrap_or_default();
        let of_rank = |rank| median(steps.iter().filter_map(|(_, busy)| busy.get(rank).copied()));
        let busy =
            (0..self.scheduling.replicas.ranks() as usize).map(|rank| of_rank(rank).unwrap_or_default());
        let slowness = self.slowness(&busy.collect::<Vec<_>>());
        if let Some((scheduling, counts, before)) = self.before.take() {
            if seconds <= (1.0 - HELD) * before {
                self.brought = Some([before, seconds]);
                return Ok(None);
            }
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(LONGEST);
            if scheduling != self.scheduling {
                let tried = self.scheduling.clone();
                self.leave_out(&tried);
            }
            let why = Why::ItWasFaster;
            return Ok(Some(Better { scheduling, counts, why, slowness, was: seconds, will_be: before }));
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Ok(None);
        }
        let slowness = match self.is_measured {
            true => slowness,
            false => self.calibrate(&slowness),
        };
        let is_near = |(now, then): (&f64, &f64)| (now / then - 1.0).abs() < SAME;
        if self.settled.len() == slowness.len() && slowness.iter().zip(&self.settled).all(is_near) {
            self.is_second = false;
            return Ok(None);
        }
        let found = self.faster(seconds, slowness.clone())?;
        let found = found.filter(|found| left as f64 * (found.was - found.will_be) > PAYS * self.cost);
        self.settled = if found.is_none() { slowness } else { Vec::new() };
        let was_second = std::mem::replace(&mut self.is_second, found.is_some());
        let found = found.filter(|_| was_second);
        let scheduling = found.as_ref().map(|found| &found.scheduling);
        self.proposed = scheduling.filter(|proposed| **proposed != self.scheduling).cloned();
        Ok(found)
    }

    /// The scheduling and the cut are others now, because that should be faster. With the old ones, a step
    /// took `was` seconds. The change took `seconds`. If it is not faster, the old ones are proposed.
    pub fn try_out(&mut self, (scheduling, counts): (Scheduling, Vec<usize>), was: f64, seconds: f64) {
        let old = (
            std::mem::replace(&mut self.scheduling, scheduling),
            std::mem::replace(&mut self.counts, counts),
        );
        self.before = Some((old.0, old.1, was));
        self.begin_again(seconds);
    }

    /// The scheduling and the cut are others now, whatever that brings. The change took `seconds`.
    pub fn set(&mut self, (scheduling, counts): (Scheduling, Vec<usize>), seconds: f64) {
        (self.scheduling, self.counts) = (scheduling, counts);
        self.before = None;
        self.begin_again(seconds);
    }

    /// The seconds of a step before and after a change that has helped, once they are known.
    pub fn brought(&mut self) -> Option<[f64; 2]> {
        self.brought.take()
    }

    /// The proposed cut is not possible. For a while none is proposed.
    pub fn refused(&mut self) {
        if let Some(proposed) = self.proposed.take() {
            self.leave_out(&proposed);
        }
        self.pause = self.next_pause;
        self.next_pause = (2 * self.next_pause).min(LONGEST);
        self.is_second = false;
    }

    fn leave_out(&mut self, scheduling: &Scheduling) {
        for other in self.others.iter_mut().filter(|other| other.scheduling == *scheduling) {
            other.left_out = other.next;
            other.next = (2 * other.next).min(LEFT_OUT * LONGEST);
        }
    }

    /// What a change costs, in seconds, as far as it is known.
    pub fn cost(&self) -> f64 {
        self.cost
    }

    fn begin_again(&mut self, seconds: f64) {
        self.cost = seconds;
        self.proposed = None;
        self.steps.clear();
        self.left_out = WARM_UP;
        self.is_second = false;
        self.settled.clear();
    }

    /// How many times as long each rank takes as its layers should.
    fn slowness(&self, busy: &[f64]) -> Vec<f64> {
        let micro_batches = f64::from(self.scheduling.replicas.largest().micro_batches());
        let model = under(self.model.clone(), &self.scheduling);
        let mut expected = vec![0.0; busy.len()];
        for ((_, rank), layers) in self.stages() {
            let cost = model.stage(layers);
            expected[rank] += micro_batches * cost.work() + cost.update;
        }
        let share =
            |(busy, expected): (&f64, f64)| if *busy > 0.0 && expected > 0.0 { busy / expected } else { 1.0 };
        busy.iter().zip(expected).map(share).collect()
    }

    /// Takes what the layers of each rank cost from how slow the ranks are, and the ranks as equally fast.
    fn calibrate(&mut self, slowness: &[f64]) -> Vec<f64> {
        let mut times = Vec::new();
        for ((_, rank), layers) in self.stages() {
            times.extend(layers.map(|_| slowness[rank]));
        }
        self.model = self.model.clone().scaled(&times);
        self.is_measured = true;
        vec![1.0; slowness.len()]
    }

    /// The stages with their ranks, and the layers of each.
    fn stages(&self) -> Vec<((usize, usize), std::ops::Range<usize>)> {
        let mut end = 0;
        let placement = self.scheduling.replicas.largest().placement();
        let stages = placement.iter().enumerate().zip(&self.counts);
        let stages = stages.map(|((stage, rank), count)| {
            let first = end;
            end += count;
            ((stage, rank.index()), first..end)
        });
        stages.collect()
    }

    /// A cut whose step is shorter by the gain, at this slowness, perhaps by another schedule.
    fn faster(&self, seconds: f64, slowness: Vec<f64>) -> Result<Option<Better>> {
        let model = self.model.clone().at_slowness(slowness.clone())?;
        let now = self.step(&under(model.clone(), &self.scheduling), &self.scheduling, &self.counts)?;
        let mut best = self.best_cut(&model)?;
        if let Some(other) = self.best_other(&model, now.peak_memory)?
            && other.step < (1.0 - OTHER) * best.step
        {
            best = other;
        }
        let is_other = best.scheduling != &self.scheduling || best.counts != self.counts;
        let is_faster = is_other && best.step <= (1.0 - GAIN) * now.step;
        let (scheduling, counts, will_be) =
            (best.scheduling.clone(), best.counts, seconds * best.step / now.step);
        let why = Why::Faster;
        Ok(is_faster.then_some(Better { scheduling, counts, why, slowness, was: seconds, will_be }))
    }

    /// The best cut that is found for the scheduling of now.
    fn best_cut(&self, model: &ModelCosts) -> Result<Found<'_>> {
        let (scheduling, model) = (&self.scheduling, under(model.clone(), &self.scheduling));
        let within = self.memory.unwrap_or(f64::INFINITY);
        // Where no cut is within the limit, there is an error.
        let best = partition(&model, scheduling.replicas.largest(), self.memory);
        let best = best.unwrap_or_else(|_| self.counts.clone());
        // The search judges by a formula. The simulation may find cuts that are better: from different cuts
        // on, since a search by neighbours can end beside the best one.
        let step = self.step(&model, scheduling, &best)?.step;
        let mut found = Found { scheduling, step, counts: best.clone() };
        let now = self.step(&model, scheduling, &self.counts)?.step;
        if now < found.step {
            (found.step, found.counts) = (now, self.counts.clone());
        }
        if self.is_small(scheduling) {
            for start in [best, self.counts.clone(), even(&self.counts)] {
                self.descend(&mut found, &model, start, within)?;
            }
        }
        Ok(found)
    }

    /// The best of the others, with a cut for it. `held`: what the fullest rank holds now.
    fn best_other(&self, model: &ModelCosts, held: f64) -> Result<Option<Found<'_>>> {
        let within = self.memory.unwrap_or(held);
        let mut best: Option<Found<'_>> = None;
        let others = self.others.iter().filter(|other| other.left_out == 0).map(|other| &other.scheduling);
        for scheduling in others.filter(|other| **other != self.scheduling) {
            let model = under(model.clone(), scheduling);
            // Where no cut is within the limit, there is an error.
            let Ok(counts) = partition(&model, scheduling.replicas.largest(), Some(within)) else {
                continue;
            };
            let found = self.step(&model, scheduling, &counts)?;
            let is_within = found.peak_memory <= within * (1.0 + ROUNDING);
            if is_within && best.as_ref().is_none_or(|best| found.step < best.step) {
                best = Some(Found { scheduling, step: found.step, counts });
            }
        }
        if let Some(found) = &mut best
            && self.is_small(found.scheduling)
        {
            let (start, model) = (found.counts.clone(), under(model.clone(), found.scheduling));
            self.descend(found, &model, start, within)?;
        }
        Ok(best)
    }

    /// Whether all neighbours of a cut can be simulated in about half a second.
    fn is_small(&self, scheduling: &Scheduling) -> bool {
        let schedule = scheduling.replicas.largest();
        let [stages, micro_batches] = [schedule.stages(), schedule.micro_batches()].map(u64::from);
        let steps = if self.barrier { 1 } else { STEPS };
        stages * stages * 3 * stages * micro_batches * steps <= MOST
    }

    /// Takes the cut to which a descent from `start` leads, if its step is shorter. No rank may hold more
    /// than `within`.
    fn descend(
        &self,
        found: &mut Found<'_>,
        model: &ModelCosts,
        start: Vec<usize>,
        within: f64,
    ) -> Result<()> {
        let (counts, seconds) = descent(start, |counts| {
            let prediction = self.step(model, found.scheduling, counts)?;
            let is_within = prediction.peak_memory <= within * (1.0 + ROUNDING);
            Ok(if is_within { prediction.step } else { f64::INFINITY })
        })?;
        if seconds < found.step {
            (found.counts, found.step) = (counts, seconds);
        }
        Ok(())
    }

    /// A step of a model with what its layers cost by this scheduling.
    fn step(&self, model: &ModelCosts, scheduling: &Scheduling, counts: &[usize]) -> Result<Prediction> {
        let (replicas, links) = (&scheduling.replicas, LinkKind::Buffered);
        let costs = model.stages_on(counts, replicas.largest().placement())?;
        Prediction::of_steps(replicas, &costs, links, self.barrier)
    }
}

/// The most passes that are simulated to look at all neighbours of a cut.
const MOST: u64 = 1 << 22;

/// About how many steps are simulated where ranks do not meet at the end of each.
const STEPS: u64 = 64;

/// Rounding errors of sums of bytes.
const ROUNDING: f64 = 1e-9;

/// A cut for a scheduling, and the simulated time of its steps.
struct Found<'a> {
    scheduling: &'a Scheduling,
    counts: Vec<usize>,
    step: f64,
}

/// What layers cost by a scheduling.
fn under(model: ModelCosts, scheduling: &Scheduling) -> ModelCosts {
    model.under(scheduling.replicas.largest()).recomputed(scheduling.recomputed)
}

/// As many layers in as many stages, about equally many in each.
fn even(counts: &[usize]) -> Vec<usize> {
    let (layers, stages) = (counts.iter().sum::<usize>(), counts.len());
    (0..stages).map(|stage| layers * (stage + 1) / stages - layers * stage / stages).collect()
}

/// The cut with the shortest step to which shorter and shorter steps lead from a cut, by one layer each, and
/// its step.
fn descent(start: Vec<usize>, step: impl Fn(&[usize]) -> Result<f64>) -> Result<(Vec<usize>, f64)> {
    let mut shortest = step(&start)?;
    let mut best = start;
    loop {
        let around = neighbours(&best).map(|counts| step(&counts).map(|seconds| (counts, seconds)));
        let around = around.collect::<Result<Vec<_>>>()?;
        match around.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((counts, seconds)) if seconds < shortest => (best, shortest) = (counts, seconds),
            _ => return Ok((best, shortest)),
        }
    }
}

/// The cuts in which one stage has a layer less, and another one has it more.
fn neighbours(counts: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let stages = 0..counts.len();
    let pairs = stages.clone().flat_map(move |from| stages.clone().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to && counts[*from] > 1).map(|(from, to)| {
        let mut counts = counts.to_vec();
        counts[from] -= 1;
        counts[to] += 1;
        counts
    })
}
