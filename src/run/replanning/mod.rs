//! Cuts the model elsewhere while a run goes on, or runs its passes by another schedule: when that is faster,
//! or when somebody asks for it.

mod cutting;

use pipewright_stages::Recompute;

use crate::pipeline::Cut;
use crate::plan::{Replicas, Scheduling, Watch};

/// Lets a run change its cut between two steps: see [`Run::replan`](crate::run::Run::replan).
#[derive(Clone, Debug)]
pub struct Replan {
    pub(super) watch: Watch,
    pub(super) is_automatic: bool,
    /// The cut at launch, and its scheduling.
    launched: (Cut, Scheduling),
    now: Cut,
    /// What was told last of a question that cannot be read.
    pub(super) told: String,
}

impl Replan {
    /// The run changes its cut whenever the watch says that this is faster, and when it is asked to.
    pub fn by_itself(watch: Watch) -> Self {
        Self { is_automatic: true, ..Self::when_asked(watch) }
    }

    /// The run changes its cut only when it is asked to: see
    /// [`RunDir::ask_for_cut`](crate::run::RunDir::ask_for_cut).
    pub fn when_asked(watch: Watch) -> Self {
        let scheduling = watch.scheduling().clone();
        let (layers, schedule) = (watch.counts().to_vec(), scheduling.schedule.clone());
        let now = Cut { layers, schedule, recompute: None };
        Self { watch, is_automatic: false, launched: (now.clone(), scheduling), now, told: String::new() }
    }

    /// The cut now.
    pub(super) fn now(&self) -> &Cut {
        &self.now
    }

    /// The cut at launch.
    pub(super) fn launched(&self) -> &Cut {
        &self.launched.0
    }

    /// The cut of a scheduling, and of stages with these numbers of layers.
    pub(super) fn cut_of(&self, scheduling: &Scheduling, layers: Vec<usize>) -> Cut {
        let recompute = if scheduling.recomputed == self.watch.scheduling().recomputed {
            self.now.recompute
        } else if scheduling.recomputed == self.launched.1.recomputed {
            None
        } else if scheduling.recomputed {
            Some(Recompute::Full)
        } else {
            Some(Recompute::default())
        };
        Cut { layers, schedule: scheduling.schedule.clone(), recompute }
    }

    /// The scheduling of a cut with these schedules.
    fn scheduling_of(&self, cut: &Cut, replicas: Replicas) -> Scheduling {
        let recomputed = match cut.recompute {
            None => self.launched.1.recomputed,
            Some(recompute) => recompute == Recompute::Full,
        };
        Scheduling { schedule: cut.schedule.clone(), recomputed, replicas }
    }

    /// The run goes on with this cut and these schedules. The change took `seconds`. `was`: how long a step
    /// took before, if it is tried out whether steps are shorter now.
    pub(super) fn goes_on(&mut self, cut: &Cut, replicas: Replicas, seconds: f64, was: Option<f64>) {
        let next = (self.scheduling_of(cut, replicas), cut.layers.clone());
        match was {
            Some(was) => self.watch.try_out(next, was, seconds),
            None => self.watch.set(next, seconds),
        }
        self.now = cut.clone();
    }

    /// The run goes on with the cut at launch.
    pub(super) fn goes_on_as_launched(&mut self) {
        let (cut, scheduling) = self.launched.clone();
        self.watch.set((scheduling, cut.layers.clone()), 0.0);
        self.now = cut;
    }
}
