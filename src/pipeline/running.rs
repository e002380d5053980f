//! A running pipeline: it trains step by step, as a plain training loop would.

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_stages::Stage;
use pipewright_stages::loss::Score;
use pipewright_stages::optimizer::{LearningRate, Optimizer};
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};

use super::again::{Again, Rejoined};
use super::alike;
use super::metrics;
use super::on_its_way::Beside;
use super::report::{Evaluation, StepReport};
use super::stale::Stale;
use crate::actor::{Evaluate, Hash, Ranks, Train};
use crate::data::{DataSource, Fingerprint, Loader, Summed};
use crate::error::{Error, FabricError, Result};
use crate::fabric::Call;
use crate::groups::Groups;
use crate::id::WorldRank;
use crate::interrupt::Interrupt;
use crate::schedule::{Schedule, Timeline};
use crate::situation::Stall;
use crate::worker::{self, Forwards, ParameterInfo, RankReport, Record, Site, StepOrder, Trained};

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
    /// Of the replicas whose data a rank of this process needs.
    pub(super) loaders: Vec<Loader>,
    pub(super) data: Arc<dyn DataSource>,
    /// The loader's source, with checksums. Only for several processes, and if the fingerprint covers only a
    /// sample.
    pub(super) summed: Option<Arc<Summed>>,
    /// By replica.
    pub(super) schedules: Vec<Arc<Schedule>>,
    pub(super) groups: Groups,
    pub(super) optimizer: Arc<dyn Optimizer>,
    pub(super) learning_rate: LearningRate,
    pub(super) stale: Stale,
    pub(super) text: Text,
    pub(super) beside: Beside,
    pub(super) config: String,
    pub(super) parameters: Vec<ParameterInfo>,
    /// The clocks of processes are compared by their time since this instant.
    pub(super) origin: Instant,
    pub(super) next_step: u64,
    /// The number of steps of the training, if known.
    pub(super) known_steps: u64,
    pub(super) failure: Option<String>,
    /// What it needs to join its run again, if it can.
    pub(super) again: Option<Box<Again<S>>>,
    /// How it joined its run the last time, if the run had begun before.
    pub(super) rejoined: Option<Rejoined>,
}

impl<S: Stage> Pipeline<S> {
    /// The number of the next step, which is also the number of optimizer steps done.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// The schedule that the first replica runs.
    pub fn schedule(&self) -> &Schedule {
        &self.schedules[0]
    }

    /// The schedule of each replica.
    pub(crate) fn schedules(&self) -> &[Arc<Schedule>] {
        &self.schedules
    }

    /// The number of replicas.
    pub fn replicas(&self) -> u32 {
        self.schedules.len() as u32
    }

    /// The replica of each rank of the world, and its rank in that.
    pub(crate) fn coordinates(&self) -> Vec<(u32, u32)> {
        let at = |rank| self.ranks.mesh().coordinate(rank);
        self.ranks
            .mesh()
            .world()
            .map(|rank| (at(rank).replica, at(rank).rank.0))
            .collect()
    }

    /// The gradient groups of a batch. Each replica has a share of them.
    pub fn groups(&self) -> Groups {
        self.groups
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
        self.data.fingerprint()
    }

    /// Runs one training step on all ranks and reports it.
    ///
    /// # Errors
    /// [`Error::Action`] with the first cause when a rank fails; [`Error::NotFinite`]; [`Error::Stopped`].
    pub fn step(&mut self) -> Result<StepReport> {
        self.train(false).map(|(report, _)| report)
    }

    /// Runs one training step as [`Pipeline::step`] does, and returns its timeline: when each rank did what,
    /// in seconds since the call, and the bytes that it held for later backward passes. A pass begins when it
    /// has all that it waits for. A transfer lasts from its send until the receiver takes it. Tracing costs
    /// about half a microsecond an action, and changes no weight.
    ///
    /// # Errors
    /// As for [`Pipeline::step`].
    pub fn step_traced(&mut self) -> Result<(StepReport, Timeline)> {
        let (report, traces) = self.train(true)?;
        let placement = self.schedule().placement();
        Ok((report, worker::timeline(placement, self.ranks.mesh(), traces)))
    }

