//! Finds CUDA's libraries where pip puts them. The system's loader does not look there.
//!
//! The loader reads `LD_LIBRARY_PATH` when a process starts. So a command that needs a GPU looks for missing
//! libraries and restarts itself once, with their folders in that variable.

mod folder;
mod places;

use std::cell::LazyCell;
use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

use crate::config::Config;
use pipewright::stages::devices::Library;
use pipewright::system;

/// The user's variable: folders to search first.
const OWN: &str = "PIPEWRIGHT_CUDA_LIBS";

/// Set in a process that has restarted itself: its id.
const STARTED_AGAIN: &str = "PIPEWRIGHT_STARTED_AGAIN";

/// The variable that the loader reads.
pub(super) const LOADER: &str = "LD_LIBRARY_PATH";

/// Restarts the command if the machine has CUDA libraries that the loader does not find. Returns otherwise.
/// After a restart the command runs again from its start, so call this early.
pub(super) fn enter() {
    if env::var_os(STARTED_AGAIN) == Some(std::process::id().to_string().into()) {
        return;
    }
    let own = folders(env::var_os(OWN).as_deref());
    let found = files(&own);
    if found.is_empty() {
        return;
    }
    let links = folder::make(&found).map_err(|error| eprintln!("warning: {error}"));
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

/// As [`enter`], if a config names a GPU.
pub(super) fn enter_for(config: &Config) {
    if config.pipeline.devices.has_gpu() {
        enter();
    }
}

/// The folders in a variable that lists several.
fn folders(list: Option<&OsStr>) -> Vec<PathBuf> {
    let folders = env::split_paths(list.unwrap_or_default());
    folders.filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The libraries' files in these folders. If the loader lacks a library or has a version that is too old:
/// also its file elsewhere.
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

/// Replaces this process by the same command, with this path for the loader.
fn start_again(path: &OsStr) {
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut command = Command::new(program);
    command.args(env::args_os().skip(1)).env(LOADER, path).env(STARTED_AGAIN, std::process::id().to_string());
    let error = system::become_program(&mut command);
    eprintln!("warning: cannot restart with CUDA's libraries: {error}");
}
