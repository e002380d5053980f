//! Training steps: what they report, also when a number is not finite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pipewright_stages::Stage;

use super::alike;
use super::metrics;
use super::report::StepReport;
use super::running::Pipeline;
use crate::actor::Job;
use crate::error::{Error, Finding, NotFinite, Result};
use crate::fabric::Call;
use crate::id::MicroBatch;
use crate::schedule::Timeline;
use crate::worker::{
    self, Fault, Forwards, ParameterInfo, RankReport, Record, StepOutcome, StepRequest, StepTotals, Trained,
};

impl<S: Stage> Pipeline<S> {
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
        let step = self.next_step;
        let learning_rate = self.learning_rate.at(step);
        let (answers, seconds) = match self.plan.barrier || traced {
            true => self.run_alone(traced)?,
            false => self.run_without_barrier()?,
        };
        let loss_step = self.reported(step);
        let totals = self.totals(loss_step, &answers);
        if self.is_stale() && totals.is_err() {
            // The other ranks have gone on, so the step is done, and what follows needs equal weights.
            self.next_step += 1;
            let _ = self.settle();
        }
        let totals = totals?;
        let ranks = answers.iter().map(|answer| RankReport {
            bubble: (1.0 - answer.report.busy / seconds).max(0.0),
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
            taken_back: self.next.taken_back,
            restarts: answers.iter().flat_map(|answer| answer.restarts.clone()).collect(),
        };
        metrics::record(&report, self.ranks.mesh(), self.process());
        self.next_step += 1;
        let traces = match traced {
            true => answers.into_iter().filter_map(|answer| answer.trace).collect(),
            false => Vec::new(),
        };
        Ok((report, traces))
    }

    /// Runs a step before which all others have ended. Returns the ranks' answers, and how long it took.
    fn run_alone(&mut self, traced: bool) -> Result<(Vec<Trained>, f64)> {
        self.keep_if_due()?;
        let step = self.next_step;
        self.text.end();
        let call = match traced {
            false if self.is_stale() => self.announce(format_args!("step {step}"))?,
            false => self.begin(format_args!("step {step}"))?,
            true => self.begin(format_args!("traced step {step}"))?,
        };
        let trace_from = traced.then(|| self.common_instant()).transpose();
        let trace_from = self.note(trace_from)?;
        let started = Instant::now();
        self.read_data(step);
        let answers = self.run_step(self.request(call, step, trace_from))?;
        if let (false, Some(outcome)) = (self.plan.barrier, answers[0].outcome) {
            self.learn(outcome, false);
        }
        Ok((answers, started.elapsed().as_secs_f64()))
    }

    /// Lets the loaders read a step's data.
    pub(super) fn read_data(&self, step: u64) {
        for loader in &self.loaders {
            loader.begin(step, step + 1 < self.known_steps);
        }
    }

    /// What the ranks are told of a step that the ranks end together.
    pub(super) fn request(&self, call: Call, step: u64, trace_from: Option<Instant>) -> StepRequest {
        let learning_rate = self.learning_rate.at(step);
        StepRequest { call, step, learning_rate, trace_from, asks: false, goes_on: false }
    }

    /// Runs a step on the ranks. A traced one waits for all processes.
    fn run_step(&mut self, request: StepRequest) -> Result<Vec<Trained>> {
        if self.is_stale() {
            return self.train_stale(request);
        }
        let step = request.step;
        let answers = self.ranks.ask_all("training", |_| Job::train(request));
        let answers = self.note(answers)?;
        self.compare_batches(step)?;
        Ok(answers)
    }

    /// Fails if processes trained with different data.
    pub(super) fn compare_batches(&mut self, step: u64) -> Result<()> {
        let Some(data) = &self.summed else {
            return Ok(());
        };
        let same = alike::same_batches(&self.ranks, &format!("step {step}"), data, step..step + 1);
        self.note(same)
    }

    /// One instant, just before now, on the clocks of all processes.
    fn common_instant(&self) -> Result<Instant> {
        let offset = self.ranks.together("comparing clocks", |peers| peers.offset(self.origin))?;
        let now = self.origin.elapsed().as_secs_f64() + offset;
        let all = self.ranks.spread("comparing clocks", Ok(vec![now]))?;
        let last = all.into_iter().fold(now, f64::max) - offset;
        let since = Duration::try_from_secs_f64(last).unwrap_or_default();
        Ok(self.origin + since)
    }

    /// The step's totals, on which the ranks have agreed. If a number is not finite, an error with its place.
    pub(super) fn totals(&mut self, step: u64, answers: &[Trained]) -> Result<StepTotals> {
        let first = answers.first().expect("a pipeline has at least one rank");
        match first.outcome.expect("the ranks have agreed, or `run_without_barrier` has for them") {
            StepOutcome::Updated(totals) => Ok(totals),
            StepOutcome::NotFinite(Fault::Loss(micro_batch)) if !self.is_stale() && !self.has_failed() => {
                let found = self.search(step, micro_batch)?;
                let what = Box::new(NotFinite::Loss { micro_batch, found });
                Err(Error::NotFinite { step, what })
            }
            StepOutcome::NotFinite(fault) => Err(self.discarded(step, fault)),
        }
    }

    /// The error for a step that was discarded, without a search for the layer.
    pub(super) fn discarded(&self, step: u64, fault: Fault) -> Error {
        let what = match fault {
            Fault::Loss(micro_batch) => NotFinite::StaleLoss { micro_batch },
            Fault::Gradient(stage, index) => {
                let at = |info: &&ParameterInfo| (info.site.stage, info.site.index) == (stage, index);
                let info = self.parameters.iter().find(at);
                let parameter = info.map_or("?", |info| &info.name).to_owned();
                NotFinite::Gradient { parameter, stage }
            }
        };
        let what = Box::new(what);
        Error::NotFinite { step, what }
    }

    /// Where a micro-batch's forward pass first gives a number that is not finite.
    fn search(&mut self, step: u64, micro_batch: MicroBatch) -> Result<Option<Finding>> {
        let call = self.begin(format_args!(
            "search of step {step}, micro-batch {micro_batch} for a number that is not finite"
        ))?;
        let forwards = Arc::new(Forwards::new(self.schedule().placement(), 1)?);
        let search = |_| {
            let (source, forwards) = (Arc::clone(&self.plan.data), Arc::clone(&forwards));
            Job::must(move |worker| worker.search(call, &*source, step, micro_batch, &forwards))
        };
        let findings = self.ranks.ask_all("looking for the first number that is not finite", search);
        Ok(self.note(findings)?.into_iter().flatten().next())
    }
}