    /// Runs one training step. If it is `traced`, the ranks' records are returned too.
    fn train(&mut self, traced: bool) -> Result<(StepReport, Vec<Record>)> {
        self.keep_if_due()?;
        let step = self.next_step;
        let learning_rate = self.learning_rate.at(step);
        self.text.end();
        let call = match traced {
            false if self.is_stale() => self.announce(format_args!("step {step}"))?,
            false => self.begin(format_args!("step {step}"))?,
            true => self.begin(format_args!("traced step {step}"))?,
        };
        let trace_from = traced.then(|| self.common_instant()).transpose();
        let trace_from = self.note(trace_from)?;
        let started = Instant::now();
        for loader in &self.loaders {
            loader.begin(step, step + 1 < self.known_steps);
        }
        let answers = self.run_step(StepOrder {
            call,
            step,
            learning_rate,
            trace_from,
            asks: false,
        })?;
        let seconds = started.elapsed().as_secs_f64();
        let loss_step = self.stale.reported(step);
        let totals = self.totals(loss_step, &answers);
        if self.is_stale() && totals.is_err() {
            // The other ranks have gone on, so the step is done, and what follows needs equal weights.
            self.next_step += 1;
            let _ = self.settle();
        }
        let totals = totals?;
        let ranks = answers.iter().map(|answer| RankReport {
            bubble: 1.0 - answer.report.busy / seconds,
            ..answer.report
        });
        let report = StepReport {
            step,
            loss_step,
            loss: totals.score.mean(),
            metrics: totals.score.metrics,
            grad_norm: totals.grad_norm,
            learning_rate,
            weight: totals.score.weight,
            seconds,
            ranks: ranks.collect(),
            restarts: answers
                .iter()
                .flat_map(|answer| answer.restarts.clone())
                .collect(),
        };
        metrics::record(&report, self.ranks.mesh(), self.process());
        self.next_step += 1;
        let traces = answers.into_iter().filter_map(|answer| answer.trace).collect();
        Ok((report, traces))
    }

    /// Runs a step on the ranks. A traced one waits for all processes.
    fn run_step(&mut self, order: StepOrder) -> Result<Vec<Trained>> {
        if self.is_stale() {
            return self.train_stale(order);
        }
        let step = order.step;
        let answers = self.ranks.ask_all("training", |_| Train { order });
        let answers = self.note(answers)?;
        if let Some(data) = &self.summed {
            let same = alike::same_batches(&self.ranks, &format!("step {step}"), data, step..step + 1);
            self.note(same)?;
        }
        Ok(answers)
    }

    /// One instant, just before now, on the clocks of all processes.
    fn common_instant(&self) -> Result<Instant> {
        let offset = self
            .ranks
            .together("comparing clocks", |peers| peers.offset(self.origin))?;
        let now = self.origin.elapsed().as_secs_f64() + offset;
        let all = self.ranks.spread("comparing clocks", Ok(vec![now]))?;
        let last = all.into_iter().fold(now, f64::max) - offset;
        let since = Duration::try_from_secs_f64(last).unwrap_or_default();
        Ok(self.origin + since)
    }

