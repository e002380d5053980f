//! Describing a pipeline.

use std::sync::{Arc, Once};

use pipewright_stages::loss::Loss;
use pipewright_stages::optimizer::{AdamW, LearningRate, Optimizer};
use pipewright_stages::{Place, Stage, StageBuilder};

use super::links::connect;
use super::{Pipeline, launch};
use crate::data::DataSource;
use crate::error::{Error, Result};
use crate::fabric::{End, GpuPairs, Peers, WireFrame, World};
use crate::mesh::Mesh;
use crate::schedule::Schedule;

/// A pipeline being described. A schedule, its stages, a loss and data are needed; the rest has defaults.
pub struct PipelineBuilder<S: Stage> {
    pub(super) schedule: Option<Schedule>,
    pub(super) stages: Vec<StageBuilder<S>>,
    pub(super) loss: Option<Box<dyn Loss<S::Wire>>>,
    pub(super) data: Option<Arc<dyn DataSource>>,
    pub(super) optimizer: Arc<dyn Optimizer>,
    pub(super) learning_rate: LearningRate,
    pub(super) clip: Option<f64>,
    pub(super) places: Vec<Place>,
    pub(super) pin: bool,
    pub(super) threads_per_rank: usize,
    pub(super) config: String,
    pub(super) world: Option<(World, Connect<S::Wire>)>,
}

/// What connects the ranks of processes that have found each other: [`connect`] for the wires of the stages.
type Connect<W> = fn(World, &Mesh, usize, usize, GpuPairs) -> Result<(Vec<End<W>>, Peers)>;

impl<S: Stage> Default for PipelineBuilder<S> {
    fn default() -> Self {
        Self {
            schedule: None,
            stages: Vec::new(),
            loss: None,
            data: None,
            optimizer: Arc::new(AdamW::default()),
            learning_rate: LearningRate::Constant(1e-3),
            clip: None,
            places: Vec::new(),
            pin: true,
            threads_per_rank: 1,
            config: String::new(),
            world: None,
        }
    }
}

impl<S: Stage> PipelineBuilder<S> {
    /// Who does what, in which order. It has been checked: only the checker makes one.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// The stages in model order, as many as the schedule has. Each is built on the thread of its rank.
    #[must_use]
    pub fn stages(mut self, stages: Vec<StageBuilder<S>>) -> Self {
        self.stages = stages;
        self
    }

    /// What the last stage's output is judged by.
    #[must_use]
    pub fn loss(mut self, loss: impl Loss<S::Wire>) -> Self {
        self.loss = Some(Box::new(loss));
        self
    }

    /// The training data.
    #[must_use]
    pub fn data(mut self, data: Arc<dyn DataSource>) -> Self {
        self.data = Some(data);
        self
    }

    /// How weights change; [`AdamW`] with its defaults when not said.
    #[must_use]
    pub fn optimizer(mut self, optimizer: impl Optimizer) -> Self {
        self.optimizer = Arc::new(optimizer);
        self
    }

    /// The learning rate of each step; a constant 1e-3 when not said.
    #[must_use]
    pub fn learning_rate(mut self, learning_rate: LearningRate) -> Self {
        self.learning_rate = learning_rate;
        self
    }

    /// Scales a gradient of a larger global norm down to this one; no clipping when not said.
    #[must_use]
    pub fn clip(mut self, norm: f64) -> Self {
        self.clip = Some(norm);
        self
    }

    /// Where each rank's stages run, and in which numbers; one place is for all ranks, and none means on the CPU. Several ranks may share a
    /// GPU. Wires go to the device of the rank that needs them.
    #[must_use]
    pub fn places(mut self, places: Vec<Place>) -> Self {
        self.places = places;
        self
    }

    /// How many threads a rank uses inside layers, loss and optimizer; 1 when not said. The weights are the same, bit for bit,
    /// for any number. A stage of one's own can use them too: [`pipewright_stages::threads`].
    #[must_use]
    pub fn threads_per_rank(mut self, threads: usize) -> Self {
        self.threads_per_rank = threads;
        self
    }

    /// Whether each thread of each rank on the CPU is pinned to a core of its own, where there are as many as threads; true when not
    /// said.
    #[must_use]
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// The text kept in checkpoints as the run's config.
    #[must_use]
    pub fn config(mut self, config: String) -> Self {
        self.config = config;
        self
    }

    /// Runs this process's share of the ranks, and the other processes theirs: as many each, consecutive ones. Every process builds the
    /// same pipeline with the same parts and makes the same calls; each gets the same results. Without it all ranks run here.
    #[must_use]
    pub fn world(mut self, world: World) -> Self
    where
        S::Wire: WireFrame,
    {
        self.world = Some((world, connect));
        self
    }

    /// Starts the ranks, builds the stages on them and checks that they fit together.
    ///
    /// # Errors
    /// [`Error::Invalid`] when something is missing, the system gives no more threads, a stage cannot be built, or a stage refuses the shape of what the one
    /// before gives: it names the stage, its rank and the layer. With other processes also when these cannot share the ranks evenly;
    /// what fails in one of them is told in all.
    pub fn launch(self) -> Result<Pipeline<S>> {
        warn_when_not_optimized();
        launch::launch(self)
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

/// The error for a part that the builder was not given.
pub(super) fn missing(what: &str) -> Error {
    Error::Invalid(format!(
        "the pipeline has no {what}: call `.{what}(...)` before `.launch()`"
    ))
}

impl<S: Stage> std::fmt::Debug for PipelineBuilder<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PipelineBuilder")
            .field("stages", &self.stages.len())
            .finish_non_exhaustive()
    }
}
