//! The folder of a run: its config, numbers, picture and checkpoints.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::pipeline::{Evaluation, StepReport};
use crate::{Error, Result, checkpoint};

const CHECKPOINTS: &str = "checkpoints";
const METRICS: &str = "metrics.jsonl";

/// A run's folder. Every path in it is said here.
#[derive(Clone, Debug)]
pub(super) struct RunDir(PathBuf);

impl RunDir {
    pub(super) fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    pub(super) fn picture(&self) -> PathBuf {
        self.0.join("loss.svg")
    }

    /// Where the checkpoint after so many steps belongs.
    pub(super) fn checkpoint(&self, step: u64) -> PathBuf {
        self.0.join(CHECKPOINTS).join(format!("step-{step:08}"))
    }

    /// Whether there is anything in it.
    pub(super) fn is_taken(&self) -> bool {
        self.0.exists() && fs::read_dir(&self.0).map_or(true, |mut entries| entries.next().is_some())
    }

    /// Writes a file into the folder, in place of one of that name.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        replace(&self.0.join(name), text)
    }

    /// Makes the folder, if need be, and writes the config of the run that now begins.
    pub(super) fn begin(&self, config: &str) -> Result<()> {
        let checkpoints = self.0.join(CHECKPOINTS);
        fs::create_dir_all(&checkpoints).map_err(Error::io("create", &checkpoints))?;
        sweep(&checkpoints)?;
        replace(&self.config(), config)
    }

    /// Takes back a run that has just begun in a folder of its own: the next one may have the same name.
    pub(super) fn abandon(&self) {
        // There is nothing to do about what cannot be removed: the cause is told.
        let _ = fs::remove_file(self.config());
        let _ = fs::remove_file(self.0.join(METRICS));
        let _ = fs::remove_dir(self.0.join(CHECKPOINTS));
        let _ = fs::remove_dir(&self.0);
    }

    /// Refuses a folder that [`RunDir::begin`] has made in another process and that is not there in this one.
    pub(super) fn check_shared(&self) -> Result<()> {
        if self.config().is_file() {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{} is not there, although process 0 has written it: the processes of a run need one file system for its folder",
            self.config().display()
        )))
    }

    /// The checkpoints, oldest first.
    pub(super) fn checkpoints(&self) -> Result<Vec<PathBuf>> {
        let folder = self.0.join(CHECKPOINTS);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
            let entry = entry.map_err(Error::io("list", &folder))?;
            let step = entry
                .file_name()
                .to_string_lossy()
                .strip_prefix("step-")
                .and_then(|step| step.parse().ok());
            found.extend(step.map(|step: u64| (step, entry.path())));
        }
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// The newest checkpoint that is known to be good when so many steps are done: a step went on from its weights
    /// and all its numbers were finite. The one after the last step has yet to prove itself.
    pub(super) fn newest_good(&self, done: u64) -> Result<Option<PathBuf>> {
        let unproven = self.checkpoint(done);
        Ok(self.checkpoints()?.into_iter().rfind(|path| *path != unproven))
    }

    /// Removes all checkpoints but the newest so many and the newest that is known to be good.
    pub(super) fn prune(&self, keep: usize, done: u64) -> Result<()> {
        let (all, good) = (self.checkpoints()?, self.newest_good(done)?);
        all[..all.len().saturating_sub(keep)]
            .iter()
            .filter(|old| Some(*old) != good.as_ref())
            .try_for_each(|old| checkpoint::remove(old))
    }

    /// Opens the numbers for writing on from `step`: lines of later steps, and one cut off in the middle, go.
    pub(super) fn log(&self, step: u64) -> Result<Log> {
        let path = self.0.join(METRICS);
        let mut kept = String::new();
        for line in self.lines()?.into_iter().filter(|line| line.step < step) {
            kept.push_str(&line.json());
        }
        replace(&path, &kept)?;
        let file = OpenOptions::new()
            .append(true)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        Ok(Log { file, path })
    }

    /// The numbers of all steps so far.
    pub(super) fn lines(&self) -> Result<Vec<Line>> {
        let path = self.0.join(METRICS);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect())
    }
}

/// Removes what saves that were killed left behind: they could not clean up after themselves.
fn sweep(checkpoints: &Path) -> Result<()> {
    for entry in fs::read_dir(checkpoints).map_err(Error::io("list", checkpoints))? {
        let entry = entry.map_err(Error::io("list", checkpoints))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(".step-") && (name.ends_with(".partial") || name.ends_with(".old")) {
            checkpoint::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file beside its place and renames it into it: on a full disk the file that was there is still whole.
fn replace(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("partial");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .inspect_err(|_| {
            // The failure itself is what the caller is told.
            let _ = fs::remove_file(&beside);
        })
        .map_err(Error::io("write", path))
}

/// A step's line in `metrics.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// From 0.
    pub(super) step: u64,
    pub(super) loss: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    grad_norm: f64,
    lr: f64,
    tokens: u64,
    seconds: f64,
    tokens_per_second: f64,
    /// The idle share, averaged over the ranks.
    bubble: f64,
    /// One number a rank.
    peak_bytes: Vec<u64>,
    /// Of a validation after this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) validation_loss: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validation_accuracy: Option<f64>,
}

impl Line {
    pub(super) fn new(report: &StepReport, validation: Option<Evaluation>) -> Self {
        Self {
            step: report.step,
            loss: report.loss,
            accuracy: report.accuracy,
            grad_norm: report.grad_norm,
            lr: report.learning_rate,
            tokens: report.weight as u64,
            seconds: report.seconds,
            tokens_per_second: report.rate(),
            bubble: report.bubble(),
            peak_bytes: report.ranks.iter().map(|rank| rank.peak_bytes).collect(),
            validation_loss: validation.map(|validation| validation.loss),
            validation_accuracy: validation.and_then(|validation| validation.accuracy),
        }
    }

    fn json(&self) -> String {
        let mut json = serde_json::to_string(self).expect("numbers always serialise");
        json.push('\n');
        json
    }
}

/// `metrics.jsonl`, open for writing.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Adds a line, in one piece.
    pub(super) fn add(&mut self, line: &Line) -> Result<()> {
        self.file
            .write_all(line.json().as_bytes())
            .map_err(Error::io("write", &self.path))
    }
}
