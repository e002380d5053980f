//! A running pipeline: what it has, and the calls that all processes make together.

use std::fmt::Arguments;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use pipewright_stages::Stage;
use pipewright_stages::optimizer::LearningRate;

use super::recovery::{Layout, RejoinState, Rejoined};
use super::recut::cut::Cut;
use super::spec::{Cutter, Fits, SharedBuilder, Spec};
use crate::actor::{Asked, Ranks};
use crate::checkpoint::{Copies, Writing};
use crate::data::{Fingerprint, Loader, Summed};
use crate::error::{Error, Result};
use crate::fabric::{Call, Crew};
use crate::groups::GradientGroups;
use crate::interrupt::Interrupt;
use crate::mesh::RankName;
use crate::plan::Replicas;
use crate::schedule::Schedule;
use crate::situation::Stall;
use crate::worker::{Forwards, ParameterInfo, Plan, Staleness, Trained};

/// A running pipeline: one actor for each rank, each on its own thread. Dropping it stops them, when a
/// checkpoint that is on its way is complete.
///
/// With several processes, all must make the same calls with the same arguments, in the same order. Otherwise
/// all of them get [`FabricError::Failed`](crate::error::FabricError::Failed).
///
/// After a rank has failed, every call returns [`Error::Stopped`] with the cause. After [`Error::NotFinite`]
/// the pipeline continues to run, with the weights of the previous step.
pub struct Pipeline<S: Stage> {
    pub(super) ranks: Ranks<S>,
    /// The loaders of the replicas whose data a rank of this process needs.
    pub(super) loaders: Vec<Loader>,
    pub(super) plan: Arc<Plan>,
    /// Build the stages that it has now.
    pub(super) stages: Vec<SharedBuilder<S>>,
    /// Makes the stages of another cut.
    pub(super) cutter: Option<Cutter<S>>,
    /// The processes, if the run began with several.
    pub(super) crew: Option<Crew>,
    /// Looks whether its ranks fit into memory.
    pub(super) fits: Option<Fits>,
    /// The plan's data, with checksums. Only for several processes, and if the fingerprint covers only a
    /// sample.
    pub(super) summed: Option<Arc<Summed>>,
    pub(super) learning_rate: LearningRate,
    pub(super) stale: Stale,
    pub(super) next: NextStep<S>,
    pub(super) text: TextState,
    pub(super) beside: AsyncCheckpoints,
    pub(super) config: String,
    pub(super) parameters: Vec<ParameterInfo>,
    /// Which part of the model each rank had at launch.
    pub(super) layout_at_launch: Layout,
    /// The cut with which it goes on since launch, and its schedules, if they are known.
    pub(super) cut: Option<(Cut, Replicas)>,
    /// The clocks of processes are compared by their time since this instant.
    pub(super) origin: Instant,
    pub(super) next_step: u64,
    /// The number of steps of the training, if known.
    pub(super) known_steps: u64,
    pub(super) failure: Option<String>,
    /// What it needs to join its run again, if it can.
    pub(super) again: Option<Box<RejoinState<S>>>,
    /// How it joined its run the last time, if the run had begun before.
    pub(super) rejoined: Option<Rejoined>,
}

impl<S: Stage> Pipeline<S> {
    /// A pipeline before its first step. Its ranks have built their stages.
    pub(super) fn new(
        spec: &Spec<S>,
        plan: Arc<Plan>,
        ranks: Ranks<S>,
        loaders: Vec<Loader>,
        summed: Option<Arc<Summed>>,
        parameters: Vec<ParameterInfo>,
    ) -> Self {
        Self {
            layout_at_launch: Layout::of(ranks.mesh(), &parameters),
            ranks,
            loaders,
            plan,
            stages: spec.stages.clone(),
            cutter: spec.cutter.clone(),
            crew: None,
            fits: spec.fits.clone(),
            summed,
            learning_rate: spec.learning_rate,
            stale: Stale::default(),
            next: NextStep::default(),
            text: TextState::default(),
            beside: AsyncCheckpoints::default(),
            config: spec.config.clone(),
            cut: None,
            parameters,
            origin: Instant::now(),
            next_step: 0,
            known_steps: 0,
            failure: None,
            again: None,
            rejoined: None,
        }
    }

    /// The number of the next step, which is also the number of optimizer steps done.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// How many sequences a step takes from each source of the data: see
    /// [`DataSource::sequences_of`](crate::data::DataSource::sequences_of).
    pub(crate) fn sequences_of(&self, step: u64) -> Vec<(String, u64)> {
        self.plan.data.sequences_of(step)
    }

    /// The schedule that the first replica runs.
    pub fn schedule(&self) -> &Schedule {
        &self.plan.schedules[0]
    }

