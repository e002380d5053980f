//! What the user calls: a pipeline that trains step by step, as a plain training loop would.

mod alike;
mod builder;
mod hash;
mod launch;
mod links;
mod metrics;
mod parts;
mod report;
mod setup;
mod shapes;
mod ties;

pub use builder::PipelineBuilder;
pub(crate) use launch::cores;
pub use report::{Evaluation, StepReport};

use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_stages::Stage;
use pipewright_stages::loss::Score;
use pipewright_stages::optimizer::{LearningRate, Optimizer};
use sha2::{Digest, Sha256};

use crate::actor::{Evaluate, Hash, Ranks, Read, Search, Train, Write};
use crate::checkpoint::{Checkpoint, Draft, TensorInfo};
use crate::data::{DataSource, Fingerprint, Loader};
use crate::error::{CheckpointError, Error, Result};
use crate::fabric::Call;
use crate::id::MicroBatch;
use crate::schedule::{Schedule, Timeline};
use crate::worker::{
    self, Fault, Finding, Forwards, Outcome, ParameterInfo, RankReport, Record, Site, Trained, Verdict,
};
use shapes::check_shapes;

/// A running pipeline: one actor a rank, each on its own thread. Dropping it stops them.
///
/// In a run of several processes all of them make the same calls with the same arguments, in the same order. Another call in
/// one of them is an error in all ([`FabricError::CallsDiffer`](crate::error::FabricError::CallsDiffer)).
///
/// After a rank has failed every call gives [`Error::Stopped`] with the cause; a step that only gave numbers that are not finite
/// ([`Error::NotFinite`]) leaves the pipeline running with the weights of the step before.
pub struct Pipeline<S: Stage> {
    ranks: Ranks<S>,
    /// In the processes whose ranks take data.
    loader: Option<Loader>,
    data: Arc<dyn DataSource>,
    schedule: Arc<Schedule>,
    optimizer: Arc<dyn Optimizer>,
    learning_rate: LearningRate,
    config: String,
    parameters: Vec<ParameterInfo>,
    /// What the clocks of processes are compared by.
    origin: Instant,
    next_step: u64,
    failure: Option<String>,
}

impl<S: Stage> Pipeline<S> {
    /// Begins to describe a pipeline.
    pub fn builder() -> PipelineBuilder<S> {
        PipelineBuilder::default()
    }

    /// The number of optimizer steps done, which is the next step's number.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// The schedule it runs.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The parameters in layer order; a tied one is listed at each of its sites.
    pub fn parameters(&self) -> &[ParameterInfo] {
        &self.parameters
    }

    /// This process's number among those of the run; 0 when it runs alone.
    pub fn process(&self) -> u32 {
        self.ranks.peers().process()
    }

    /// The number of processes of the run.
    pub fn processes(&self) -> u32 {
        self.ranks.peers().processes()
    }

    /// What tells its data from other data.
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

    /// Runs one training step as [`Pipeline::step`] does, and gives what each rank did when: seconds since the call, bytes
    /// held for backwards to come. A pass begins when it has all that it waits for; a transfer lasts from its handing over until
    /// the receiver takes it up. Writing it down costs about half a microsecond an
    /// action; the weights are the same.
    ///
    /// # Errors
    /// As for [`Pipeline::step`].
    pub fn step_traced(&mut self) -> Result<(StepReport, Timeline)> {
        let (report, traces) = self.train(true)?;
        Ok((report, worker::timeline(&self.schedule, traces)))
    }

    /// Runs one training step; the ranks' records are there when they are `traced`.
    fn train(&mut self, traced: bool) -> Result<(StepReport, Vec<Record>)> {
        let step = self.next_step;
        let learning_rate = self.learning_rate.at(step);
        let call = match traced {
            false => self.begin(format_args!("step {step}"))?,
            true => self.begin(format_args!("traced step {step}"))?,
        };
        let trace_from = traced.then(|| self.common_instant()).transpose();
        let trace_from = self.note(trace_from)?;
        let started = Instant::now();
        if let Some(loader) = &self.loader {
            loader.begin(step);
        }
        let answers = self.ranks.ask_all("training", |_| Train {
            call,
            step,
            learning_rate,
            trace_from,
        });
        let answers = self.note(answers)?;
        let seconds = started.elapsed().as_secs_f64();
        let verdict = self.verdict(step, &answers)?;
        let ranks = answers.iter().map(|answer| RankReport {
            bubble: 1.0 - answer.report.busy / seconds,
            ..answer.report
        });
        let report = StepReport {
            step,
            loss: verdict.score.mean(),
            accuracy: verdict.score.accuracy(),
            grad_norm: verdict.grad_norm,
            learning_rate,
            weight: verdict.score.weight,
            seconds,
            ranks: ranks.collect(),
        };
        metrics::record(&report);
        self.next_step += 1;
        let traces = answers.into_iter().filter_map(|answer| answer.trace).collect();
        Ok((report, traces))
    }

