//! Files and folders that appear whole under their names, or not at all, and survive a power failure.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::system::sync_folder;
use crate::{Error, Result};

/// Writes a file under another name, waits until the disk has it, and renames it. After a failure an old file
/// is still whole.
///
/// # Errors
/// [`Error::Io`] when the system refuses.
pub fn write(path: &Path, text: &str) -> Result<()> {
    make(path, |file| file.write_all(text.as_bytes())).map(drop)
}

/// The same, if there is no such file. Returns whether there was none. Of several processes that write it at
/// once, one finds none.
///
/// # Errors
/// As for [`write`].
pub(crate) fn write_new(path: &Path, text: &str) -> Result<bool> {
    let mut own = partial(path).into_os_string();
    own.push(format!(".{}", getrandom::u32().unwrap_or_else(|_| std::process::id())));
    let own = PathBuf::from(own);
    write(&own, text)?;
    let linked = fs::hard_link(&own, path);
    // What is left of it would harm nobody.
    let _ = fs::remove_file(&own);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        linked => linked.map(|()| true).map_err(Error::io("write", path)),
    }
}

/// The same as [`write`] for a file that `fill` writes. Returns it, still open.
///
/// # Errors
/// As for [`write`].
pub(crate) fn make(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<File> {
    let partial = partial(path);
    let write = || {
        let mut file = File::create(&partial)?;
        fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        sync_folder(parent(path))?;
        Ok(file)
    };
    write().map_err(|error| {
        // The user is told why the file could not be written. A failure here would only hide that.
        let _ = fs::remove_file(&partial);
        Error::io("write", path)(error)
    })
}

/// Makes a folder that does not exist yet. `fill` makes it under another name, which it is given, with all
/// its files. Then it is renamed. After a failure nothing is left.
///
/// # Errors
/// What `fill` returns, and [`Error::Io`] when the system refuses.
pub fn folder<T, E: From<Error>>(path: &Path, fill: impl FnOnce(&Path) -> Result<T, E>) -> Result<T, E> {
    let partial = partial(path);
    if partial.exists() {
        // A killed process has left it.
        fs::remove_dir_all(&partial).map_err(Error::io("remove", &partial))?;
    }
    let rename = || {
        for entry in fs::read_dir(&partial)? {
            File::open(entry?.path())?.sync_all()?;
        }
        sync_folder(&partial)?;
        fs::rename(&partial, path)?;
        sync_folder(parent(path))
    };
    fill(&partial)
        .and_then(|filled| {
            rename().map_err(Error::io("make", path))?;
            Ok(filled)
        })
        .inspect_err(|_| {
            // What failed is told, and not that something of it is left.
            let _ = fs::remove_dir_all(&partial);
        })
}

/// The path under which a file or folder is written before it is renamed. It is always the same. So the next
/// write replaces what a killed process has left.
pub fn partial(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial"))
}

/// The folder that a path is in.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_half_way_is_not_there_and_what_was_there_stays() {
        let place = tempfile::tempdir().expect("a folder");
        let (file, model) = (place.path().join("file"), place.path().join("model"));
        write(&file, "old").expect("written");
        make(&file, |half| {
            half.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .expect_err("the disk is full");
        assert_eq!(fs::read_to_string(&file).expect("it is whole"), "old");
        let half = |folder: &Path| -> Result<()> {
            fs::create_dir(folder).expect("made");
            fs::write(folder.join("half"), "of it").expect("written");
            Ok(())
        };
        let full = |path: &Path| -> Result<()> {
            half(path)?;
            Err(Error::io("write", path)(io::ErrorKind::StorageFull.into()))
        };
        folder(&model, full).expect_err("the disk is full");
        let names = |at: &Path| fs::read_dir(at).expect("it is there").count();
        assert_eq!(names(place.path()), 1);
        // As a process leaves it that is killed.
        half(&partial(&model)).expect("made");
        folder(&model, half).expect("made");
        assert_eq!([names(place.path()), names(&model)], [2, 1]);
    }
}
