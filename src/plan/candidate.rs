//! One way to run a model, and how it would go.

use crate::plan::{AUTO, ModelCosts, Prediction, Wanted, as_run, auto, partition};
use crate::schedule::{Costs, Goal, Links, Schedule};
use crate::{Error, Result};

/// A partition that holds less is looked for in steps of this share.
const TIGHTER: f64 = 0.97;

/// A way to run a model, but for how it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The schedule's name.
    pub schedule: String,
    /// How many ranks there are.
    pub ranks: u32,
    /// How many stages each rank has.
    pub chunks: u32,
    /// How many micro-batches a step has.
    pub micro_batches: u32,
}

/// A way to run a model.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// How many layers each stage gets.
    pub counts: Vec<usize>,
    /// What the stages cost.
    pub costs: Costs,
    /// The schedule, fitted to these costs if it is one that is.
    pub schedule: Schedule,
    /// How a step goes.
    pub prediction: Prediction,
}

/// Whether a setting goes with a memory.
#[derive(Clone, Debug)]
pub enum Fit {
    /// It does, so.
    Within(Box<Candidate>),
    /// No cut that was found holds less than this on its fullest rank.
    Above(f64),
}

impl Candidate {
    fn new(counts: Vec<usize>, costs: Costs, schedule: Schedule) -> Result<Self> {
        let run = as_run(&schedule)?;
        let prediction = Prediction::of(run.as_ref().unwrap_or(&schedule), &costs, Links::Buffered)?;
        Ok(Self {
            counts,
            costs,
            schedule,
            prediction,
        })
    }
}

impl Setting {
    /// The fastest cut of a model with these costs whose ranks hold no more than `memory`, in the unit of the costs.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the schedule is not for these numbers of ranks, stages or micro-batches, or there are too few layers.
    pub fn fit(&self, costs: &ModelCosts, memory: Option<f64>) -> Result<Fit> {
        if self.schedule == AUTO {
            return Ok(Fit::Within(Box::new(self.listed(costs, memory)?)));
        }
        let mut least = self.cut(costs, None)?;
        let fits =
            |candidate: &Candidate| memory.is_none_or(|memory| candidate.prediction.peak_memory <= memory);
        if fits(&least) {
            return Ok(Fit::Within(Box::new(least)));
        }
        if let Some(within) = self.cut(costs, memory).ok().filter(fits) {
            return Ok(Fit::Within(Box::new(within)));
        }
        while let Ok(tighter) = self.cut(costs, Some(TIGHTER * least.prediction.peak_memory)) {
            if tighter.prediction.peak_memory >= least.prediction.peak_memory {
                break;
            }
            least = tighter;
        }
        Ok(if fits(&least) {
            Fit::Within(Box::new(least))
        } else {
            Fit::Above(least.prediction.peak_memory)
        })
    }

    fn cut(&self, model: &ModelCosts, memory: Option<f64>) -> Result<Candidate> {
        let unfitted = self.schedule(&Costs::default())?;
        let unfitted = as_run(&unfitted)?.unwrap_or(unfitted);
        let model = model.clone().under(&unfitted);
        let counts = partition(&model, &unfitted, memory)?;
        let costs = model.stages(&counts)?;
        let schedule = self.schedule(&costs)?;
        Candidate::new(counts, costs, schedule)
    }

    /// A schedule listed for these costs, where that is better than all that have a name.
    fn listed(&self, model: &ModelCosts, memory: Option<f64>) -> Result<Candidate> {
        let alike = Self {
            schedule: if self.chunks == 1 {
                "zb-h1"
            } else {
                "interleaved-zb"
            }
            .to_owned(),
            ..self.clone()
        };
        let counts = partition(model, &alike.schedule(&Costs::default())?, None)?;
        let costs = model.stages(&counts)?;
        let chosen = auto(&Wanted {
            ranks: self.ranks,
            chunks: Some(self.chunks),
            micro_batches: self.micro_batches,
            costs: &costs,
            memory,
            links: Links::Buffered,
            goal: Goal::Makespan,
        })?;
        match chosen.schedule.name() {
            AUTO => Candidate::new(counts, costs, chosen.schedule),
            name => Err(Error::Invalid(format!(
                "none is better than {name}, which has a name"
            ))),
        }
    }

    fn schedule(&self, costs: &Costs) -> Result<Schedule> {
        Schedule::make(
            &self.schedule,
            self.ranks,
            Some(self.chunks),
            self.micro_batches,
            costs,
        )
    }
}