    /// The schedule of each replica, and whether their steps have a barrier.
    pub(crate) fn schedules_and_barrier(&self) -> (&[Arc<Schedule>], bool) {
        (&self.plan.schedules, self.plan.barrier)
    }

    /// The number of replicas.
    pub fn replicas(&self) -> u32 {
        self.plan.replicas()
    }

    /// The number of shards of each rank of a replica.
    pub fn shards(&self) -> u32 {
        self.plan.shards()
    }

    /// The name of each rank of the world.
    pub(crate) fn rank_names(&self) -> Vec<RankName> {
        let mesh = self.ranks.mesh();
        mesh.world().map(|rank| mesh.name(rank)).collect()
    }

    /// Whether it has stopped because of a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Whether no call is possible after this error: another process was lost, for example.
    pub(crate) fn ends_by(&self, error: &Error) -> bool {
        self.has_failed() || error.lost_process().is_some() || error.is_left_early()
    }

    /// The gradient groups of a batch. Each replica has a share of them.
    pub fn groups(&self) -> GradientGroups {
        self.plan.groups
    }

    /// The parameters in layer order. A tied parameter is listed at each of its sites.
    pub fn parameters(&self) -> &[ParameterInfo] {
        &self.parameters
    }

    /// This process's number in the run. It is 0 in a run of one process.
    pub fn process(&self) -> u32 {
        self.ranks.peers().process()
    }

    /// The number of processes of the run.
    pub fn processes(&self) -> u32 {
        self.ranks.peers().processes()
    }

    /// The fingerprint of the training data: it differs for other data.
    ///
    /// # Errors
    /// When the data cannot be read.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        self.plan.data.fingerprint()
    }

    /// Whether any process passes `true`. Every process receives the same answer. Between two steps of a
    /// parameter server whose weights may be stale, it does not wait for the others: the answer is that to an
    /// earlier question, at most `max_staleness + 1` steps ago. While the next step runs already
    /// ([`Pipeline::next_has_begun`]), the answer of another process comes one or two steps later.
    ///
    /// # Errors
    /// [`Error::Process`] or [`Error::ProcessGone`] when another process has failed.
    pub fn any(&mut self, yes: bool) -> Result<bool> {
        if let Some(known) = self.any_stale(yes).or_else(|| self.any_while_begun(yes)) {
            return Ok(known);
        }
        self.begin(format_args!("question whether any process says yes"))?;
        let all = self.ranks.spread("agreeing", Ok(vec![u32::from(yes)]));
        Ok(self.note(all)?.contains(&1))
    }

    /// Waits until all processes have come as far as this in beginning a run. Returns this process's value.
    ///
    /// # Errors
    /// The first failure of any process. Then all stop.
    pub(crate) fn meet<T>(&mut self, own: Result<T>) -> Result<T> {
        self.begin(format_args!("beginning of a run"))?;
        let met = self.all_do("beginning a run", own);
        self.note(met)
    }

    /// Says how many steps there will be in all, unless something ends the training before. Then the data of
    /// the next step is read while a step runs, also from a source that is not
    /// [endless](crate::data::DataSource::is_endless).
    pub fn expect_steps(&mut self, steps: u64) {
        self.known_steps = steps;
    }

    /// Stops after a failure outside of the pipeline. The other processes are told the cause, and stop too.
    pub fn fail(&mut self, cause: &Error) {
        self.ranks.peers().fail(cause);
        self.failure.get_or_insert_with(|| cause.to_string());
    }

    /// Stops all ranks and waits for their threads to end.
    pub fn stop(self) {}

    /// From now on this interrupt can end a call early, with an error: at once after
    /// [`Interrupt::request_now`]. With several processes, also after [`Interrupt::request`], if another
    /// process does not answer. A [`Run`](crate::run::Run) calls this with its own interrupt.
    pub fn heed(&mut self, interrupt: Interrupt) {
        if let Some(again) = &mut self.again {
            again.heed(interrupt.clone());
        }
        self.ranks.heed(interrupt);
    }

    /// Does something besides calls, on this thread, that may take its time: for messages about stalls.
    pub(crate) fn during<T>(&self, what: &str, act: impl FnOnce() -> T) -> T {
        self.ranks.during(what, act)
    }

    /// From now on this is told of stalls: see
    /// [`PipelineBuilder::on_stall`](super::PipelineBuilder::on_stall).
    pub(crate) fn on_stall(&mut self, listener: impl Fn(&Stall) + Send + Sync + 'static) {
        let listener = Arc::new(listener);
        if let Some(again) = &mut self.again {
            again.on_stall(Arc::clone(&listener) as _);
        }
        self.ranks.on_stall(listener);
    }

    /// Begins a call, which all processes must make. No weight is stale in it. After a failure it returns an
    /// error.
    pub(super) fn begin(&mut self, call: Arguments<'_>) -> Result<Call> {
        if self.failure.is_none() {
            self.check_not_begun()?;
        }
        let call = self.announce(call)?;
        self.settle()?;
        Ok(call)
    }

    /// Announces a call, which all processes must make. After a failure it returns an error.
    pub(super) fn announce(&mut self, call: Arguments<'_>) -> Result<Call> {
        if let Some(cause) = &self.failure {
            let cause = Some(cause.clone());
            return Err(Error::Stopped { cause });
        }
        let call = self.ranks.announce(call);
        self.note(call)
    }

    /// Remembers a failure that has stopped the ranks.
    pub(super) fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failure = Some(error.to_string());
            if error.is_left_early() {
                self.beside.leave();
                // The data source itself may hang. Then the loaders' threads would never end, so they are
                // not joined.
                std::mem::forget(std::mem::take(&mut self.loaders));
            }
        }
        result
    }
}

