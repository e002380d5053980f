//! CUDA's libraries where pip puts them, which is not where the system's loader looks.
//!
//! The loader reads `LD_LIBRARY_PATH` when a process starts, so a command that wants a GPU looks for what it lacks and starts itself
//! again, once, with the folders in that variable.

mod links;
mod places;

use std::cell::LazyCell;
use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use crate::config::Config;
use crate::stages::devices::Library;

/// Folders that come before all others.
const OWN: &str = "PIPEWRIGHT_CUDA_LIBS";

/// The id of a process that has started itself again.
const STARTED_AGAIN: &str = "PIPEWRIGHT_STARTED_AGAIN";

/// What the loader reads.
pub(super) const LOADER: &str = "LD_LIBRARY_PATH";

/// Starts the command again where the loader finds more of CUDA's libraries than it does here, and they are on the machine. Returns
/// where there is nothing to gain, so what a command has done before it does twice.
pub(super) fn enter() {
    if env::var_os(STARTED_AGAIN) == Some(std::process::id().to_string().into()) {
        return;
    }
    let own = folders(env::var_os(OWN).as_deref());
    let found = files(&own);
    if found.is_empty() {
        return;
    }
    let links = links::make(&found).map_err(|error| eprintln!("warning: {error}"));
    let mut path: Vec<PathBuf> = links.into_iter().chain(own).collect();
    for folder in found.iter().filter_map(|(_, file)| file.parent()) {
        if !path.iter().any(|known| known == folder) {
            path.push(folder.to_owned());
        }
    }
    path.extend(folders(env::var_os(LOADER).as_deref()));
    match env::join_paths(path) {
        Ok(path) => start_again(&path),
        Err(error) => eprintln!("warning: CUDA's libraries cannot be put into {LOADER}: {error}"),
    }
}

/// As [`enter`], where a config names a GPU.
pub(super) fn enter_for(config: &Config) {
    if config.pipeline.devices.has_gpu() {
        enter();
    }
}

/// The folders of a list of them.
fn folders(list: Option<&OsStr>) -> Vec<PathBuf> {
    let folders = env::split_paths(list.unwrap_or_default());
    folders.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The files of the libraries that are in these folders, or that the loader lacks or has too old and that are elsewhere.
fn files(own: &[PathBuf]) -> Vec<(Library, PathBuf)> {
    let elsewhere = LazyCell::new(places::places);
    let libraries = Library::ALL.into_iter();
    let found = libraries.filter_map(|library| {
        let file = file_in(own, library).or_else(|| {
            library.find().problem()?;
            file_in(&elsewhere, library)
        });
        Some((library, file?))
    });
    found.collect()
}

fn file_in(folders: &[PathBuf], library: Library) -> Option<PathBuf> {
    let mut files = folders.iter().map(|folder| folder.join(library.file()));
    let file = files.find(|file| file.is_file())?;
    std::path::absolute(file).ok()
}

/// Becomes the same command with this path for the loader.
#[cfg(unix)]
fn start_again(path: &OsStr) {
    use std::os::unix::process::CommandExt;

    let Ok(program) = env::current_exe() else {
        return;
    };
    let error = std::process::Command::new(program)
        .args(env::args_os().skip(1))
        .env(LOADER, path)
        .env(STARTED_AGAIN, std::process::id().to_string())
        .exec();
    eprintln!("warning: cannot start again with CUDA's libraries: {error}");
}

/// Other systems' loaders do not read the variable.
#[cfg(not(unix))]
fn start_again(_: &OsStr) {}
