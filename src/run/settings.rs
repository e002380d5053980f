//! The settings of a run.

use std::path::PathBuf;
use std::sync::Arc;

use pipewright_stages::Stage;

use super::directory::claim::{Claim, Resume};
use super::directory::folder::{About, RunDir};
use super::directory::picture::{Labels, LossUnit};
use super::event::{Event, Next, Outcome};
use super::forecast::Forecast;
use super::progress::Progress;
use super::replanning::Replan;
use super::samples::Samples;
use super::validation::Validation;
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::data::Reference;
use crate::fabric::World;
use crate::interrupt::Interrupt;
use crate::pipeline::Pipeline;
use crate::plan::RankMemory;
use crate::privacy::Accountant;
use crate::store::Store;

/// A listener of a run.
pub(super) type Listener = Box<dyn FnMut(&Event<'_>) -> Next>;

/// Describes a run: how long it trains, what it validates on, what it saves, and who listens.
///
/// With only a directory, it does 1,000 steps, saves after the last one, prints nothing, and refuses a
/// directory that is not empty.
pub struct Run {
    pub(super) dir: RunDir,
    pub(super) resume: Resume,
    pub(super) steps: u64,
    pub(super) validation: Option<Validation>,
    pub(super) samples: Option<Samples>,
    pub(super) references: Vec<Arc<Reference>>,
    pub(super) save_every: u64,
    pub(super) save_beside: bool,
    pub(super) keep: usize,
    pub(super) keep_every: u64,
    pub(super) replan: Option<Replan>,
    pub(super) copy_to: Option<Store>,
    pub(super) allow_other_data: bool,
    pub(super) config: Option<String>,
    pub(super) about: About,
    pub(super) tensorboard: bool,
    pub(super) accountant: Option<Accountant>,
    pub(super) labels: Labels,
    pub(super) interrupt: Interrupt,
    pub(super) progress: Option<Progress>,
    pub(super) forecast: Option<Forecast>,
    pub(super) trace: Option<u64>,
    pub(super) listeners: Vec<Listener>,
    pub(super) claim: Option<Claim>,
}

impl Run {
    /// A run in this directory. The directory is made when the run begins.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let dir = RunDir::at(dir);
        let name = dir.path().file_name().unwrap_or(dir.path().as_os_str());
        let title = format!("Loss of {}", name.to_string_lossy());
        Self {
            dir,
            resume: Resume::default(),
            steps: 1000,
            validation: None,
            samples: None,
            references: Vec::new(),
            save_every: 0,
            save_beside: true,
            keep: 3,
            keep_every: 0,
            replan: None,
            copy_to: None,
            allow_other_data: false,
            config: None,
            about: About::default(),
            tensorboard: false,
            accountant: None,
            labels: Labels { title, unit: None },
            interrupt: Interrupt::default(),
            progress: None,
            forecast: None,
            trace: None,
            listeners: Vec::new(),
            claim: None,
        }
    }

    /// The steps of the whole run, with those before it was resumed. Default: 1,000.
    #[must_use]
    pub fn steps(self, steps: u64) -> Self {
        Self { steps, ..self }
    }

    /// What to do if there is a run in the directory. Default: [`Resume::Never`].
    #[must_use]
    pub fn resume(self, resume: Resume) -> Self {
        Self { resume, ..self }
    }

    /// Validates, and keeps the checkpoint with the lowest validation loss, besides the newest ones. Default:
    /// no validation.
    #[must_use]
    pub fn validate(self, validation: Validation) -> Self {
        let validation = Some(validation);
        Self { validation, ..self }
    }

    /// Lets the run go on with another cut of its model, or another order of its passes, without a restart.
    /// The weights stay the same, bit for bit. The pipeline needs
    /// [`PipelineBuilder::recut_by`](crate::PipelineBuilder::recut_by). Default: it keeps its cut.
    #[must_use]
    pub fn replan(self, replan: Replan) -> Self {
        let replan = Some(replan);
        Self { replan, ..self }
    }

    /// Lets the model write text while it is trained. Default: it writes none.
    #[must_use]
    pub fn samples(self, samples: Samples) -> Self {
        let samples = Some(samples);
        Self { samples, ..self }
    }

    /// Finds out before the first step what the model gives the answers of pairs, unless that is kept: see
    /// [`Reference`]. The same pipeline does it, with the weights that it was built with, also if the run
    /// goes on from a checkpoint. Default: there is none.
    #[must_use]
    pub fn reference(mut self, reference: Arc<Reference>) -> Self {
        self.references.push(reference);
        self
    }

    /// Saves a checkpoint every `save_every` steps, besides the one at the end and each one with the lowest
    /// validation loss so far. Default: 0, only these.
    #[must_use]
    pub fn save_every(self, save_every: u64) -> Self {
        Self { save_every, ..self }
    }

    /// Whether checkpoints are written while the next steps run: see [`Pipeline::save_beside`]. The copies
    /// take as much memory as weights and optimizer state. Without, the steps wait until a checkpoint is on
    /// the disk, as they always do at the end. Default: true.
    #[must_use]
    pub fn save_beside(self, save_beside: bool) -> Self {
        Self { save_beside, ..self }
    }

    /// Saves a checkpoint every `keep_every` steps, too, and keeps these for ever. Default: 0, none.
    #[must_use]
    pub fn keep_every(self, keep_every: u64) -> Self {
        Self { keep_every, ..self }
    }

    /// Copies each checkpoint to a store, while the next steps run. A copy that fails is told, and tried
    /// again with the next checkpoint. At its end the run waits for the copies, and fails if the last one is
    /// not there: [`StoreError::NotCopied`](crate::error::StoreError::NotCopied). A new run is refused if the
    /// store has checkpoints already. Nothing is removed from the store, except the manifest of a checkpoint
    /// whose weights gave numbers that are not finite. Default: no copies.
    #[must_use]
    pub fn copy_to(self, store: Store) -> Self {
        let copy_to = Some(store);
        Self { copy_to, ..self }
    }

    /// How many of the newest checkpoints are kept, 1 or more. Default: 3. The best one is kept too, and so
    /// is the newest one that a later step has shown to be good.
    #[must_use]
    pub fn keep(self, keep: usize) -> Self {
        Self { keep, ..self }
    }

    /// Whether the run may be resumed on other data than it trained on before. The run's history records it.
    /// Default: false.
    #[must_use]
    pub fn allow_other_data(self, allow_other_data: bool) -> Self {
        Self { allow_other_data, ..self }
    }

    /// The settings of the run as a text, which is kept as `config.toml`. Default: none.
    #[must_use]
    pub fn config(self, config: String) -> Self {
        let config = Some(config);
        Self { config, ..self }
    }

    /// What the run trains on: a name and a value each, such as `processor`. The command `report` shows it.
    /// Default: nothing.
    #[must_use]
    pub fn machine(mut self, machine: Vec<(String, String)>) -> Self {
        self.about.machine = machine;
        self
    }

    /// The memory that each rank of a replica is planned to need. The command `report` shows it beside what
    /// was measured. Default: nothing.
    #[must_use]
    pub fn planned_memory(mut self, ranks: Vec<RankMemory>) -> Self {
        self.about.memory = ranks;
        self
    }

    /// Whether the numbers of each step are written for TensorBoard too, into the folder `tensorboard`.
    /// Default: false.
    #[must_use]
    pub fn tensorboard(self, tensorboard: bool) -> Self {
        Self { tensorboard, ..self }
    }

    /// Counts the privacy that the training spends: the lines of steps have its epsilon. The steps before the
    /// run was resumed count too. Default: nothing is counted.
    #[must_use]
    pub fn accountant(self, accountant: Accountant) -> Self {
        let accountant = Some(accountant);
        Self { accountant, ..self }
    }

    /// The unit of the loss, and what the loss is the mean over, in the singular. After `loss_unit("nats",
    /// "token")` the picture says `nats per token`, and the progress counts `tokens`. Default: it counts
    /// `targets`.
    #[must_use]
    pub fn loss_unit(mut self, quantity: &str, target: &str) -> Self {
        self.labels.unit = Some(LossUnit { quantity: quantity.to_owned(), target: target.to_owned() });
        self
    }

    /// Ends the run after the current step when this request is made. Default: nothing interrupts the run.
    #[must_use]
    pub fn interrupt(self, interrupt: Interrupt) -> Self {
        Self { interrupt, ..self }
    }

    /// Shows the run to a person. Default: nothing is printed.
    #[must_use]
    pub fn progress(self, progress: Progress) -> Self {
        let progress = Some(progress);
        Self { progress, ..self }
    }

    /// Predicts how long a step takes. Default: no prediction.
    #[must_use]
    pub fn forecast(self, forecast: Forecast) -> Self {
        let forecast = Some(forecast);
        Self { forecast, ..self }
    }

    /// Traces `steps` steps and writes the one with the median time: as `trace.svg`, as `trace.json` (for
    /// ui.perfetto.dev) and, together with the plan, as `plan-and-trace.svg`. Default: no traces.
    #[must_use]
    pub fn trace(self, steps: u64) -> Self {
        let trace = Some(steps);
        Self { trace, ..self }
    }

    /// Adds a listener, which is told every event. It may answer [`Next::Stop`]. With several processes, one
    /// such answer stops all.
    #[must_use]
    pub fn on<R: Into<Next>>(mut self, mut listener: impl FnMut(&Event<'_>) -> R + 'static) -> Self {
        self.listeners.push(Box::new(move |event| listener(event).into()));
        self
    }

    /// Checks the run directory now, and takes its lock if there is a run to continue. So a directory that
    /// cannot be used is refused before data is opened and stages are built. Without this call,
    /// [`Run::begin`] does it. In a world of several processes, the first one does it for all, unless the run
    /// goes on after a loss.
    ///
    /// # Errors
    /// [`Error::Run`](crate::Error::Run) when the directory cannot be used; nothing in it has changed.
    pub fn claim(mut self, world: Option<&World>) -> Result<Self> {
        if world.is_none_or(|world| world.process() == 0 && !world.goes_on()) {
            self.claim = Some(Claim::new(self.dir.clone(), self.resume)?);
        }
        Ok(self)
    }

    /// The checkpoint from which a claimed run continues. `None` for a new run.
    pub fn resumes_from(&self) -> Option<&Checkpoint> {
        self.claim.as_ref()?.checkpoint()
    }

    /// The checkpoint from which this run continues, in any process and without a claim. `None` for a new
    /// run.
    ///
    /// # Errors
    /// When the directory or the checkpoint cannot be read.
    pub fn newest(&self) -> Result<Option<Checkpoint>> {
        if self.resume == Resume::Never {
            return Ok(None);
        }
        let newest = self.dir.last()?;
        newest.map(|folder| Checkpoint::open(&folder)).transpose()
    }

    /// Trains up to the last step, and saves.
    ///
    /// # Errors
    /// As for [`Run::begin`] and [`Session::train`](crate::run::Session::train).
    pub fn train<S: Stage>(self, pipeline: &mut Pipeline<S>) -> Result<Outcome> {
        self.begin(pipeline)?.train()
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("dir", &self.dir).field("steps", &self.steps).finish_non_exhaustive()
    }
}
