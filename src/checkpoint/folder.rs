//! The folder of a checkpoint: what may be replaced, how a new one takes its place, and how one is removed.
//!
//! Only files with a checkpoint's names are ever removed, one by one, and folders only when they are empty.
//! So the files of others stay, whatever happens.

use std::fmt::Display;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::lock::Lock;
use super::state::State;
use crate::error::{CheckpointError, Error, Result};
use crate::system;
use crate::whole::parent;

/// The weights.
pub(super) const MODEL: &str = "model.safetensors";
/// The optimizer's tensors.
pub(super) const OPTIMIZER: &str = "optimizer.safetensors";
/// The description.
pub(super) const STATE: &str = "state.json";
/// The hidden folder in which a checkpoint is written, or removed.
pub(super) const PARTIAL: &str = "partial";
/// The hidden folder in which the old checkpoint waits while the new one takes its place.
pub(super) const ASIDE: &str = "old";

/// What is at a path.
enum Existing {
    Nothing,
    Empty,
    /// Files of a checkpoint and nothing else.
    Ours {
        /// Whether the description is there.
        described: bool,
    },
    Other(String),
}

/// The hidden folder with this suffix, beside a checkpoint's folder.
pub(super) fn beside(place: &Path, suffix: &str) -> PathBuf {
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    place.with_file_name(format!(".{name}.{suffix}"))
}

/// The step in a folder's name: `step-` and at least eight digits, as runs name their checkpoints.
pub fn named_step(folder: &Path) -> Option<u64> {
    let digits = folder.file_name()?.to_str()?.strip_prefix("step-")?;
    let all_digits = digits.len() >= 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten()
}

/// Refuses a checkpoint if its folder's name gives another step.
pub(super) fn check_named(folder: &Path, step: u64) -> Result<()> {
    match named_step(folder) {
        Some(named) if named != step => {
            let folder = folder.display();
            Err(CheckpointError::new(format!(
                "{folder}: the folder's name says step {named}, the checkpoint is of step {step}"
            ))
            .into())
        }
        _ => Ok(()),
    }
}

/// Refuses a path at which a checkpoint must not be saved: the path, and the hidden folders beside it, may
/// only hold parts of a checkpoint. Touches nothing.
pub(super) fn check_place(place: &Path) -> Result<()> {
    if place.file_name().is_none() {
        return Err(not_ours(place, "names no folder of its own"));
    }
    replaceable(place)?;
    check_litter(&beside(place, ASIDE))?;
    check_litter(&beside(place, PARTIAL)).map(|_| ())
}

/// Removes a checkpoint, if it is there. If the process is killed meanwhile, the checkpoint is whole, or its
/// remains are in a hidden folder that [`tidy`] removes. It is never half removed.
///
/// # Errors
/// [`CheckpointError`] for a folder that holds anything else: it is left untouched. [`Error::Io`].
pub fn remove(folder: &Path) -> Result<()> {
    check_place(folder)?;
    let (aside, partial) = (beside(folder, ASIDE), beside(folder, PARTIAL));
    // Without this, the old checkpoint in the hidden folder would be found in place of the removed one.
    clear(&aside)?;
    if !replaceable(folder)? {
        return Ok(());
    }
    clear_unused(&partial)?;
    rename("remove", folder, &partial)?;
    clear(&partial)
}

/// Cleans up a folder of checkpoints after saves and removals that were killed. If a checkpoint was about to
/// be replaced, it is put back. Files that are not part of a checkpoint stay. So does a checkpoint that is
/// being written.
///
/// # Errors
/// [`Error::Io`].
pub fn tidy(checkpoints: &Path) -> Result<()> {
    for entry in fs::read_dir(checkpoints).map_err(Error::io("list", checkpoints))? {
        let entry = entry.map_err(Error::io("list", checkpoints))?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let hidden = |suffix: &str| name.strip_prefix('.')?.strip_suffix(suffix)?.strip_suffix('.');
        let waiting = hidden(ASIDE).map(|name| checkpoints.join(name));
        if (waiting.is_none() && hidden(PARTIAL).is_none()) || check_litter(&path).is_err() {
            continue;
        }
        match waiting.filter(|place| !place.exists()) {
            None if Lock::take(&path).is_err() => {}
            None => clear(&path)?,
            Some(place) if path.join(STATE).exists() => rename("put back", &path, &place)?,
            // Perhaps the only copy of some tensors, without their description. It stays.
            Some(_) => {}
        }
    }
    Ok(())
}

