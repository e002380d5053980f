//! Folders that inputs are written into, and inputs that are kept.

use super::*;

/// Where inputs are kept that fail.
pub(crate) fn kept() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// The inputs that failed once: they are tried again first.
pub(crate) fn found_before(target: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(here("tests/fuzz/found").join(target)) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths.iter().map(|path| contents(path)).collect()
}

pub(crate) fn contents(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("written");
}