    /// One moment on the clocks of all processes, right before now.
    fn common_instant(&self) -> Result<Instant> {
        let offset = self.ranks.peers().offset(self.origin)?;
        let now = self.origin.elapsed().as_secs_f64() + offset;
        let all = self.ranks.spread("comparing clocks", Ok(vec![now]))?;
        let last = all.into_iter().fold(now, f64::max) - offset;
        let since = Duration::try_from_secs_f64(last).unwrap_or_default();
        Ok(self.origin + since)
    }

    fn verdict(&mut self, step: u64, answers: &[Trained]) -> Result<Verdict> {
        match answers.first().expect("a pipeline has at least one rank").outcome {
            Outcome::Updated(verdict) => Ok(verdict),
            Outcome::NotFinite(Fault::Loss(micro_batch)) => {
                let place = self.search(step, micro_batch)?;
                let what = format!("the loss of micro-batch {micro_batch} is not finite; {place}");
                Err(Error::NotFinite { step, what })
            }
            Outcome::NotFinite(Fault::Gradient(stage, index)) => {
                let at = |info: &&ParameterInfo| (info.site.stage, info.site.index) == (stage, index);
                let name = self.parameters.iter().find(at).map_or("?", |info| &info.name);
                let what = format!("the gradient is not finite, first at `{name}` (stage {stage})");
                Err(Error::NotFinite { step, what })
            }
        }
    }

    /// Where a micro-batch's forward pass first gives a number that is not finite.
    fn search(&mut self, step: u64, micro_batch: MicroBatch) -> Result<String> {
        let call = self.begin(format_args!(
            "search of step {step}, micro-batch {micro_batch} for a number that is not finite"
        ))?;
        let forwards = Arc::new(Forwards::new(self.schedule.placement(), 1)?);
        let message = |_| Search {
            call,
            source: Arc::clone(&self.data),
            step,
            micro_batch,
            forwards: Arc::clone(&forwards),
        };
        let findings = self
            .ranks
            .ask_all("looking for the first number that is not finite", message);
        let found = self.note(findings)?.into_iter().flatten().next();
        Ok(found.map_or_else(
            || "every layer's output is finite, so the loss itself is at fault".to_owned(),
            |Finding { stage, what }| format!("first in stage {stage}, {what}"),
        ))
    }

    /// Runs forward only over the first micro-batches of a source's step 0, as many as are asked for.
    ///
    /// # Errors
    /// [`NoMicroBatches`](crate::error::CallError::NoMicroBatches) when none are asked for, and
    /// [`LaunchError::RefusedInput`](crate::error::LaunchError::RefusedInput) and its like when the stages cannot work on what
    /// the source gives: the pipeline keeps running. Else as for [`Pipeline::step`].
    pub fn evaluate(&mut self, source: Arc<dyn DataSource>, micro_batches: u32) -> Result<Evaluation> {
        let shapes = source.shapes();
        let call = self.begin(format_args!(
            "evaluation of {micro_batches} micro-batches of {}",
            shapes.0
        ))?;
        let forwards = Arc::new(Forwards::new(self.schedule.placement(), micro_batches)?);
        if shapes != self.data.shapes() {
            check_shapes(&self.ranks, &self.schedule, shapes)?;
        }
        let scores = self.ranks.ask_all("evaluating", |_| Evaluate {
            call,
            source: Arc::clone(&source),
            forwards: Arc::clone(&forwards),
        });
        let mut total = Score::default();
        for score in self.note(scores)? {
            total.add(score);
        }
        Ok(Evaluation {
            loss: total.mean(),
            accuracy: total.accuracy(),
            weight: total.weight,
        })
    }

    /// Saves weights, optimizer state, step, config and the data's fingerprint as a checkpoint folder, with checksums.
    /// Written beside its place and renamed into it: whatever goes wrong, a checkpoint that stood there before still
    /// does. Only a checkpoint, or an empty folder, is ever replaced.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when anything else stands there, which is left untouched; [`Error::Io`], as when the disk is
    /// full. The pipeline keeps running.
    pub fn save(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        self.begin(format_args!("saving of {}", folder.as_ref().display()))?;
        let states = self.optimizer.state_names();
        let first = self.ranks.peers().process() == 0;
        let make = if first { Draft::create } else { Draft::beside };
        let draft = make(folder.as_ref(), &self.tensors(), states).map(Arc::new);
        let draft = self.all_do("beginning a checkpoint", draft)?;
        let written = self.ranks.ask_all("writing a checkpoint", |_| Write {
            draft: Arc::clone(&draft),
        })?;
        let done = if first {
            // Weights are worth saving also when the data cannot be read any more.
            let data = self.data.fingerprint().ok();
            let written = written.into_iter().flatten().collect();
            draft.finish(self.next_step, &self.config, data, written)
        } else {
            Ok(())
        };
        self.all_do("ending a checkpoint", done)
    }