/// Renames the new checkpoint's folder to `place`. An old checkpoint is first renamed to a hidden folder. If
/// the process is killed between the two renames, [`Checkpoint::open`] finds the old one there.
///
/// [`Checkpoint::open`]: super::Checkpoint::open
pub(super) fn replace(place: &Path) -> Result<()> {
    check_place(place)?;
    let (aside, partial) = (beside(place, ASIDE), beside(place, PARTIAL));
    sync(&partial)?;
    if replaceable(place)? {
        clear(&aside)?;
        rename("replace", place, &aside)?;
    }
    if let Err(error) = rename("rename into place", &partial, place) {
        // If this fails too, the old checkpoint is still found in its hidden folder.
        let _ = fs::rename(&aside, place);
        return Err(error);
    }
    clear(&aside)
}

/// Makes the hidden folder in which the checkpoint of this path is written.
///
/// # Errors
/// As for [`check_place`], and [`CheckpointError`] when another program is saving there.
pub(super) fn begin(place: &Path) -> Result<Lock> {
    check_place(place)?;
    let partial = beside(place, PARTIAL);
    clear_unused(&partial)?;
    let folder = parent(place);
    let mut missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    // Each new folder is an entry in its parent folder. That entry must reach the disk too.
    while let Some(made) = missing.pop() {
        sync(parent(made))?;
    }
    match fs::create_dir(&partial) {
        // Another program has just made it. One of the two gets the lock.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made.map_err(Error::io("create", &partial))?,
    }
    Lock::take(&partial)
}

/// Removes what a killed save or removal has left in a hidden folder. Refuses a folder that is being written.
fn clear_unused(litter: &Path) -> Result<()> {
    if !check_litter(litter)? {
        return Ok(());
    }
    let _lock = Lock::take(litter)?;
    clear(litter)
}

/// Removes the remains of a checkpoint in a hidden folder. The description goes first: if the process is
/// killed, what is left cannot be taken for a checkpoint.
pub(super) fn clear(litter: &Path) -> Result<()> {
    if !check_litter(litter)? {
        return Ok(());
    }
    for name in [STATE, MODEL, OPTIMIZER] {
        match fs::remove_file(litter.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove", litter.join(name))(error));
            }
            _ => {}
        }
    }
    fs::remove_dir(litter).map_err(Error::io("remove", litter))
}

/// Renames a folder to a free path beside it, and waits until the disk has it. The files in it have been
/// synced.
fn rename(what: &'static str, from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::io(what, from))?;
    sync(parent(from))
}

/// Whether a checkpoint, or an empty folder, is at this path. Refuses anything else.
fn replaceable(path: &Path) -> Result<bool> {
    match existing(path)? {
        Existing::Nothing => Ok(false),
        Existing::Empty => Ok(true),
        Existing::Ours { described: true } => check_described(path).map(|()| true),
        Existing::Ours { described: false } => {
            Err(not_ours(path, "is not a checkpoint: it has no `state.json`"))
        }
        Existing::Other(problem) => Err(not_ours(path, problem)),
    }
}

/// Refuses a folder whose `state.json` no version of this program has written. One that has changed since is
/// accepted: a damaged checkpoint may be replaced.
fn check_described(folder: &Path) -> Result<()> {
    let path = folder.join(STATE);
    let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
    match State::is_foreign(&path, &bytes) {
        true => Err(not_ours(folder, "is not a checkpoint: its `state.json` is not one of a checkpoint")),
        false => Ok(()),
    }
}

/// Whether a hidden folder with parts of a checkpoint is at this path. Refuses anything else.
fn check_litter(path: &Path) -> Result<bool> {
    match existing(path)? {
        Existing::Nothing => Ok(false),
        Existing::Empty | Existing::Ours { .. } => Ok(true),
        Existing::Other(problem) => Err(not_ours(path, problem)),
    }
}

fn existing(path: &Path) -> Result<Existing> {
    // The path itself: a symbolic link is not followed, since its target belongs to somebody else.
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Existing::Nothing),
        metadata => metadata.map_err(Error::io("read", path))?,
    };
    if !metadata.is_dir() {
        return Ok(Existing::Other("is not a folder".to_owned()));
    }
    let (mut empty, mut described) = (true, false);
    for entry in fs::read_dir(path).map_err(Error::io("list", path))? {
        let entry = entry.map_err(Error::io("list", path))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().map_err(Error::io("read", path))?.is_file();
        if !is_file || ![STATE, MODEL, OPTIMIZER].contains(&name.as_str()) {
            return Ok(Existing::Other(format!("is not a checkpoint: it holds `{name}`")));
        }
        empty = false;
        described |= name == STATE;
    }
    Ok(if empty { Existing::Empty } else { Existing::Ours { described } })
}

fn not_ours(path: &Path, problem: impl Display) -> Error {
    CheckpointError::new(format!(
        "{} {problem}; it is left as it is: name another folder for the checkpoint, or move this one away",
        path.display()
    ))
    .into()
}

/// Waits until the disk has a folder's entries.
pub(super) fn sync(folder: &Path) -> Result<()> {
    system::sync_folder(folder).map_err(Error::io("write", folder))
}
