//! The files that the leading process of a run writes.

use std::fs;
use std::path::PathBuf;

use super::about::About;
use super::best::BestSoFar;
use super::claim::Claim;
use super::event::Task;
use super::folder::{Mark, RunDir};
use super::forecast::StepTime;
use super::history::History;
use super::lock::Lock;
use super::metrics::{Metrics, MetricsLine};
use super::picture::{self, Labels};
use super::sample::{Sample, SampleFile};
use super::tensorboard::TensorBoard;
use crate::error::RunError;
use crate::{Error, Result, checkpoint, whole};

/// The files of a run, open in the process that leads it.
#[derive(Debug)]
pub(super) struct Writer {
    dir: RunDir,
    /// Whether nothing of the run was there before.
    new: bool,
    lock: Lock,
    metrics: Metrics,
    /// If the run writes text, or has written some.
    samples: Option<SampleFile>,
    tensorboard: Option<TensorBoard>,
    history: History,
    /// Which checkpoints are the last and the best one.
    mark: Mark,
    config: Option<String>,
    about: About,
    labels: Labels,
}

/// A failed task of the writer.
pub(super) type Failure = (Task, Error);

impl Writer {
    /// Makes the directory of a new run, or opens the directory of a run that continues after `step` steps.
    pub(super) fn begin(
        (dir, claim): (&RunDir, Claim),
        (config, about, labels): (Option<&str>, About, Labels),
        (writes_text, for_tensorboard): (bool, bool),
        step: u64,
    ) -> Result<Self> {
        let resumed = claim.from().is_some();
        let new = !resumed && !claim.begins_again();
        let lock = claim.lock()?;
        let open = || -> Result<_> {
            if !dir.is_run() {
                dir.set_mark(&Mark::new(resumed.then_some(step), &BestSoFar::default()))?;
            }
            let mark = dir.mark()?;
            let folder = dir.checkpoints_folder();
            fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
            checkpoint::tidy(&folder)?;
            if let Some(config) = config {
                whole::write(&dir.config(), config)?;
            }
            write_about(dir, &about)?;
            let samples = dir.samples();
            let samples = (writes_text || samples.exists()).then(|| SampleFile::open(samples, step));
            Ok((
                mark,
                Metrics::open(dir.metrics(), step)?,
                samples.transpose()?,
                History::open(dir.history())?,
            ))
        };
        let opened = open();
        if new && opened.is_err() {
            dir.abandon();
        }
        let (mark, metrics, samples, history) = opened?;
        Ok(Self {
            dir: dir.clone(),
            new,
            lock,
            metrics,
            samples,
            tensorboard: for_tensorboard.then(|| TensorBoard::new(dir.tensorboard(), step)),
            history,
            mark,
            config: config.map(str::to_owned),
            about,
            labels,
        })
    }

    /// Removes a new run that did not begin, so that the next one may have the same name.
    pub(super) fn abandon(&self) {
        if self.new {
            self.dir.abandon();
        }
    }

    /// Fails if the run directory is no longer there, or if another process has taken it.
    pub(super) fn check_place(&mut self) -> Result<Option<Failure>> {
        self.lock.check_place()?;
        let odd = self.lock.keep()?;
        Ok(odd.map(|error| (Task::Lock, error)))
    }

    /// What is in the lock.
    pub(super) fn signature(&mut self) -> String {
        self.lock.signature()
    }

    /// Writes files of the run again that somebody has removed. Returns the first of them, as a warning.
    pub(super) fn restore(&mut self) -> std::result::Result<(), Failure> {
        let restored = self.restored().and_then(|restored| match restored.into_iter().next() {
            Some(path) => Err(RunError::new(format!(
                "{} was removed or replaced: it was written again",
                path.display()
            ))
            .into()),
            None => Ok(()),
        });
        restored.map_err(|error| (Task::Files, error))
    }

    fn restored(&mut self) -> Result<Vec<PathBuf>> {
        let mut restored = Vec::new();
        if !self.dir.is_run() {
            self.dir.set_mark(&self.mark)?;
            restored.push(self.dir.mark_path());
        }
        if let Some(config) = self.config.as_ref().filter(|_| !self.dir.config().exists()) {
            whole::write(&self.dir.config(), config)?;
            restored.push(self.dir.config());
        }
        if !self.dir.about().exists() {
            write_about(&self.dir, &self.about)?;
            restored.push(self.dir.about());
        }
        restored.extend(self.metrics.restore()?);
        restored.extend(self.samples.as_mut().map_or(Ok(None), SampleFile::restore)?);
        restored.extend(self.history.restore()?);
        restored.extend(self.tensorboard.as_mut().map_or(Ok(None), TensorBoard::restore)?);
        Ok(restored)
    }

    pub(super) fn line(&mut self, line: &MetricsLine) -> std::result::Result<(), Failure> {
        self.metrics.add(line).map_err(|error| (Task::Metrics, error))
    }

    /// Adds a text that the model wrote.
    pub(super) fn sample(&mut self, sample: &Sample) -> std::result::Result<(), Failure> {
        let added = self.samples.as_mut().map_or(Ok(()), |file| file.add(sample));
        added.map_err(|error| (Task::Samples, error))
    }

    /// Adds a line to what TensorBoard reads.
    pub(super) fn scalars(&mut self, line: &MetricsLine) -> std::result::Result<(), Failure> {
        let added = self.tensorboard.as_mut().map_or(Ok(()), |board| board.add(line));
        added.map_err(|error| (Task::TensorBoard, error))
    }

    /// Records an event, after `step` steps.
    pub(super) fn note(&mut self, step: u64, event: &str) -> std::result::Result<(), Failure> {
        self.history.add(step, event).map_err(|error| (Task::History, error))
    }

    /// Waits until the disk has the numbers and texts of the checkpoint that is about to be saved.
    pub(super) fn sync(&self) -> std::result::Result<(), Failure> {
        self.metrics.sync().map_err(|error| (Task::Metrics, error))?;
        let synced = self.samples.as_ref().map_or(Ok(()), SampleFile::sync);
        synced.map_err(|error| (Task::Samples, error))
    }

    /// Records which checkpoints are the last and the best one.
    pub(super) fn mark(&mut self, last: Option<u64>, best: &BestSoFar) -> std::result::Result<(), Failure> {
        self.mark = Mark::new(last, best);
        self.dir.set_mark(&self.mark).map_err(|error| (Task::Mark, error))
    }

    /// Records the predicted time of a step.
    pub(super) fn predicted(&mut self, predicted: StepTime) -> std::result::Result<(), Failure> {
        self.about.predicted = Some(predicted);
        write_about(&self.dir, &self.about).map_err(|error| (Task::Forecast, error))
    }

    pub(super) fn draw(&self) -> std::result::Result<(), Failure> {
        picture::draw(self.metrics.curve(), &self.labels, &self.dir.picture())
            .map_err(|error| (Task::Picture, error))
    }
}

fn write_about(dir: &RunDir, about: &About) -> Result<()> {
    let mut text = serde_json::to_string(about).expect("numbers and text always serialise");
    text.push('\n');
    whole::write(&dir.about(), &text)
}
