//! Folders and what is in them.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::Path;

use pipewright::pretrained::{Weights, read_config};
use pipewright::stages::{Init, Parameter};
use tempfile::TempDir;

/// The names of what there is in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries.map(|entry| name(entry).into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// A copy of the files in a folder of the golden ones, of those without golden results.
pub(crate) fn copied(golden: &str) -> TempDir {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    let copy = TempDir::new().expect("a folder");
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("readable");
        if entry.file_name() != "golden.safetensors" && entry.path().is_file() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copied");
        }
    }
    copy
}

/// Reads all weights of a model's folder.
pub(crate) fn read_model(folder: &Path) -> pipewright::Result<()> {
    let architecture = read_config(folder)?;
    let weights = Weights::open(folder, &architecture)?;
    architecture.model()?;
    for mapped in architecture.table() {
        weights.read(&mut Parameter::new(mapped.name, &mapped.dims, Init::Zeros, 0))?;
    }
    Ok(())
}
