//! Whether a run may begin or continue in a directory. It is checked before anything there changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::folder::RunDir;
use super::lock::Lock;
use crate::checkpoint::Checkpoint;
use crate::error::RunError;
use crate::interrupt::Interrupt;
use crate::{Error, Result};

/// What to do if there is a run in the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Begin a new run. Refuse a directory that is not empty, unless a run was lost there before its first
    /// checkpoint: that one begins again.
    #[default]
    Never,
    /// Continue the run in the directory. If it is empty or does not exist, begin a new run.
    IfThere,
    /// Continue the run in the directory: from its newest checkpoint, or, if it was lost before its first
    /// one, from the beginning. Refuse a directory without a run.
    Always,
}

/// The pause between two tries to take a lock.
const PAUSE: Duration = Duration::from_millis(50);

/// A directory that this process may train in.
#[derive(Debug)]
pub(in crate::run) struct Claim {
    dir: RunDir,
    /// For a run that is there. A new run takes its lock when its directory is made.
    lock: Option<Lock>,
    /// Whether a run is there that does not continue from a checkpoint.
    begins_again: bool,
    /// The checkpoint to continue from.
    from: Option<PathBuf>,
    /// The same checkpoint, opened, in the process that leads.
    checkpoint: Option<Checkpoint>,
}

impl Claim {
    /// Checks a directory, and takes the lock of a run that continues. Changes nothing else.
    pub(in crate::run) fn new(dir: RunDir, resume: Resume) -> Result<Self> {
        let path = || dir.path().to_owned();
        let free = dir.is_free()?;
        Err(match (resume, dir.holds_run()?) {
            (Resume::Always, _) if free => RunError::Nothing(path()),
            (Resume::Never | Resume::IfThere, _) if free => return Ok(Self::of_new(dir)),
            (Resume::Never, false) => RunError::new(format!(
                "the folder {} is not empty, and what is in it is not a run: nothing was changed; name \
                 another with --run-dir DIR or --set train.name=NAME",
                dir.path().display()
            )),
            (Resume::IfThere | Resume::Always, false) => RunError::new(format!(
                "there is no run in {} to resume: the folder has no file run.json, so what is in it is not a \
                 run; nothing was changed",
                dir.path().display()
            )),
            (_, true) if dir.last()?.is_none() => return Self::of_lost(dir),
            (Resume::Never, true) => RunError::Exists(path()),
            (Resume::IfThere | Resume::Always, true) => return Self::of_run(dir),
        }
        .into())
    }

    /// The same in a process that does not lead: it takes no lock.
    pub(in crate::run) fn following(dir: RunDir, resume: Resume) -> Result<Self> {
        let resumes = resume != Resume::Never && dir.holds_run()?;
        let from = if resumes { dir.last()? } else { None };
        Ok(Self { from, ..Self::of_new(dir) })
    }

    fn of_new(dir: RunDir) -> Self {
        Self { dir, lock: None, begins_again: false, from: None, checkpoint: None }
    }

    /// For a run that was lost before its first checkpoint. Its first weights follow from the seed, so it
    /// begins again, with the same bits.
    fn of_lost(dir: RunDir) -> Result<Self> {
        let lock = Some(Lock::take(dir.path())?);
        if dir.had_checkpoint()? {
            return Err(RunError::NoCheckpoint(dir.path().to_owned()).into());
        }
        Ok(Self { lock, begins_again: true, ..Self::of_new(dir) })
    }

    fn of_run(dir: RunDir) -> Result<Self> {
        let lock = Some(Lock::take(dir.path())?);
        // A damaged `run.json` is refused here, before data is opened. Its contents are read when the run
        // begins.
        dir.best_so_far()?;
        let mut all = dir.checkpoints()?;
        let Some(newest) = all.pop() else {
            return Err(RunError::NoCheckpoint(dir.path().to_owned()).into());
        };
        let whole = Checkpoint::open(&newest).and_then(|checkpoint| checkpoint.verify().map(|_| checkpoint));
        match whole {
            Ok(checkpoint) => {
                Ok(Self { lock, from: Some(newest), checkpoint: Some(checkpoint), ..Self::of_new(dir) })
            }
            Err(source) => {
                let cure = match all.pop() {
                    Some(older) => format!(
                        "move the folder {} out of the run directory to continue from {}",
                        newest.display(),
                        older.display()
                    ),
                    None => "there is no earlier one: begin another run, without --resume and in another \
                         directory"
                        .to_owned(),
                };
                Err(RunError::because(format!("{source}; {cure}"), source).into())
            }
        }
    }

    /// For a run that goes on after the process was lost that held its lock. The system may take some time
    /// to release that.
    pub(in crate::run) fn again(dir: &RunDir, patience: Duration, interrupt: &Interrupt) -> Result<Self> {
        let until = Instant::now() + patience;
        loop {
            match Lock::take(dir.path()) {
                Err(Error::Run(error))
                    if matches!(*error, RunError::InUse { .. })
                        && Instant::now() < until
                        && !interrupt.is_requested() =>
                {
                    thread::sleep(PAUSE);
                }
                lock => {
                    return Ok(Self { lock: Some(lock?), begins_again: true, ..Self::of_new(dir.clone()) });
                }
            }
        }
    }

    /// Whether it begins a run again that was lost before its first checkpoint.
    pub(in crate::run) fn begins_again(&self) -> bool {
        self.begins_again
    }

    /// The folder of the checkpoint to continue from. `None` for a new run.
    pub(in crate::run) fn from(&self) -> Option<&Path> {
        self.from.as_deref()
    }

    /// The checkpoint to continue from, in the process that leads.
    pub(in crate::run) fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// The lock. The directory of a new run is made for it.
    pub(super) fn lock(self) -> Result<Lock> {
        if let Some(lock) = self.lock {
            return Ok(lock);
        }
        let dir = self.dir;
        fs::create_dir_all(dir.path()).map_err(Error::io("create", dir.path()))?;
        let lock = Lock::take(dir.path())?;
        // Another run may have begun and ended here since the directory was checked.
        match dir.is_free()? {
            true => Ok(lock),
            false => Err(RunError::Exists(dir.path().to_owned()).into()),
        }
    }
}
