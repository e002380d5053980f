//! The loop of a run: steps, validations, checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::forecast::Forecast;
use super::picture;
use super::processes::Role;
use super::progress::Progress;
use super::run_dir::{Line, Log, RunDir};
use super::trace::Tracer;
use crate::compose::{TrainingData, describe_gpus};
use crate::config::Config;
use crate::pipeline::{Evaluation, Pipeline, StepReport};
use crate::plan::Prediction;
use crate::stages::{RecomputedStage, Sequential};
use crate::{Error, Result, checkpoint};

/// How a run came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Interrupted,
}

/// A run that is ready for its next step.
#[derive(Debug)]
pub(super) struct Trainer {
    config: Config,
    data: TrainingData,
    pipeline: Pipeline<RecomputedStage<Sequential>>,
    run_dir: RunDir,
    role: Role,
    /// In the process that writes.
    log: Option<Log>,
    steps: u64,
    saved: Option<u64>,
    changes: Vec<String>,
    progress: Progress,
    tracer: Option<Tracer>,
    forecast: Forecast,
}

impl Trainer {
    /// A run up to `steps` steps with a pipeline that may have some behind it, with these `changes` of the config since
    /// then. Makes the run's folder, in the process that writes.
    pub(super) fn begin(
        config: Config,
        data: TrainingData,
        mut pipeline: Pipeline<RecomputedStage<Sequential>>,
        (run_dir, role): (RunDir, Role),
        steps: u64,
        changes: Vec<String>,
    ) -> Result<Self> {
        let done = pipeline.next_step();
        let made = role.leads() && !run_dir.path().exists();
        let begin = || {
            run_dir.begin(&config.resolved_toml()?)?;
            run_dir.log(done)
        };
        let log = role
            .leads()
            .then(begin)
            .transpose()
            .inspect_err(|error| pipeline.fail(error))?;
        let seen = see(&mut pipeline, &run_dir);
        if made && seen.is_err() {
            run_dir.abandon();
        }
        seen?;
        let progress = if role.leads() {
            Progress::new(done, steps, config.train.print_every, config.unit())
        } else {
            Progress::quiet()
        };
        let saved = run_dir.checkpoint(done).exists().then_some(done);
        Ok(Self {
            config,
            data,
            pipeline,
            run_dir,
            role,
            log,
            steps,
            saved,
            changes,
            progress,
            tracer: None,
            forecast: Forecast::default(),
        })
    }

    /// The same run, with its steps predicted by the costs of its layers instead of by its first steps.
    pub(super) fn predicted_by(self, prediction: &Prediction) -> Self {
        let forecast = Forecast::by_costs(prediction);
        Self { forecast, ..self }
    }

    /// The same run, with some of its steps traced.
    pub(super) fn traced_by(self, tracer: Option<Tracer>) -> Self {
        Self { tracer, ..self }
    }

    /// Trains to the end, or to the first step's end after an interruption.
    pub(super) fn train(&mut self, interrupted: &AtomicBool) -> Result<Ended> {
        self.introduce()?;
        let started = Instant::now();
        let first = self.pipeline.next_step();
        let mut validation = None;
        while self.pipeline.next_step() < self.steps
            && !self.pipeline.any(interrupted.load(Ordering::SeqCst))?
        {
            validation = self.step()?;
            let done = self.pipeline.next_step();
            if is_due(done, self.config.checkpoint.every) {
                self.save()?;
            }
        }
        let done = self.pipeline.next_step();
        let ended = if done < self.steps {
            Ended::Interrupted
        } else {
            Ended::Done
        };
        if self.saved != Some(done) {
            self.save()?;
        }
        self.progress.finish();
        let result = validation.map_or(String::new(), |result: Evaluation| {
            format!(", validation {}", Progress::score(&result))
        });
        let word = if ended == Ended::Done {
            "done"
        } else {
            "interrupted"
        };
        self.print(&format!(
            "{word}: {} steps in {:.1} s{result}; saved as {}\n",
            done - first,
            started.elapsed().as_secs_f64(),
            self.run_dir.checkpoint(done).display()
        ))?;
        if let Some(result) = self.forecast.result() {
            self.print(&format!("{result}\n"))?;
        }
        if let Some(tracer) = &self.tracer {
            self.print(tracer.summary())?;
        }
        Ok(ended)
    }

    /// This process's part in the run.
    pub(super) fn role(&self) -> Role {
        self.role
    }

    /// Prints to standard output, in the process that speaks.
    pub(super) fn print(&self, text: &str) -> Result<()> {
        if self.role.leads() {
            super::print(text)
        } else {
            Ok(())
        }
    }

    /// The hash of the weights as they are.
    pub(super) fn weights_hash(&mut self) -> Result<String> {
        self.pipeline.weights_hash()
    }

    /// After a failure: tells the other processes, and says which checkpoint there is to go on from. One whose weights gave the
    /// numbers that are not finite is removed when there is an older one.
    pub(super) fn fail(&mut self, error: &Error) -> Result<()> {
        self.progress.finish();
        self.pipeline.fail(error);
        if !self.role.leads() {
            return Ok(());
        }
        let mut advice = "";
        if matches!(error, Error::NotFinite { .. }) {
            let done = self.pipeline.next_step();
            let bad = self.run_dir.checkpoint(done);
            if bad.exists() && self.run_dir.newest_good(done)?.is_none() {
                eprintln!(
                    "the only checkpoint, {}, holds the weights that gave these numbers: begin another run",
                    bad.display()
                );
                return Ok(());
            }
            if bad.exists() {
                checkpoint::remove(&bad)?;
                eprintln!("removed {}: its weights gave these numbers", bad.display());
            }
            advice = "; with the same settings it ends the same way, so change one, such as \
                      optimizer.learning_rate";
        }
        match self.run_dir.checkpoints()?.pop() {
            Some(path) => eprintln!(
                "the newest checkpoint is {}: --resume continues from it{advice}",
                path.display()
            ),
            None => eprintln!("there is no checkpoint yet"),
        }
        Ok(())
    }

