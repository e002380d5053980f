//! The files that the leading process of a run writes.

use std::fs;
use std::path::PathBuf;

use super::claim::Claim;
use super::files::JsonLines;
use super::folder::{About, Mark, RunDir};
use super::history::{History, HistoryEntry};
use super::lock::Lock;
use super::metrics::{Metrics, MetricsLine};
use super::picture::{self, Labels};
use super::tensorboard::TensorBoard;
use crate::error::RunError;
use crate::run::samples::{Sample, sample_file};
use crate::run::validation::BestSoFar;
use crate::{Error, Result, checkpoint, whole};

/// The files of a run, open in the process that leads it.
#[derive(Debug)]
pub(in crate::run) struct Writer {
    dir: RunDir,
    /// Whether nothing of the run was there before.
    new: bool,
    lock: Lock,
    metrics: Metrics,
    /// If the run writes text, or has written some.
    samples: Option<JsonLines>,
    tensorboard: Option<TensorBoard>,
    history: History,
    /// Which checkpoints are the last and the best one.
    mark: Mark,
    config: Option<String>,
    about: About,
    labels: Labels,
}

/// What the files of a run are about.
#[derive(Clone, Debug)]
pub(in crate::run) struct Files {
    pub(in crate::run) dir: RunDir,
    pub(in crate::run) config: Option<String>,
    pub(in crate::run) about: About,
    pub(in crate::run) labels: Labels,
    pub(in crate::run) writes_text: bool,
    pub(in crate::run) for_tensorboard: bool,
}

impl Writer {
    /// Makes the directory of a new run, or opens the directory of a run that continues after `step` steps.
    pub(in crate::run) fn begin(files: Files, claim: Claim, step: u64) -> Result<Self> {
        let Files { dir, config, mut about, labels, writes_text, for_tensorboard } = files;
        let resumed = claim.from().is_some();
        let new = !resumed && !claim.begins_again();
        let lock = claim.lock()?;
        let mut open = || -> Result<_> {
            if !dir.is_run() {
                dir.set_mark(&Mark::new(resumed.then_some(step), &BestSoFar::default()))?;
            }
            let mark = dir.mark()?;
            let folder = dir.checkpoints_folder();
            fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
            checkpoint::tidy(&folder)?;
            if let Some(config) = &config {
                whole::write(&dir.config(), config)?;
            }
            about.since = read_about(&dir).map_or(0, |before| match before.ranks == about.ranks {
                true => before.since.min(step),
                false => step,
            });
            write_about(&dir, &about)?;
            let samples = dir.samples();
            let samples = (writes_text || samples.exists()).then(|| sample_file(samples, step));
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
            new,
            lock,
            metrics,
            samples,
            tensorboard: for_tensorboard.then(|| TensorBoard::new(dir.tensorboard(), step)),
            history,
            mark,
            dir,
            config,
            about,
            labels,
        })
    }

    /// Removes a new run that did not begin, so that the next one may have the same name.
    pub(in crate::run) fn abandon(&self) {
        if self.new {
            self.dir.abandon();
        }
    }

    /// Fails if the run directory is no longer there, or if another process has taken it.
    /// If it had to lock the directory anew, it returns a warning.
    pub(in crate::run) fn check_place(&mut self) -> Result<Option<Error>> {
        self.lock.check_place()?;
        self.lock.keep()
    }

    /// What is in the lock.
    pub(in crate::run) fn signature(&mut self) -> String {
        self.lock.signature()
    }

    /// Writes files of the run again that somebody has removed. The error names the first of them.
    pub(in crate::run) fn restore(&mut self) -> Result<()> {
        match self.restored()?.first() {
            Some(path) => Err(RunError::new(format!(
                "{} was removed or replaced: it was written again",
                path.display()
            ))
            .into()),
            None => Ok(()),
        }
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
        restored.extend(self.metrics.lines.restore()?);
        restored.extend(self.samples.as_mut().map_or(Ok(None), JsonLines::restore)?);
        restored.extend(self.history.restore()?);
        restored.extend(self.tensorboard.as_mut().map_or(Ok(None), TensorBoard::restore)?);
        Ok(restored)
    }

    pub(in crate::run) fn line(&mut self, line: &MetricsLine) -> Result<()> {
        self.metrics.add(line)
    }

    /// Adds a text that the model wrote.
    pub(in crate::run) fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.samples.as_mut().map_or(Ok(()), |file| file.add(sample))
    }

    /// Adds a line to what TensorBoard reads.
    pub(in crate::run) fn scalars(&mut self, line: &MetricsLine) -> Result<()> {
        self.tensorboard.as_mut().map_or(Ok(()), |board| board.add(line))
    }

    /// Records an event, after `step` steps.
    pub(in crate::run) fn note(&mut self, step: u64, event: &str) -> Result<()> {
        self.history.add(step, event)
    }

    /// Adds an entry to the history.
    pub(in crate::run) fn note_entry(&mut self, entry: &HistoryEntry) -> Result<()> {
        self.history.add_entry(entry)
    }

    /// Waits until the disk has the numbers of all steps.
    pub(in crate::run) fn sync_lines(&self) -> Result<()> {
        self.metrics.lines.sync()
    }

    /// Waits until the disk has all texts.
    pub(in crate::run) fn sync_samples(&self) -> Result<()> {
        self.samples.as_ref().map_or(Ok(()), JsonLines::sync)
    }

    /// Records which checkpoints are the last and the best one.
    pub(in crate::run) fn mark(&mut self, last: Option<u64>, best: &BestSoFar) -> Result<()> {
        self.mark = Mark::new(last, best);
        self.dir.set_mark(&self.mark)
    }

    /// Changes what is known of the run.
    pub(in crate::run) fn about(&mut self, change: impl FnOnce(&mut About)) -> Result<()> {
        change(&mut self.about);
        write_about(&self.dir, &self.about)
    }

    pub(in crate::run) fn draw(&self) -> Result<()> {
        picture::draw(&self.metrics.curve, &self.labels, &self.dir.picture())
    }
}

/// What was known of the run before, if it was a run.
fn read_about(dir: &RunDir) -> Option<About> {
    serde_json::from_str(&fs::read_to_string(dir.about()).ok()?).ok()
}

fn write_about(dir: &RunDir, about: &About) -> Result<()> {
    let mut text = serde_json::to_string(about).expect("numbers and text always serialise");
    text.push('\n');
    whole::write(&dir.about(), &text)
}
