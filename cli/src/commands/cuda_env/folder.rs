//! A folder of symbolic links to libraries, under the names that are tried first. So no other version is
//! loaded before them, and NCCL is found at all: its file is `libnccl.so.2`, a name that is not tried
//! otherwise.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use crate::{Error, Result};
use pipewright::stages::devices::{Library, cache_folder};
use pipewright::system;

/// Makes a folder of symbolic links to these files in the user's cache. The same files always give the same
/// folder.
pub(super) fn make(files: &[(Library, PathBuf)]) -> Result<PathBuf> {
    let cache = cache_folder().ok_or_else(|| {
        Error::refused("no folder for symbolic links to CUDA's libraries: set HOME or XDG_CACHE_HOME")
    })?;
    let mut hash = DefaultHasher::new();
    files.iter().for_each(|(_, file)| file.hash(&mut hash));
    let folder = cache.join(format!("libraries-{:016x}", hash.finish()));
    system::make_own_folder(&folder).map_err(Error::io("make", &folder))?;
    check_owner(&folder)?;
    for (library, file) in files {
        let name = library.file().split_inclusive(".so").next().unwrap_or_default();
        link(file, &folder.join(name))?;
    }
    Ok(folder)
}

/// Refuses a folder into which somebody else could put a library.
fn check_owner(folder: &Path) -> Result<()> {
    let facts = folder.metadata().map_err(Error::io("read", folder))?;
    if system::others_may_write(&facts) {
        return Err(Error::refused(format!(
            "{}: others can write there, so no libraries are loaded from it: remove it",
            folder.display()
        )));
    }
    Ok(())
}

/// Makes a symbolic link, unless it is there. Several processes may do so at once: each makes its own and
/// renames it.
fn link(to: &Path, at: &Path) -> Result<()> {
    if at.read_link().is_ok_and(|known| known == to) {
        return Ok(());
    }
    let own = at.with_extension(format!("{}", std::process::id()));
    let _ = std::fs::remove_file(&own);
    system::link(to, &own).and_then(|()| std::fs::rename(&own, at)).map_err(Error::io("make", at))
}
