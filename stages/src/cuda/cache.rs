//! Files that are kept between runs.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::{env, fs, io, process};

/// The folder for files that are kept between runs: `pipewright` in the user's cache folder. `None` if the
/// user has no such folder.
pub fn cache_folder() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let cache =
        cache.map(PathBuf::from).or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))?;
    Some(cache.join("pipewright"))
}

/// Writes a file of that folder: first a temporary one, which is then renamed, so that no other run reads
/// half a file. Runs of several hosts may share the folder.
pub(crate) fn keep(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().expect("a file in a folder");
    fs::create_dir_all(folder)?;
    let random = RandomState::new().hash_one(process::id());
    let partial = file.with_extension(format!("{random:016x}.partial"));
    fs::write(&partial, bytes)?;
    fs::rename(partial, file)
}
