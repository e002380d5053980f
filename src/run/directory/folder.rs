//! The directory of a run: its files and their names, and `about.json`.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lock::{LOCK, is_held};
use super::picture::LossUnit;
use crate::checkpoint::{self, Checkpoint};
use crate::error::RunError;
use crate::mesh::RankName;
use crate::plan::RankMemory;
use crate::run::forecast::StepTime;
use crate::run::validation::{Best, BestSoFar};
use crate::system::sync_folder;
use crate::whole::{self, partial};
use crate::{Error, Result};

pub(super) const CHECKPOINTS: &str = "checkpoints";
const MARK: &str = "run.json";
const FORMAT: u32 = 1;

/// The directory of a run. A folder is one when it holds the file `run.json`.
///
/// | name | what it is |
/// | --- | --- |
/// | `run.json` | the mark of a run directory; which checkpoint is the last one and which the best |
/// | `checkpoints/step-00000100` | the checkpoint after 100 steps |
/// | `checkpoints/step-00000100.not-finite` | set aside: its weights gave numbers that are not finite |
/// | `metrics.jsonl` | a line a step |
/// | `history.jsonl` | a line each time that a process began, resumed or ended the run |
/// | `samples.jsonl` | a line for each text that the model wrote, where that is asked for |
/// | `loss.svg` | the losses as a picture |
/// | `config.toml` | the settings of the run, where there are some |
/// | `about.json` | what it trains on, and what was planned for it |
/// | `tensorboard/` | the numbers of each step for TensorBoard, where that is asked for |
/// | `report.html` | all of this as a page, if the command `report` has written it |
/// | `replan.json` | a cut of the model that somebody asks for: see [`RunDir::ask_for_cut`] |
/// | `lock` | which process trains here |
#[derive(Clone, Debug)]
pub struct RunDir(PathBuf);

/// The contents of `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Mark {
    format: u32,
    /// The last checkpoint, as a path inside of the run directory.
    last: Option<PathBuf>,
    /// The best checkpoint, as a path inside of the run directory.
    best: Option<PathBuf>,
    best_validation: Option<Best>,
    /// The micro-batches and the data of the best checkpoint's validation.
    #[serde(default)]
    validation: Option<String>,
}

