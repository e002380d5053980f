//! Cuts a model and orders its passes, so that no rank holds more than its limit.

use crate::groups::GradientGroups;
use crate::plan::{
    AUTO, Candidate, Fit, ModelCosts, Offload, Prediction, Setting, Wanted, auto, like_auto, partition,
};
use crate::plan::{Costs, Goal};
use crate::schedule::{LinkKind, Schedule};
use crate::{Error, Result};

/// Each new partition may hold at most this share of what the previous one held.
const TIGHTER: f64 = 0.97;

/// The model and the limits that a cut and a schedule are searched for.
#[derive(Clone, Copy, Debug)]
pub struct Fitting<'a> {
    /// What the model's layers cost.
    pub model: &'a ModelCosts,
    /// How many layers each stage gets. `None` searches the fastest cut.
    pub counts: Option<&'a [usize]>,
    /// The most that a rank may hold, in the unit of the costs.
    pub memory: Option<f64>,
    /// How ranks offload activations, if they do.
    pub offload: Option<&'a Offload>,
    /// Whether all ranks meet at the end of a step.
    pub barrier: bool,
}

impl Setting {
    /// The fastest way found to run this model. No rank holds more than `memory`, in the unit of the costs.
    ///
    /// # Errors
    /// As for [`Fitting::setting`].
    pub fn fit(&self, model: &ModelCosts, memory: Option<f64>) -> Result<Fit> {
        let (counts, offload, barrier) = (None, None, true);
        Fitting { model, counts, memory, offload, barrier }.setting(self)
    }
}

