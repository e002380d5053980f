//! Cuts the model elsewhere while a run goes on, or runs its passes by another schedule: when that is faster,
//! or when somebody asks for it.

mod cutting;
mod effect;

use std::fmt;
use std::sync::Arc;

use effect::Effect;
use pipewright_stages::Recompute;

use crate::pipeline::Cut;
use crate::plan::{Better, RankMemory, Replicas, Scheduling, Watch, Why};

/// Lets a run change its cut between two steps: see [`Run::replan`](crate::run::Run::replan).
#[derive(Clone, Debug)]
pub struct Replan {
    pub(super) watch: Watch,
    pub(super) is_automatic: bool,
    /// The cut at launch, and its scheduling.
    launched: (Cut, Scheduling),
    now: Cut,
    /// The cut before the newest change.
    before: Option<Cut>,
    /// What was told last of a question that cannot be read.
    pub(super) told: String,
    effect: Effect,
    memory: MemoryOf,
}

/// The memory that each rank of a replica needs with a cut, if it is known.
#[derive(Clone)]
struct MemoryOf(Arc<Estimate>);

type Estimate = dyn Fn(&Cut) -> Vec<RankMemory> + Send + Sync;

impl fmt::Debug for MemoryOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryOf")
    }
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
        let (replicas, shards) = (scheduling.replicas.count(), scheduling.shards);
        let now = Cut { layers, schedule, recompute: None, replicas, shards };
        let launched = (now.clone(), scheduling);
        let memory = MemoryOf(Arc::new(|_| Vec::new()));
        Self {
            watch,
            is_automatic: false,
            launched,
            now,
            before: None,
            told: String::new(),
            effect: Effect::default(),
            memory,
        }
    }

    /// The same. `memory` estimates what each rank of a replica needs with a cut, for the page of the run. An
    /// empty list: that is not known.
    #[must_use]
    pub fn with_memory(self, memory: impl Fn(&Cut) -> Vec<RankMemory> + Send + Sync + 'static) -> Self {
        Self { memory: MemoryOf(Arc::new(memory)), ..self }
    }

    /// The memory that each rank of a replica needs with the cut of now.
    pub(super) fn memory(&self) -> Vec<RankMemory> {
        (self.memory.0)(&self.now)
    }

    /// The same, where all stages recompute this at launch.
    #[must_use]
    pub fn recomputing(mut self, recompute: Recompute) -> Self {
        self.launched.0.recompute = Some(recompute);
        self.now.recompute = Some(recompute);
        self
    }

    /// The cut now.
    pub(super) fn now(&self) -> &Cut {
        &self.now
    }

    /// The cut at launch.
    pub(super) fn launched(&self) -> &Cut {
        &self.launched.0
    }

    /// The cut that is proposed.
    pub(super) fn cut_of(&self, better: &Better) -> Cut {
        let Better { scheduling, counts, why, .. } = better;
        if let (Why::ItWasFaster, Some(before)) = (why, &self.before) {
            return before.clone();
        }
        let (launched, by) = &self.launched;
        let recompute = if scheduling.recomputed == self.watch.scheduling().recomputed {
            self.now.recompute
        } else if scheduling.recomputed == by.recomputed {
            launched.recompute
        } else if scheduling.recomputed {
            Some(Recompute::Full)
        } else {
            Some(Recompute::default())
        };
        let (replicas, shards) = (scheduling.replicas.count(), scheduling.shards);
        Cut { layers: counts.clone(), schedule: scheduling.schedule.clone(), recompute, replicas, shards }
    }

    /// The scheduling of a cut with these schedules.
    fn scheduling_of(&self, cut: &Cut, replicas: Replicas) -> Scheduling {
        let recomputed = match cut.recompute {
            None => self.launched.1.recomputed,
            Some(recompute) => recompute == Recompute::Full,
        };
        Scheduling { schedule: cut.schedule.clone(), recomputed, replicas, shards: cut.shards }
    }

    /// The run goes on with this cut and these schedules. The change took `seconds`. `was`: how long a step
    /// took before, if it is tried out whether steps are shorter now.
    pub(super) fn goes_on(&mut self, cut: &Cut, replicas: Replicas, seconds: f64, was: Option<f64>) {
        let next = (self.scheduling_of(cut, replicas), cut.layers.clone());
        match was {
            Some(was) => self.watch.try_out(next, was, seconds),
            None => self.watch.set(next, seconds),
        }
        self.before = Some(std::mem::replace(&mut self.now, cut.clone()));
    }

    /// The run has returned to this cut. Its ranks may be on other machines.
    pub(super) fn returns_to(&mut self, cut: &Cut, replicas: Replicas) {
        self.effect.changes(false);
        let next = (self.scheduling_of(cut, replicas), cut.layers.clone());
        self.watch.set(next, self.watch.cost());
        self.now = cut.clone();
    }

    /// The run has returned to the cut at launch.
    pub(super) fn returns_to_launch(&mut self) {
        self.effect.changes(false);
        let (cut, scheduling) = self.launched.clone();
        self.watch.set((scheduling, cut.layers.clone()), self.watch.cost());
        self.now = cut;
    }
}
