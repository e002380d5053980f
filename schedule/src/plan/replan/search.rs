//! Looks for a cut that is faster, and for another schedule.

use super::{Better, Scheduling, Watch, Why};
use crate::Result;
use crate::plan::{ModelCosts, Prediction, partition};
use crate::schedule::LinkKind;

/// By which share of its time a step has to become shorter.
const GAIN: f64 = 0.05;

/// By which share the step by another schedule has to be shorter than by the schedule of now, each with its
/// best cut. A smaller gain is as likely an error of the costs.
const OTHER: f64 = 0.02;

impl Watch {
    /// A cut whose step is shorter by the gain, perhaps by another schedule or in another shape. `world`: how
    /// slow each rank of the run is.
    pub(super) fn faster(&self, seconds: f64, world: &[f64]) -> Result<Option<Better>> {
        let Some(model) = self.model_of(&self.scheduling) else {
            return Ok(None);
        };
        let slowness = self.of_pipeline(world, &self.scheduling)?;
        let model = model.clone().at_slowness(slowness.clone())?;
        let now = self.step(&under(model.clone(), &self.scheduling), &self.scheduling, &self.counts)?;
        let mut best = self.best_cut(&model)?;
        if let Some(other) = self.best_other(world, now.peak_memory)?
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

    /// The best of the others, with a cut for it. `world`: how slow each rank of the run is. `held`: what the
    /// fullest rank holds now.
    fn best_other(&self, world: &[f64], held: f64) -> Result<Option<Found<'_>>> {
        let within = self.memory.unwrap_or(held);
        let mut best: Option<Found<'_>> = None;
        let others = self.others.iter().filter(|other| other.left_out == 0).map(|other| &other.scheduling);
        for scheduling in others.filter(|other| **other != self.scheduling) {
            let Some(model) = self.model_at(world, scheduling)? else {
                continue;
            };
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
            && let Some(model) = self.model_at(world, found.scheduling)?
        {
            let start = found.counts.clone();
            self.descend(found, &model, start, within)?;
        }
        Ok(best)
    }

    /// What layers cost by this scheduling, on ranks that are this slow, if it is known.
    fn model_at(&self, world: &[f64], scheduling: &Scheduling) -> Result<Option<ModelCosts>> {
        let model = self.model_of(scheduling).cloned();
        let slowness = self.of_pipeline(world, scheduling)?;
        model.map(|model| Ok(under(model.at_slowness(slowness)?, scheduling))).transpose()
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
