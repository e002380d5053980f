//! Where CUDA's libraries may be.

use std::env;
use std::path::{Path, PathBuf};

/// The folders that may have some, the most likely first: the toolkit that a variable names, Python's
/// packages, the toolkit's default folder.
pub(super) fn places() -> Vec<PathBuf> {
    let toolkit = |root: PathBuf| root.join("lib64");
    let named = folder_of("CUDA_HOME").map(toolkit);
    let packages = pythons().into_iter().flat_map(|prefix| of_python(&prefix));
    let usual = toolkit("/usr/local/cuda".into());
    named.into_iter().chain(packages).chain([usual]).collect()
}

/// The folders of installed Pythons: each contains `lib/python3*`.
fn pythons() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = folder_of("VIRTUAL_ENV").into_iter().collect();
    if let Some(python) = python_on_path() {
        let real = python.canonicalize().ok();
        let both = [Some(python), real].into_iter().flatten();
        prefixes.extend(both.filter_map(|python| Some(python.parent()?.parent()?.to_owned())));
    }
    let home = folder_of("HOME");
    let pyenv = folder_of("PYENV_ROOT").or_else(|| Some(home.as_ref()?.join(".pyenv")));
    if let Some(pyenv) = pyenv {
        prefixes.extend(inside(&pyenv.join("versions"), ""));
    }
    prefixes.extend(home.map(|home| home.join(".local")));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    prefixes
}

fn folder_of(variable: &str) -> Option<PathBuf> {
    let value = env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// The `python3` that a shell would run.
fn python_on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let mut files = env::split_paths(&path).map(|folder| folder.join("python3"));
    files.find(|file| file.is_file())
}

/// The folders of NVIDIA's packages in a Python: `lib/python3*/{site,dist}-packages/nvidia/*/lib`.
fn of_python(prefix: &Path) -> Vec<PathBuf> {
    let versions = inside(&prefix.join("lib"), "python3").into_iter();
    let packages = versions.flat_map(|python| {
        ["site-packages", "dist-packages"].map(|folder| python.join(folder).join("nvidia"))
    });
    let packages = packages.flat_map(|nvidia| inside(&nvidia, ""));
    packages.map(|package| package.join("lib")).collect()
}

/// The entries of a folder whose names have this start, sorted by name. Empty if there is no such folder.
fn inside(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let mut paths: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
