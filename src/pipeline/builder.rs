//! Describing a pipeline.

use std::any::type_name;
use std::sync::{Arc, Once};
use std::time::Duration;

use pipewright_stages::loss::Loss;
use pipewright_stages::optimizer::{LearningRate, Optimizer};
use pipewright_stages::{Place, Stage, StageBuilder};

use super::parts::Parts;
use super::{Pipeline, launch};
use crate::data::DataSource;
use crate::error::Result;
use crate::fabric::{WireFrame, World, ends_by_nccl};
use crate::schedule::Schedule;

/// A pipeline being described. A schedule, its stages, a loss and data are needed; the rest has defaults.
pub struct PipelineBuilder<S: Stage> {
    parts: Parts<S>,
}

impl<S: Stage> Default for PipelineBuilder<S> {
    fn default() -> Self {
        Self {
            parts: Parts::default(),
        }
    }
}

impl<S: Stage> PipelineBuilder<S> {
    /// Who does what, in which order. It has been checked: only the checker makes one.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.parts.schedule = Some(schedule);
        self
    }

    /// The stages in model order, as many as the schedule has. Each is built on the thread of its rank.
    #[must_use]
    pub fn stages(mut self, stages: Vec<StageBuilder<S>>) -> Self {
        self.parts.stages = stages;
        self
    }

    /// What the last stage's output is judged by.
    #[must_use]
    pub fn loss<L: Loss<S::Wire>>(mut self, loss: L) -> Self {
        self.parts.loss = Some((Box::new(loss), type_name::<L>()));
        self
    }

    /// The training data.
    #[must_use]
    pub fn data(mut self, data: Arc<dyn DataSource>) -> Self {
        self.parts.data = Some(data);
        self
    }

    /// How weights change; [`AdamW`](pipewright_stages::optimizer::AdamW) with its defaults when not said.
    #[must_use]
    pub fn optimizer(mut self, optimizer: impl Optimizer) -> Self {
        self.parts.optimizer = Arc::new(optimizer);
        self
    }

    /// The learning rate of each step; a constant 1e-3 when not said.
    #[must_use]
    pub fn learning_rate(mut self, learning_rate: LearningRate) -> Self {
        self.parts.learning_rate = learning_rate;
        self
    }

    /// Scales a gradient of a larger global norm down to this one; no clipping when not said.
    #[must_use]
    pub fn clip(mut self, norm: f64) -> Self {
        self.parts.clip = Some(norm);
        self
    }

    /// Where each rank's stages run, and in which numbers; one place is for all ranks, and none means on the CPU. Several ranks may share a
    /// GPU. Wires go to the device of the rank that needs them.
    #[must_use]
    pub fn places(mut self, places: Vec<Place>) -> Self {
        self.parts.places = places;
        self
    }

    /// How many threads a rank uses inside layers, loss and optimizer; 1 when not said. The weights are the same, bit for bit,
    /// for any number. A stage of one's own can use them too: [`pipewright_stages::threads`].
    #[must_use]
    pub fn threads_per_rank(mut self, threads: usize) -> Self {
        self.parts.threads_per_rank = threads;
        self
    }

    /// Whether each thread of each rank on the CPU is pinned to a core of its own, where there are as many as threads; true when not
    /// said.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.parts.pin = pin;
        self
    }

    /// The time that one action of a rank may take, such as a forward pass of one stage; half an hour when not said, and any
    /// time with `None`. A rank that takes longer is reported with what it does and who waits for it
    /// ([`CallError::Stalled`](crate::error::CallError::Stalled)), and the pipeline has stopped. A rank that waits for others
    /// may wait as long as they need.
    #[must_use]
    pub fn stall_limit(mut self, limit: Option<Duration>) -> Self {
        self.parts.stall_limit = limit;
        self
    }

    /// The text kept in checkpoints as the run's config.
    #[must_use]
    pub fn config(mut self, config: String) -> Self {
        self.parts.config = config;
        self
    }

    /// Runs this process's share of the ranks, and the other processes theirs: as many each, consecutive ones. Every process
    /// builds the same pipeline with the same parts and makes the same calls; each gets the same results. Both are compared,
    /// and a difference is an error in all. Without it all ranks run here.
    #[must_use]
    pub fn world(mut self, world: World) -> Self
    where
        S::Wire: WireFrame,
    {
        self.parts.world = Some((world, ends_by_nccl));
        self
    }

    /// Starts the ranks, builds the stages on them and checks that they fit together.
    ///
    /// # Errors
    /// [`LaunchError`](crate::error::LaunchError) when something is missing, the system gives no more threads, a stage cannot
    /// be built, two parameters have one name, or a stage refuses the shape of what the one before gives: it names the stage,
    /// its rank and the layer. With other processes also [`FabricError::NotAlike`](crate::error::FabricError::NotAlike), which
    /// names the first part in which one of them differs. What fails in one process is told in all.
    pub fn launch(self) -> Result<Pipeline<S>> {
        warn_when_not_optimized();
        launch::launch(self.parts)
    }
}

/// Says once that training will be slow, where the user's profile does not optimise its dependencies.
fn warn_when_not_optimized() {
    static SAID: Once = Once::new();
    if !pipewright_stages::IS_OPTIMIZED {
        SAID.call_once(|| {
            eprintln!(
                "pipewright is compiled without optimisation: training takes hundreds of times as long. Run with \
                 --release, or let the section [profile.dev.package.\"*\"] of Cargo.toml say opt-level = 3"
            );
        });
    }
}

impl<S: Stage> std::fmt::Debug for PipelineBuilder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineBuilder")
            .field("stages", &self.parts.stages.len())
            .finish_non_exhaustive()
    }
}