    /// Says what is about to happen.
    fn introduce(&self) -> Result<()> {
        let mut parameters: Vec<_> = self
            .pipeline
            .parameters()
            .iter()
            .map(|info| (&info.name, &info.dims))
            .collect();
        parameters.sort();
        parameters.dedup();
        let count: usize = parameters
            .iter()
            .map(|(_, dims)| dims.iter().product::<usize>())
            .sum();
        let pipeline = &self.config.pipeline;
        self.progress.say(&format!(
            "data      {}\nmodel     {count} parameters\n\
             pipeline  stages {}, schedule {}, micro-batches {} of {} rows{}\nrun       {}",
            self.data.summary,
            pipeline.stages,
            pipeline.schedule,
            pipeline.micro_batches,
            self.config.micro_batch_size(),
            self.threads(),
            self.run_dir.path().display(),
        ))?;
        if let Some(devices) = describe_gpus(&self.config) {
            self.progress.say(&format!("devices   {devices}"))?;
        }
        if let Some(line) = self.forecast.beginning() {
            self.progress.say(&line)?;
        }
        if let done @ 1.. = self.pipeline.next_step() {
            self.progress.say(&format!("resumed after {done} steps"))?;
        }
        if self.changes.is_empty() {
            return Ok(());
        }
        self.progress.say(&format!(
            "changed   {}: from here on this is not the run that was saved, bit for bit",
            self.changes.join(", ")
        ))
    }

    /// What is said of threads, where ranks have more than one.
    fn threads(&self) -> String {
        let (threads, ranks) = (
            self.config.pipeline.threads_per_rank,
            self.pipeline.schedule().ranks() as usize,
        );
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match threads {
            1 => String::new(),
            _ if threads * ranks > cores => {
                format!(
                    ", {threads} threads a rank ({} for {cores} cores: fewer are faster)",
                    threads * ranks
                )
            }
            _ => format!(", {threads} threads a rank"),
        }
    }

    /// One step, with its validation when that is due.
    fn step(&mut self) -> Result<Option<Evaluation>> {
        let report = self.advance()?;
        if self.saved == Some(report.step) {
            // That step was the proof of the newest checkpoint: older ones may go.
            self.prune()?;
        }
        self.progress.step(&report)?;
        let done = self.pipeline.next_step();
        let due = done == self.steps || is_due(done, self.config.train.validate_every);
        let validation = if due { self.validate(done)? } else { None };
        if let Some(log) = &mut self.log {
            log.add(&Line::new(&report, validation))?;
        }
        Ok(validation)
    }

    /// One step of the pipeline, traced when somebody wants that.
    fn advance(&mut self) -> Result<StepReport> {
        let next = self.pipeline.next_step();
        let tracer = self.tracer.as_mut().filter(|tracer| tracer.wants(next));
        let (report, timeline) = if tracer.is_some() || self.forecast.wants_trace() {
            let (report, timeline) = self.pipeline.step_traced()?;
            (report, Some(timeline))
        } else {
            (self.pipeline.step()?, None)
        };
        let schedule = self.pipeline.schedule();
        if let (Some(tracer), Some(timeline), true) = (tracer, &timeline, self.role.leads()) {
            tracer.take((next, report.seconds, timeline.clone()), schedule, &self.run_dir)?;
        }
        if let Some(line) = self.forecast.add(schedule, &report, timeline)? {
            self.progress.say(&line)?;
        }
        Ok(report)
    }

    fn validate(&mut self, done: u64) -> Result<Option<Evaluation>> {
        let Some(source) = self
            .data
            .validation
            .as_ref()
            .filter(|_| self.config.train.validate_every > 0)
        else {
            return Ok(None);
        };
        let result = self
            .pipeline
            .evaluate(Arc::clone(source), self.data.validation_micro_batches)?;
        if !result.loss.is_finite() {
            let what = format!("the loss of the validation before it is {}", result.loss);
            return Err(Error::NotFinite { step: done, what });
        }
        self.progress.validation(done, &result)?;
        Ok(Some(result))
    }

    fn save(&mut self) -> Result<()> {
        let done = self.pipeline.next_step();
        let path = self.run_dir.checkpoint(done);
        self.pipeline.save(&path)?;
        self.saved = Some(done);
        self.prune()?;
        if !self.role.leads() {
            return Ok(());
        }
        picture::draw(&self.run_dir.lines()?, &self.run_dir.picture())
    }

    fn prune(&self) -> Result<()> {
        if !self.role.leads() {
            return Ok(());
        }
        self.run_dir
            .prune(self.config.checkpoint.keep, self.pipeline.next_step())
    }
}

/// Refuses a folder that not all processes see, once all have looked.
fn see(pipeline: &mut Pipeline<RecomputedStage<Sequential>>, run_dir: &RunDir) -> Result<()> {
    pipeline.any(false)?;
    let seen = run_dir.check_shared();
    pipeline.any(false)?;
    seen.inspect_err(|error| pipeline.fail(error))?;
    pipeline.any(false).map(|_| ())
}

/// Whether something that happens every so many steps happens after `done` steps; never when that is 0.
fn is_due(done: u64, every: u64) -> bool {
    every > 0 && done.is_multiple_of(every)
}
