//! The directory of a run: its files and their names.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::replace;
use super::lock::LOCK;
use crate::checkpoint::named_step;
use crate::error::RunError;
use crate::{Error, Result};

const CHECKPOINTS: &str = "checkpoints";
const MARK: &str = "run.json";
const FORMAT: u32 = 1;

/// The directory of a run. A folder is one when it holds the file `run.json`.
///
/// | name | what it is |
/// | --- | --- |
/// | `run.json` | the mark of a run directory; which checkpoint is the last one and which the best |
/// | `checkpoints/step-00000100` | the checkpoint after 100 steps |
/// | `metrics.jsonl` | a line a step |
/// | `history.jsonl` | a line each time that a process began, resumed or ended the run |
/// | `loss.svg` | the losses as a picture |
/// | `config.toml` | the settings of the run, where there are some |
/// | `lock` | which process trains here |
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

/// The checkpoint with the lowest validation loss of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The number of optimizer steps done.
    pub step: u64,
    /// Its validation loss.
    pub validation_loss: f64,
}

/// The contents of `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    format: u32,
    /// The last checkpoint, as a path inside of the run directory.
    last: Option<PathBuf>,
    /// The best checkpoint, as a path inside of the run directory.
    best: Option<PathBuf>,
    best_validation: Option<Best>,
}

impl Mark {
    /// The mark for these checkpoints, given by their numbers of steps.
    pub(super) fn new(last: Option<u64>, best: Option<Best>) -> Self {
        Self {
            format: FORMAT,
            last: last.map(place),
            best: best.map(|best| place(best.step)),
            best_validation: best,
        }
    }
}

/// The path in a run directory of the checkpoint after `step` steps.
fn place(step: u64) -> PathBuf {
    Path::new(CHECKPOINTS).join(format!("step-{step:08}"))
}

impl RunDir {
    /// A directory that need not exist yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The settings of the run.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The numbers of each step, a line of JSON each.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The losses as a picture.
    pub fn picture(&self) -> PathBuf {
        self.0.join("loss.svg")
    }

    /// The events of the run, a line of JSON each.
    pub fn history(&self) -> PathBuf {
        self.0.join("history.jsonl")
    }

    /// The path of the checkpoint after `step` steps.
    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.0.join(place(step))
    }

    /// Whether there is a run in it.
    pub fn is_run(&self) -> bool {
        self.mark_path().is_file()
    }

    /// The checkpoints, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn checkpoints(&self) -> Result<Vec<PathBuf>> {
        let folder = self.checkpoints_folder();
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
            let entry = entry.map_err(Error::io("list", &folder))?;
            let path = entry.path();
            found.extend(named_step(&path).map(|step| (step, path)));
        }
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// The checkpoint from which a resumed run continues: the newest one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn last(&self) -> Result<Option<PathBuf>> {
        Ok(self.checkpoints()?.pop())
    }

    /// The checkpoint with the lowest validation loss, if there was a validation.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Run`] when `run.json` is damaged.
    pub fn best(&self) -> Result<Option<Best>> {
        let best = self.mark()?.best_validation;
        Ok(best.filter(|best| self.checkpoint(best.step).exists()))
    }

    /// Refuses a folder that process 0 has made and that this process does not see.
    pub(super) fn check_shared(&self) -> Result<()> {
        match self.is_run() {
            true => Ok(()),
            false => Err(Error::from(RunError::NotShared(self.mark_path()))),
        }
    }

    /// Removes the files of a run that did not begin. Other files stay, and so do folders that are not empty.
    pub(super) fn abandon(&self) {
        let lock = self.0.join(LOCK);
        for file in [
            self.config(),
            self.metrics(),
            self.history(),
            self.mark_path(),
            lock,
        ] {
            // The user is told why the run did not begin. A failure here would only hide that.
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(self.checkpoints_folder());
        let _ = fs::remove_dir(&self.0);
    }

    pub(super) fn checkpoints_folder(&self) -> PathBuf {
        self.0.join(CHECKPOINTS)
    }

    /// Whether the folder does not exist, or holds nothing but the lock.
    pub(super) fn is_free(&self) -> Result<bool> {
        if !self.0.exists() {
            return Ok(true);
        }
        let entries = fs::read_dir(&self.0).map_err(Error::io("list", &self.0))?;
        for entry in entries {
            if entry.map_err(Error::io("list", &self.0))?.file_name() != LOCK {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the mark of a run directory.
    pub(super) fn mark(&self) -> Result<Mark> {
        let path = self.mark_path();
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let mark: Mark = match serde_json::from_str(&text) {
            Ok(mark) => mark,
            Err(source) => return Err(Error::from(RunError::Mark { path, source })),
        };
        if mark.format == FORMAT {
            return Ok(mark);
        }
        let (found, known) = (mark.format, FORMAT);
        Err(Error::from(RunError::Format { path, found, known }))
    }

    /// Writes the mark of a run directory.
    pub(super) fn set_mark(&self, mark: &Mark) -> Result<()> {
        let mut text = serde_json::to_string_pretty(mark).expect("numbers and text always serialise");
        text.push('\n');
        replace(&self.mark_path(), &text)
    }

    fn mark_path(&self) -> PathBuf {
        self.0.join(MARK)
    }
}
