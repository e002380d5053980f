//! The loop of a run: steps, validations, checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::picture;
use super::progress::Progress;
use super::run_dir::{Line, Log, RunDir};
use crate::Result;
use crate::config::{Config, DataKind, TrainingData};
use crate::pipeline::{Evaluation, Pipeline};
use crate::stages::Sequential;

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
    pipeline: Pipeline<Sequential>,
    run_dir: RunDir,
    log: Log,
    steps: u64,
    saved: Option<u64>,
    progress: Progress,
}

impl Trainer {
    /// A run up to `steps` steps with a pipeline that may have some behind it. Makes the run's folder.
    pub(super) fn begin(
        config: Config,
        data: TrainingData,
        pipeline: Pipeline<Sequential>,
        run_dir: RunDir,
        steps: u64,
    ) -> Result<Self> {
        run_dir.begin(&config.resolved_toml()?)?;
        let done = pipeline.next_step();
        let log = run_dir.log(done)?;
        let unit = if config.data.kind == DataKind::Idx {
            "images"
        } else {
            "tokens"
        };
        let progress = Progress::new(done, steps, config.train.print_every, unit);
        let saved = run_dir.checkpoint(done).exists().then_some(done);
        Ok(Self {
            config,
            data,
            pipeline,
            run_dir,
            log,
            steps,
            saved,
            progress,
        })
    }

    /// Trains to the end, or to the first step's end after an interruption.
    pub(super) fn train(&mut self, interrupted: &AtomicBool) -> Result<Ended> {
        self.introduce()?;
        let started = Instant::now();
        let first = self.pipeline.next_step();
        let mut validation = None;
        while self.pipeline.next_step() < self.steps && !interrupted.load(Ordering::SeqCst) {
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
        super::print(&format!(
            "{word}: {} steps in {:.1} s{result}; saved as {}\n",
            done - first,
            started.elapsed().as_secs_f64(),
            self.run_dir.checkpoint(done).display()
        ))?;
        Ok(ended)
    }

    /// The hash of the weights as they are.
    pub(super) fn weights_hash(&mut self) -> Result<String> {
        self.pipeline.weights_hash()
    }

    /// After a failure: which checkpoint there is to go on from.
    pub(super) fn say_what_is_left(&self) {
        self.progress.finish();
        let newest = self.run_dir.checkpoints().ok().and_then(|mut all| all.pop());
        match newest {
            Some(path) => eprintln!(
                "the newest checkpoint is {}: --resume continues from it",
                path.display()
            ),
            None => eprintln!("there is no checkpoint yet"),
        }
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
             pipeline  stages {}, schedule {}, micro-batches {} of {} rows\nrun       {}",
            self.data.summary,
            pipeline.stages,
            pipeline.schedule,
            pipeline.micro_batches,
            self.config.micro_batch_size(),
            self.run_dir.path().display(),
        ))?;
        match self.pipeline.next_step() {
            0 => Ok(()),
            done => self.progress.say(&format!("resumed after {done} steps")),
        }
    }

    /// One step, with its validation when that is due.
    fn step(&mut self) -> Result<Option<Evaluation>> {
        let report = self.pipeline.step()?;
        self.progress.step(&report)?;
        let done = self.pipeline.next_step();
        let due = done == self.steps || is_due(done, self.config.train.validate_every);
        let validation = if due { self.validate(done)? } else { None };
        self.log.add(&Line::new(&report, validation))?;
        Ok(validation)
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
        self.progress.validation(done, &result)?;
        Ok(Some(result))
    }

    fn save(&mut self) -> Result<()> {
        let done = self.pipeline.next_step();
        let path = self.run_dir.checkpoint(done);
        self.pipeline.save(&path)?;
        self.saved = Some(done);
        self.run_dir.prune(self.config.checkpoint.keep)?;
        picture::draw(&self.run_dir.lines()?, &self.run_dir.picture())
    }
}

/// Whether something that happens every so many steps happens after `done` steps; never when that is 0.
fn is_due(done: u64, every: u64) -> bool {
    every > 0 && done.is_multiple_of(every)
}
