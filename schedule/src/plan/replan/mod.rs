//! Watches the steps of a training, and says when another cut of the model, or another schedule, would be
//! faster.

mod search;
mod slowness;

use crate::Result;
use crate::mesh::Map;
use crate::plan::{ModelCosts, Replicas, median};

/// How many steps are looked at together.
const WINDOW: usize = 8;

/// How many steps after a new cut do not count: memory is touched for the first time.
const WARM_UP: usize = 2;

/// By which share it has to be shorter after a new cut. Otherwise the old cut comes back.
const HELD: f64 = 0.02;

/// Slowness that differs by less than this share is the same.
const SAME: f64 = 0.02;

/// What a new cut saves has to be this many times what it costs.
const PAYS: f64 = 2.0;

/// For how many windows at most nothing is changed after a cut that did not help.
const LONGEST: u32 = 64;

/// By which schedules the passes of a step run, what they compute again, and the shape of the ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduling {
    /// The schedule's name.
    pub schedule: String,
    /// Whether stages keep only their inputs, and a backward runs the forward again.
    pub recomputed: bool,
    /// The replicas with their schedules.
    pub replicas: Replicas,
    /// The number of shards of a rank.
    pub shards: u32,
}

impl Scheduling {
    /// By these schedules, where stages keep more than their inputs, and ranks have one shard.
    pub fn of(replicas: Replicas) -> Self {
        Self { schedule: replicas.largest().name().to_owned(), recomputed: false, replicas, shards: 1 }
    }

    /// The numbers of replicas and shards.
    fn shape(&self) -> [u32; 2] {
        [self.replicas.count(), self.shards]
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
/// shorter than the step by the schedule of now with its best cut, and if no rank then holds more
/// activations than the memory limit. Without a limit, no rank may hold more than the fullest rank does now.
/// A schedule that did not help, or was not possible, is left out for 8 windows, and for twice as many each
/// further time. They may have [other shapes](Watch::or_in_shape): as many ranks in all, but more or fewer
/// replicas or shards.
#[derive(Clone, Debug)]
pub struct Watch {
    /// What layers cost under any schedule, in the shape at launch.
    model: ModelCosts,
    /// The same in other shapes: replicas and shards.
    shaped: Vec<([u32; 2], ModelCosts)>,
    /// The shape at launch.
    launched: [u32; 2],
    map: Map,
    scheduling: Scheduling,
    counts: Vec<usize>,
    others: Vec<Other>,
    /// Whether all ranks wait for each other at the end of a step.
    barrier: bool,
    /// The newest proposal, if it was one of the others.
    proposed: Option<Scheduling>,
    memory: Option<f64>,
    /// Whether the costs are estimates: how long layers take beside each other.
    by_estimates: bool,
    /// Whether the costs are seconds. Otherwise the first window says how long the layers of each rank take.
    is_measured: bool,
    /// The seconds of steps, and those in which each rank of the run worked.
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
    /// How slow the ranks of the run were when no cut was found that is faster.
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
            shaped: Vec::new(),
            launched: scheduling.shape(),
            map: Map::default(),
            scheduling,
            counts,
            others: Vec::new(),
            barrier: true,
            proposed: None,
            memory,
            by_estimates: !is_measured,
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

    /// The same, where the passes may run in one of these ways too. Each has as many ranks, replicas and
    /// shards.
    #[must_use]
    pub fn or(mut self, others: Vec<Scheduling>) -> Self {
        let other = |scheduling| Other { scheduling, left_out: 0, next: LEFT_OUT };
        self.others.extend(others.into_iter().map(other));
        self
    }

    /// The same in another shape: with as many ranks in all, but with other numbers of replicas or shards.
    /// `model`: what layers cost there, under any schedule. The watch does not know how many weights a rank
    /// holds: whether they fit, the pipeline has to say.
    #[must_use]
    pub fn or_in_shape(mut self, model: ModelCosts, others: Vec<Scheduling>) -> Self {
        if let Some(first) = others.first() {
            self.shaped.push((first.shape(), model));
        }
        self.or(others)
    }

    /// The same, where ranks are numbered by this map. Ranks of two shapes are the same if their numbers are.
    #[must_use]
    pub fn mapped(self, map: Map) -> Self {
        Self { map, ..self }
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

    /// Adds a step: its seconds, and those in which each rank of the run worked, by world rank.
    pub fn add(&mut self, seconds: f64, busy: Vec<f64>) {
        match self.left_out {
            0 => self.steps.push((seconds, busy)),
            _ => self.left_out -= 1,
        }
    }

    /// After a whole window: the cut that is proposed, if there are `left` steps to come.
    ///
    /// # Errors
    /// As for [`partition`](crate::plan::partition) and
    /// [`Prediction::of_replicas`](crate::plan::Prediction::of_replicas).
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
        let count = steps.iter().map(|(_, busy)| busy.len()).max().unwrap_or_default();
        let busy = (0..count).map(|rank| of_rank(rank).unwrap_or_default());
        let world = self.slowness(&busy.collect::<Vec<_>>())?;
        let slowness = self.of_pipeline(&world, &self.scheduling)?;
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
        let world = match self.is_measured {
            true => world,
            false => {
                self.calibrate(&slowness);
                vec![1.0; world.len()]
            }
        };
        let is_near = |(now, then): (&f64, &f64)| (now / then - 1.0).abs() < SAME;
        if self.settled.len() == world.len() && world.iter().zip(&self.settled).all(is_near) {
            self.is_second = false;
            return Ok(None);
        }
        let found = self.faster(seconds, &world)?;
        let found = found.filter(|found| left as f64 * (found.was - found.will_be) > PAYS * self.cost);
        self.settled = if found.is_none() { world } else { Vec::new() };
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
}