    /// Runs only forward, over the first `micro_batches` micro-batches of a source's step 0.
    ///
    /// # Errors
    /// [`CallError`](crate::error::CallError) when `micro_batches` is 0.
    /// [`LaunchError`](crate::error::LaunchError) when the stages refuse the shapes of the source: the
    /// pipeline continues to run. Otherwise as for [`Pipeline::step`].
    pub fn evaluate(&mut self, source: Arc<dyn DataSource>, micro_batches: u32) -> Result<Evaluation> {
        let shapes = source.shapes();
        let (known, summed) = alike::known(self.processes(), &source);
        let call = self.begin(format_args!(
            "evaluation of {micro_batches} micro-batches of {}{known}",
            shapes.0
        ))?;
        let forwards = self.forwards(shapes, micro_batches)?;
        let source = summed.clone().map_or(source, |summed| summed as _);
        let mesh = self.ranks.mesh().clone();
        self.ranks.take_data_from(source.describe());
        let scores = self.ranks.ask_all("evaluating", |rank| {
            let (first, forwards) = forwards[mesh.coordinate(rank).replica as usize].clone();
            Evaluate {
                call,
                source: Arc::clone(&source),
                first,
                forwards,
            }
        });
        self.ranks.take_data_from(self.data.describe());
        // Only ranks of the last stage have scores. By replica, they are in the order of the micro-batches.
        let mut scores: Vec<_> = mesh.world().zip(self.note(scores)?).collect();
        scores.sort_by_key(|(rank, _)| mesh.coordinate(*rank).replica);
        let mut total = Score::default();
        for score in scores.into_iter().flat_map(|(_, scores)| scores) {
            total.add(score);
        }
        if let Some(data) = &summed {
            let same = alike::same_batches(&self.ranks, "the evaluation", data, 0..1);
            self.note(same)?;
        }
        Ok(Evaluation {
            loss: total.mean(),
            metrics: total.metrics,
            weight: total.weight,
        })
    }

    /// The SHA-256, in hex, of all weights as little-endian `f32`: parameters in name order, tied ones once.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn weights_hash(&mut self) -> Result<String> {
        self.begin(format_args!("hash of the weights"))?;
        let mut by_name: BTreeMap<&str, Site> = BTreeMap::new();
        for info in self.parameters.iter().filter(|info| !info.is_tied) {
            by_name.insert(&info.name, info.site);
        }
        let sites: Vec<Site> = by_name.into_values().collect();
        let mut hash = Sha256::new();
        for run in sites.chunk_by(|a, b| a.rank == b.rank) {
            let sites = run.to_vec();
            let rank = run[0].rank;
            let state = self.ranks.ask(HASHING, rank, Hash { hash, sites })?;
            hash = resumed_hash(self.ranks.first(rank), &state)?;
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether any process passes `true`. Every process receives the same answer. Between two steps of a
    /// parameter server whose weights may be stale, it does not wait for the others: the answer is that to an
    /// earlier question, at most `max_staleness + 1` steps ago.
    ///
    /// # Errors
    /// [`Error::Process`] or [`Error::ProcessGone`] when another process has failed.
    pub fn any(&mut self, yes: bool) -> Result<bool> {
        if let Some(known) = self.any_stale(yes) {
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
    /// [endless](DataSource::is_endless).
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

    /// Begins a call, which all processes must make. No weight is stale in it. After a failure it returns an
    /// error.
    pub(super) fn begin(&mut self, call: Arguments<'_>) -> Result<Call> {
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
        f.debug_struct("Pipeline")
            .field("next_step", &self.next_step)
            .finish_non_exhaustive()
    }
}

/// The call in which ranks continue each other's hash.
const HASHING: &str = "hashing the weights";

/// Continues a hash from the state that a rank gives.
fn resumed_hash(rank: WorldRank, state: &[u8]) -> Result<Sha256> {
    let hash = state.try_into().map_err(io::Error::other);
    let hash = hash.and_then(|state| Sha256::deserialize(state).map_err(io::Error::other));
    Ok(hash.map_err(|error| FabricError::unreadable_part(format_args!("rank {rank}"), HASHING, error))?)
}

/// The text that a pipeline writes.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// How many of its tokens the stages have had, and keep keys and values of.
    pub(super) had: usize,
    /// The forward passes of all stages, once they were needed.
    pub(super) forwards: Option<Arc<Forwards>>,
}

impl Text {
    /// The next text is a new one: the weights are others.
    pub(super) fn end(&mut self) {
        self.had = 0;
    }
}

impl<S: Stage> Pipeline<S> {
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
}
