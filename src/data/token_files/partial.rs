//! A file that gets its name when it is complete.

use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};

use crate::data::file::is_there;
use crate::error::{Error, Result};

/// How the name of a file ends until it is complete.
const END: &str = ".partial";

/// A file that gets its name when it is complete. Until then it is locked: one that is not was left by a
/// process that ended.
#[derive(Debug)]
pub(super) struct Partial {
    to: PathBuf,
    path: PathBuf,
    /// `None` once all is written.
    writer: Option<BufWriter<File>>,
    /// For its lock.
    _file: File,
}

impl Partial {
    /// Begins a file, and removes what killed processes have left of the same one.
    pub(in crate::data) fn create(to: &Path) -> Result<Self> {
        let name = to.file_name().unwrap_or_default().to_string_lossy();
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        remove_left(folder.unwrap_or(Path::new(".")), |left| left == name);
        let path = to.with_file_name(format!(".{name}.{}{END}", std::process::id()));
        let failed = Error::io("write", &path);
        let locked = locked(&path).and_then(|file| Ok((file.try_clone()?, file)));
        let (file, lock) = locked.map_err(failed)?;
        Ok(Self {
            to: to.to_owned(),
            path,
            writer: Some(BufWriter::with_capacity(1 << 18, file)),
            _file: lock,
        })
    }

    /// Adds bytes.
    pub(in crate::data) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        writer.write_all(bytes).map_err(Error::io("write", &self.to))
    }

    /// Writes what is buffered, and waits until it is on the disk.
    pub(super) fn complete(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let file = writer.into_inner().map_err(IntoInnerError::into_error);
        let synced = file.and_then(|file| file.sync_all());
        synced.map_err(Error::io("write", &self.to))
    }

    /// Gives the complete file its name.
    pub(in crate::data) fn name(&self) -> Result<()> {
        fs::rename(&self.path, &self.to).map_err(Error::io("write", &self.to))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a success there is nothing of this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// A new file, locked where the file system has locks.
fn locked(path: &Path) -> std::io::Result<File> {
    loop {
        let file = File::create(path)?;
        let lock = file.try_lock();
        // Another process may have taken it for one that was left, and removed it.
        if !matches!(lock, Err(TryLockError::WouldBlock)) && is_there(&file, path) {
            return Ok(file);
        }
    }
}

/// Removes what killed processes have left in a folder of the files with these names.
pub(in crate::data) fn remove_left(folder: &Path, of: impl Fn(&str) -> bool) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let target = name.to_str().and_then(target);
        if target.is_some_and(&of)
            && let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The name that a partial file will get.
fn target(partial: &str) -> Option<&str> {
    let (name, process) = partial.strip_prefix('.')?.strip_suffix(END)?.rsplit_once('.')?;
    process.bytes().all(|byte| byte.is_ascii_digit()).then_some(name)
}