impl<S: Stage> Drop for Pipeline<S> {
    /// Another process may still wait for what this one's shards know. A checkpoint that is on its way is
    /// completed, unless that takes longer than a stall may last.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if self.failure.is_some() && self.processes() > 1 {
            return self.end_writing();
        }
        if self.is_open() && self.processes() > 1 {
            let _ = self.begin(format_args!("end of the steps"));
        }
        let _ = self.wait_until_saved();
    }
}

impl<S: Stage> std::fmt::Debug for Pipeline<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("next_step", &self.next_step).finish_non_exhaustive()
    }
}

/// The text that a pipeline writes.
#[derive(Debug, Default)]
pub(super) struct TextState {
    /// How many of its tokens the stages have had, and keep keys and values of.
    pub(super) had: usize,
    /// The forward passes of all stages, once they were needed.
    pub(super) forwards: Option<Arc<Forwards>>,
}

impl TextState {
    /// The next text is a new one: the weights are others.
    pub(super) fn end(&mut self) {
        self.had = 0;
    }
}

/// Where the steps stand since the last settlement.
#[derive(Debug, Default)]
pub(super) struct Stale {
    /// The first step since the last settlement, and the call that it began.
    pub(super) since: Option<(u64, Call)>,
    /// The count over all ranks, up to the last settlement.
    pub(super) seen: Staleness,
    /// Whether this process asks all to end.
    pub(super) asks: bool,
    /// Whether a process asked that, in the newest step that all know of.
    pub(super) asked: bool,
}

/// The number of steps in a row that must need no clipping before a step begins early for the first time.
pub(super) const QUIET: u64 = 8;

/// A step that the ranks have begun.
#[allow(missing_debug_implementations, reason = "holds messages to actors")]
pub(super) struct Begun<S: Stage> {
    pub(super) step: u64,
    /// Whether the next step follows without any other call between them.
    pub(super) goes_on: bool,
    pub(super) asked: Asked<S, Trained>,
}

/// The step that may begin before the last one has ended.
#[allow(missing_debug_implementations, reason = "holds messages to actors")]
pub(super) struct NextStep<S: Stage> {
    /// The step before which there may be another call.
    pub(super) until: u64,
    /// The next step, if it has begun.
    pub(super) begun: Option<Begun<S>>,
    /// When the last step ended.
    pub(super) ended: Instant,
    /// Whether the last step was taken back, and runs again with the next one.
    pub(super) taken_back: bool,
    /// How many steps in a row needed no clipping, and how many must before a step begins early.
    pub(super) quiet: u64,
    pub(super) needed: u64,
    /// Whether this process asks all to end, and whether any process did in the last step.
    pub(super) asks: bool,
    pub(super) asked: bool,
}

impl<S: Stage> Default for NextStep<S> {
    fn default() -> Self {
        Self {
            until: 0,
            begun: None,
            ended: Instant::now(),
            taken_back: false,
            quiet: 0,
            needed: QUIET,
            asks: false,
            asked: false,
        }
    }
}

/// The checkpoint that is on its way, and the memory for copies.
#[derive(Debug, Default)]
pub(super) struct AsyncCheckpoints {
    /// By rank of this process. Made when they are first needed.
    pub(super) copies: Vec<Arc<Mutex<Copies>>>,
    pub(super) on_its_way: Option<Unfinished>,
}

/// A checkpoint that is written while steps run.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) writing: Writing,
    pub(super) folder: PathBuf,
    /// Whether all processes have written their tensors.
    pub(super) is_written: bool,
}

impl AsyncCheckpoints {
    /// Does not wait any more for what is on its way.
    pub(super) fn leave(&mut self) {
        if let Some(on_its_way) = self.on_its_way.take() {
            on_its_way.writing.leave();
        }
    }
}