impl Mark {
    /// The mark for these checkpoints, given by their numbers of steps.
    pub(in crate::run) fn new(last: Option<u64>, so_far: &BestSoFar) -> Self {
        Self {
            format: FORMAT,
            last: last.map(place),
            best: so_far.best.map(|best| place(best.step)),
            best_validation: so_far.best,
            validation: so_far.validation.clone(),
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

    /// What the run trains on, and what was planned for it.
    pub fn about(&self) -> PathBuf {
        self.0.join("about.json")
    }

    /// The folder of the files for TensorBoard.
    pub fn tensorboard(&self) -> PathBuf {
        self.0.join("tensorboard")
    }

    /// The page that the command `report` writes.
    pub fn report(&self) -> PathBuf {
        self.0.join("report.html")
    }

    /// The picture of a traced step beside the planned one.
    pub fn plan_and_trace(&self) -> PathBuf {
        self.0.join("plan-and-trace.svg")
    }

    /// The numbers of each step, a line of JSON each.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The texts that the model wrote while it was trained, a line of JSON each.
    pub fn samples(&self) -> PathBuf {
        self.0.join("samples.jsonl")
    }

    /// The losses as a picture.
    pub fn picture(&self) -> PathBuf {
        self.0.join("loss.svg")
    }

    /// The events of the run, a line of JSON each.
    pub fn history(&self) -> PathBuf {
        self.0.join("history.jsonl")
    }

    /// What cut of the model somebody asks for.
    pub fn asked_cut(&self) -> PathBuf {
        self.0.join("replan.json")
    }

    /// Whether a process trains here now.
    pub fn is_training(&self) -> bool {
        is_held(&self.0)
    }

    /// The path of the checkpoint after `step` steps.
    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.0.join(place(step))
    }

    /// Whether it holds the mark of a run, `run.json`.
    pub fn is_run(&self) -> bool {
        self.mark_path().is_file()
    }

    /// Whether there is a run in it. A run of an earlier version has no mark, but it has checkpoints.
    pub(super) fn holds_run(&self) -> Result<bool> {
        let is_ours = |newest: PathBuf| Checkpoint::open(&newest).is_ok();
        Ok(self.is_run() || self.last()?.is_some_and(is_ours))
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
            found.extend(checkpoint::named_step(&path).map(|step| (step, path)));
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
        Ok(self.best_so_far()?.best)
    }

    /// The best checkpoint, and the data of its validation. Both are empty in a run without a mark.
    pub(in crate::run) fn best_so_far(&self) -> Result<BestSoFar> {
        if !self.is_run() {
            return Ok(BestSoFar::default());
        }
        let mark = self.mark()?;
        Ok(BestSoFar {
            best: mark.best_validation.filter(|best| self.checkpoint(best.step).exists()),
            validation: mark.validation,
        })
    }

    /// Whether the run has ever completed a checkpoint.
    pub(super) fn had_checkpoint(&self) -> Result<bool> {
        Ok(self.mark()?.last.is_some())
    }

    /// Renames a checkpoint, so that no run continues from it. Returns its new path.
    pub(in crate::run) fn set_aside(&self, step: u64) -> Result<PathBuf> {
        let from = self.checkpoint(step);
        let to = from.with_extension("not-finite");
        // An earlier try of the same steps may have left one.
        checkpoint::remove(&to)?;
        fs::rename(&from, &to)
            .and_then(|()| sync_folder(&self.checkpoints_folder()))
            .map_err(Error::io("rename", &from))?;
        Ok(to)
    }

    /// Refuses a folder that process 0 has made but this process does not see, and a copy of that folder.
    /// `signature` is what process 0 has written into the lock; it may be empty.
    pub(in crate::run) fn check_shared(&self, signature: &str) -> Result<()> {
        let lock = self.0.join(LOCK);
        if !self.is_run() {
            return Err(RunError::NotShared(self.mark_path()).into());
        }
        match signature.is_empty() || fs::read_to_string(&lock).is_ok_and(|text| text == signature) {
            true => Ok(()),
            false => Err(RunError::new(format!(
                "{} is not the file that process 0 has just written: the processes of a run need one file \
                 system for its directory, and copies of it do not do",
                lock.display()
            ))
            .into()),
        }
    }

    /// Removes the files of a run that did not begin. Other files stay, and so do folders that are not empty.
    pub(in crate::run) fn abandon(&self) {
        let lock = self.0.join(LOCK);
        for file in [
            self.config(),
            self.about(),
            self.metrics(),
            self.samples(),
            self.history(),
            self.asked_cut(),
            self.mark_path(),
            partial(&self.mark_path()),
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

    /// Whether a new run may begin in the folder: it does not exist, or it is empty. A run that was killed
    /// while it began may have left the lock and an unfinished mark. These do not count.
    pub(super) fn is_free(&self) -> Result<bool> {
        if !self.0.exists() {
            return Ok(true);
        }
        let left = [self.0.join(LOCK), partial(&self.mark_path())];
        for entry in fs::read_dir(&self.0).map_err(Error::io("list", &self.0))? {
            if !left.contains(&entry.map_err(Error::io("list", &self.0))?.path()) {
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
            Err(source) => {
                let cure = match self.last()? {
                    Some(newest) => format!(
                        "move the file away, and --resume goes on from {} and writes it anew",
                        newest.display()
                    ),
                    None => "there is no checkpoint to go on from: begin another run in another directory \
                         with --run-dir DIR"
                        .to_owned(),
                };
                let text = format!(
                    "{} is not the mark of a run that this program knows: {source}; {cure}",
                    path.display()
                );
                return Err(RunError::because(text, source).into());
            }
        };
        if mark.format == FORMAT {
            return Ok(mark);
        }
        let (path, found) = (path.display(), mark.format);
        Err(RunError::new(format!("{path} has format {found}, this program reads format {FORMAT}")).into())
    }

    /// Writes the mark of a run directory.
    pub(super) fn set_mark(&self, mark: &Mark) -> Result<()> {
        let mut text = serde_json::to_string_pretty(mark).expect("numbers and text always serialise");
        text.push('\n');
        whole::write(&self.mark_path(), &text)
    }

    pub(super) fn mark_path(&self) -> PathBuf {
        self.0.join(MARK)
    }
}

/// What a run trains on and what was planned for it, as it last began, was resumed, or was cut anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The machine of process 0: a name and a value each, such as `processor`.
    pub machine: Vec<(String, String)>,
    /// The memory that each rank of a replica was estimated to need, in bytes. Empty: it was not estimated.
    pub memory: Vec<RankMemory>,
    /// The name of each rank, in the order of the numbers in `metrics.jsonl`.
    pub ranks: Vec<RankName>,
    /// The first step of the ranks with these names.
    pub since: u64,
    /// The predicted time and bubble of a step, once they are known.
    pub predicted: Option<StepTime>,
    /// What the loss is measured in.
    pub loss: Option<LossUnit>,
}