    /// Loads a checkpoint saved with any number of stages; the next step continues where it was saved, bit for bit. Every
    /// byte is compared with its checksum before.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] naming the file and the parameter, before any weight has changed; [`Error::Io`].
    pub fn load(&mut self, folder: impl AsRef<Path>) -> Result<()> {
        self.begin(format_args!("loading of {}", folder.as_ref().display()))?;
        let states = self.optimizer.state_names();
        let first = self.ranks.peers().process() == 0;
        let checkpoint = Checkpoint::open(folder.as_ref()).and_then(|checkpoint| {
            checkpoint.check(&self.tensors(), states)?;
            if first {
                checkpoint.verify()?;
            }
            Ok(Arc::new(checkpoint))
        });
        let checkpoint = self.all_do("opening a checkpoint", checkpoint)?;
        self.check_same_step(folder.as_ref(), checkpoint.step())?;
        let answers = self.ranks.ask_all("reading a checkpoint", |_| Read {
            checkpoint: Arc::clone(&checkpoint),
        });
        self.note(answers)?;
        self.next_step = checkpoint.step();
        Ok(())
    }

    /// The parameters as a checkpoint knows them.
    fn tensors(&self) -> Vec<TensorInfo> {
        self.parameters.iter().map(TensorInfo::from).collect()
    }

    /// The SHA-256, in hex, of all weights as little-endian `f32`, parameters in name order, tied ones once.
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
            let state = self
                .ranks
                .ask("hashing the weights", run[0].rank, Hash { hash, sites })?;
            hash = hash::resumed(&state)?;
        }
        Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Whether any process says yes: the same answer in each. A process alone answers itself.
    ///
    /// # Errors
    /// [`Error::Process`] or [`Error::ProcessGone`] when another has failed.
    pub fn any(&mut self, yes: bool) -> Result<bool> {
        self.begin(format_args!("question whether any process says yes"))?;
        let all = self.ranks.spread("agreeing", Ok(vec![u32::from(yes)]));
        Ok(self.note(all)?.contains(&1))
    }

    /// Leaves for a failure outside the pipeline: the other processes are told why, and stop.
    pub fn fail(&mut self, cause: &Error) {
        self.ranks.peers().fail(cause);
        self.failure.get_or_insert_with(|| cause.to_string());
    }

    /// Stops all ranks and waits for their threads to end.
    pub fn stop(self) {}

    /// This process's part of what all do before any goes on; fails when any has failed.
    fn all_do<T>(&self, what: &str, own: Result<T>) -> Result<T> {
        let (done, value) = match own {
            Ok(value) => (Ok(vec![()]), Some(value)),
            Err(error) => (Err(error), None),
        };
        self.ranks.spread(what, done)?;
        Ok(value.expect("a failure of this process's own is told above"))
    }

    /// Refuses checkpoints of several steps in what should be one folder.
    fn check_same_step(&self, folder: &Path, step: u64) -> Result<()> {
        let steps = self.ranks.spread("opening a checkpoint", Ok(vec![step]))?;
        match steps.iter().position(|&other| other != steps[0]) {
            None => Ok(()),
            Some(process) => Err(Error::from(CheckpointError::SeveralSteps {
                folder: folder.to_owned(),
                process,
                steps: [steps[0], steps[process]],
            })),
        }
    }

    /// Begins a call: all processes make the same ones. Nothing can be called after a failure.
    fn begin(&mut self, call: Arguments<'_>) -> Result<Call> {
        if let Some(cause) = &self.failure {
            return Err(Error::Stopped(format!(" after a failure: {cause}")));
        }
        let call = self.ranks.announce(call);
        self.note(call)
    }

    /// Remembers a failure that has stopped the ranks.
    fn note<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failure = Some(error.to_string());
            if error.is_stall() {
                // Perhaps it is the data source that does not return: then the loader's thread would never end.
                std::mem::forget(self.loader.take());
            }
        }
        result
    }
}

impl<S: Stage> std::fmt::Debug for Pipeline<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline")
            .field("next_step", &self.next_step)
            .finish_non_exhaustive()
    }
}
