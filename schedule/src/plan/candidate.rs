//! One way to run a model, how it would go, and which one is chosen when several are equally fast.

use crate::Result;
use crate::groups::GradientGroups;
use crate::plan::{AUTO, Costs, Prediction, Replicas};
use crate::schedule::{LinkKind, Schedule};

/// A setting of a run, before the model is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The schedule's name, or [`AUTO`].
    pub schedule: String,
    /// How many ranks there are.
    pub ranks: u32,
    /// How many stages each rank has.
    pub chunks: u32,
    /// How many micro-batches a step has, over all replicas.
    pub micro_batches: u32,
    /// How many replicas of the pipeline there are.
    pub replicas: u32,
    /// Into how many groups the micro-batches are divided, to add up their gradients.
    pub gradient_groups: u32,
}

/// A setting with its cut, its schedule and how a step goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Candidate {
    /// How many layers each stage gets.
    pub counts: Vec<usize>,
    /// What the stages cost.
    pub costs: Costs,
    /// The replicas with their schedules. A schedule whose order depends on costs has the order for these
    /// costs.
    pub replicas: Replicas,
    /// How a step goes.
    pub prediction: Prediction,
    /// Why this schedule, where it was chosen.
    pub why: Option<String>,
}

/// Whether a setting fits the memory.
#[derive(Clone, Debug)]
pub enum Fit {
    /// It fits, in this way.
    Within(Box<Candidate>),
    /// It does not fit. Every cut that was tried holds at least this much on its fullest rank.
    Above(f64),
}

impl Candidate {
    /// A single pipeline. `barrier`: whether ranks meet at the end of a step.
    pub(super) fn new(counts: Vec<usize>, costs: Costs, schedule: Schedule, barrier: bool) -> Result<Self> {
        let replicas = Replicas::one(schedule);
        let prediction = Prediction::of_steps(&replicas, &costs, LinkKind::Buffered, barrier)?;
        Ok(Self { counts, costs, replicas, prediction, why: None })
    }

    /// The same for all replicas. This one has the schedule of the largest share. `make` gives the schedules
    /// of other shares.
    pub(super) fn for_all(
        self,
        groups: GradientGroups,
        replicas: u32,
        make: impl Fn(&Self, u32) -> Result<Schedule>,
    ) -> Result<Self> {
        let largest = self.replicas.largest();
        let all = Replicas::new(groups, replicas, |micro_batches| {
            match micro_batches == largest.micro_batches() {
                true => Ok(largest.clone()),
                false => make(&self, micro_batches),
            }
        })?;
        let prediction = match replicas {
            1 => self.prediction,
            _ => Prediction::of_replicas(&all, &self.costs, LinkKind::Buffered)?,
        };
        Ok(Self { replicas: all, prediction, ..self })
    }

    /// Whether it holds no more than this. Rounding errors do not count.
    pub(super) fn within(self, memory: f64) -> Fit {
        let peak = self.prediction.peak_memory;
        match peak <= memory * (1.0 + 1e-9) {
            true => Fit::Within(Box::new(self)),
            false => Fit::Above(peak),
        }
    }
}

impl Setting {
    /// Whether the schedule can have these numbers, with at least one layer a stage.
    pub fn is_possible(&self, layers: usize) -> bool {
        let stages = u64::from(self.ranks) * u64::from(self.chunks);
        let known = || self.schedule == AUTO || self.schedule(&Costs::default()).is_ok();
        stages <= layers as u64 && known()
    }

    /// The named schedule at these costs, in the order in which a pipeline runs it.
    pub(super) fn schedule(&self, costs: &Costs) -> Result<Schedule> {
        let (ranks, chunks) = (self.ranks, Some(self.chunks));
        Schedule::make(&self.schedule, ranks, chunks, self.micro_batches, costs).map(Schedule::in_turn)
    }

    /// How the micro-batches are divided.
    pub fn groups(&self) -> GradientGroups {
        GradientGroups::new(self.micro_batches, self.gradient_groups)
    }

    /// The same with a single pipeline that has this number of micro-batches.
    pub(super) fn alone(&self, micro_batches: u32) -> Self {
        Self { micro_batches, replicas: 1, ..self.clone() }
    }
}

/// Times that differ by no more than this share count as equal: a second measurement may order them
/// differently. The same holds for memory.
pub const TIE: f64 = 0.05;

/// A setting with its time and its memory.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// The setting.
    pub setting: &'a Setting,
    /// Seconds of a step.
    pub seconds: f64,
    /// The most that a rank holds for backwards to come, in bytes.
    pub memory: f64,
}

/// The index of the best contender; `None` in an empty list. The fastest come first. Among equally fast ones
/// the smallest in memory win, then the simplest, then the faster one.
///
/// A named schedule is simpler than `auto`. Fewer stages a rank are simpler than more. Of two named schedules
/// the simpler one comes earlier in [`Schedule::names`].
pub fn best(contenders: &[Contender<'_>]) -> Option<usize> {
    let all: Vec<usize> = (0..contenders.len()).collect();
    let fastest = least(&all, |place| contenders[place].seconds);
    let smallest = least(&fastest, |place| contenders[place].memory);
    smallest.into_iter().min_by(|&a, &b| {
        let (a, b) = (&contenders[a], &contenders[b]);
        let simpler = complexity(a.setting).cmp(&complexity(b.setting));
        simpler.then(a.seconds.total_cmp(&b.seconds))
    })
}

/// The indices whose figure ties with the smallest.
fn least(places: &[usize], figure: impl Fn(usize) -> f64) -> Vec<usize> {
    let smallest = places.iter().map(|&place| figure(place)).fold(f64::INFINITY, f64::min);
    let tied = |place: &usize| figure(*place) <= smallest * (1.0 + TIE);
    places.iter().copied().filter(tied).collect()
}

fn complexity(setting: &Setting) -> (bool, u32, Option<usize>) {
    let place = Schedule::names().position(|name| name == setting.schedule);
    (setting.schedule == AUTO, setting.chunks, place)
}