impl Fitting<'_> {
    /// The fastest way found to run the model in this setting. The cut and the order are found for a replica
    /// with most micro-batches. The others have the same schedule for theirs: a named one is made for their
    /// number, and a searched one keeps its order.
    ///
    /// # Errors
    /// [`Error::Plan`] when the schedule cannot have these numbers of ranks, stages or micro-batches, or when
    /// there are too few layers.
    pub fn setting(&self, setting: &Setting) -> Result<Fit> {
        let (groups, replicas) = (setting.groups(), setting.replicas);
        let largest = setting.alone(groups.largest_share(replicas));
        let make = |candidate: &Candidate, share| match setting.schedule.as_str() {
            AUTO => Ok(candidate.replicas.largest().part(0..share)),
            _ => self.offloading(setting.alone(share).schedule(&candidate.costs)?, &candidate.costs),
        };
        match self.pipeline(&largest)? {
            Fit::Within(candidate) => {
                let candidate = candidate.for_all(groups, replicas, make)?;
                Ok(Fit::Within(Box::new(candidate)))
            }
            above => Ok(above),
        }
    }

    /// The same for one replica.
    fn pipeline(&self, setting: &Setting) -> Result<Fit> {
        match setting.schedule.as_str() {
            AUTO => self.listed(setting),
            _ => self.order(&|costs| setting.schedule(costs)),
        }
    }

    /// The schedule with what is offloaded at these costs.
    fn offloading(&self, schedule: Schedule, costs: &Costs) -> Result<Schedule> {
        match self.offload {
            Some(offload) => offload.of(schedule, costs),
            None => Ok(schedule),
        }
    }

    /// The fastest way found to run the model in replicas that all have this schedule.
    ///
    /// # Errors
    /// [`Error::Plan`] when there are more stages than layers, or when the counts are for another number of
    /// stages.
    pub fn schedule(&self, schedule: &Schedule, groups: GradientGroups, replicas: u32) -> Result<Fit> {
        let schedule = schedule.clone().in_turn();
        match self.order(&|_| Ok(schedule.clone()))? {
            Fit::Within(candidate) => {
                let candidate =
                    candidate.for_all(groups, replicas, |_, share| Ok(schedule.part(0..share)))?;
                Ok(Fit::Within(Box::new(candidate)))
            }
            above => Ok(above),
        }
    }

    /// The fastest way found with the schedule that `order` makes for the stages' costs. How much such a
    /// schedule holds is known only once it is made. So tighter and tighter cuts are tried until one fits.
    fn order(&self, order: &dyn Fn(&Costs) -> Result<Schedule>) -> Result<Fit> {
        let equal = Costs::default();
        let unfitted = match self.offload {
            // The limit is in the unit of other costs.
            Some(offload) => offload.unlimited().of(order(&equal)?, &equal)?,
            None => order(&equal)?,
        };
        let model = self.model.clone().under(&unfitted);
        let at = |counts: Vec<usize>| {
            let costs = model.stages(&counts)?;
            let schedule = self.offloading(order(&costs)?, &costs)?;
            Candidate::new(counts, costs, schedule, self.barrier)
        };
        let counts = match self.counts {
            Some(counts) => counts.to_vec(),
            None => partition(&model, &unfitted, None)?,
        };
        let mut candidate = at(counts)?;
        let memory = self.memory.unwrap_or(f64::INFINITY);
        let (mut limit, mut least) = (memory, f64::INFINITY);
        loop {
            let unfitted_peak = Prediction::of(&unfitted, &candidate.costs, LinkKind::Buffered)?.peak_memory;
            match candidate.within(memory) {
                Fit::Above(bytes) => least = least.min(bytes),
                within => return Ok(within),
            }
            if self.counts.is_some() {
                return Ok(Fit::Above(least));
            }
            // First the fastest cut within the limit in the unfitted order, then cuts that hold less and
            // less.
            let tighter = TIGHTER * unfitted_peak;
            let within = |limit| partition(&model, &unfitted, Some(limit));
            match within(tighter.min(limit)).or_else(|_| within(tighter)) {
                Ok(counts) => candidate = at(counts)?,
                Err(_) => return Ok(Fit::Above(least)),
            }
            limit = f64::INFINITY;
        }
    }

    /// The best schedule that `auto` finds, over several cuts for each placement that it may use.
    fn listed(&self, setting: &Setting) -> Result<Fit> {
        let (cuts, least) = self.cuts_for_listed(setting)?;
        let mut best: Option<Candidate> = None;
        let mut refusal = None;
        for counts in cuts {
            match self.listed_for(setting, counts) {
                Ok(candidate) => {
                    let step = candidate.prediction.step;
                    if best.as_ref().is_none_or(|best| step < best.prediction.step) {
                        best = Some(candidate);
                    }
                }
                Err(error) => refusal = Some(error),
            }
        }
        match (best, refusal) {
            (Some(best), _) => Ok(Fit::Within(Box::new(best))),
            (None, Some(refusal)) if self.memory.is_none_or(|memory| least <= memory) => Err(refusal),
            _ => Ok(Fit::Above(least)),
        }
    }

    /// Cuts for each placement that `auto` may use, and the least memory that one micro-batch needs. For each
    /// placement there are three cuts: the fastest, the fastest within the limit in a named order, and the
    /// fastest that keeps the limit with one micro-batch in flight.
    fn cuts_for_listed(&self, setting: &Setting) -> Result<(Vec<Vec<usize>>, f64)> {
        let vee = (setting.chunks == 2).then_some("zb-v");
        let mut cuts = Vec::new();
        let mut least = f64::INFINITY;
        for name in [like_auto(setting.chunks)].into_iter().chain(vee) {
            let alike = Setting { schedule: name.to_owned(), ..setting.clone() };
            let single = Setting { micro_batches: 1, ..alike.clone() };
            let unlimited = Self { memory: None, ..*self };
            for fit in [unlimited.pipeline(&alike)?, self.pipeline(&alike)?, self.pipeline(&single)?] {
                match fit {
                    Fit::Within(candidate) if !cuts.contains(&candidate.counts) => {
                        cuts.push(candidate.counts)
                    }
                    Fit::Within(_) => {}
                    Fit::Above(bytes) => least = least.min(bytes),
                }
            }
        }
        Ok((cuts, least))
    }

    fn listed_for(&self, setting: &Setting, counts: Vec<usize>) -> Result<Candidate> {
        let costs = self.model.stages(&counts)?;
        let chosen = auto(&Wanted {
            ranks: setting.ranks,
            chunks: Some(setting.chunks),
            micro_batches: setting.micro_batches,
            costs: &costs,
            memory: self.memory,
            links: LinkKind::Buffered,
            goal: if self.barrier { Goal::Makespan } else { Goal::Span },
        })?;
        let why = Some(chosen.to_string());
        let schedule = self.offloading(chosen.schedule.in_turn(), &costs)?;
        let candidate = Candidate::new(counts, costs, schedule, self.barrier)?;
        let memory = self.memory.unwrap_or(f64::INFINITY);
        match candidate.within(memory) {
            Fit::Within(candidate) => Ok(Candidate { why, ..*candidate }),
            Fit::Above(held) => Err(Error::plan(format!(
                "the best schedule holds {held} once its backward-weights are in order, above {memory}"
            ))),
        }
    }
}
