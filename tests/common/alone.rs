//! For a program whose tests count the memory of the whole process: its tests run one at a time.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A test begins with this: whatever its thread allocates before, the test that runs would count.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_test_of_this_program_begins_alone() {
    let _alone = alone();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(env!("CARGO_CRATE_NAME"));
    for file in std::fs::read_dir(folder).expect("the program's folder") {
        let path = file.expect("an entry").path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let tests = text.split("#[test]\n").skip(1);
        let others = tests.filter(|test| test.lines().nth(1) != Some("    let _alone = alone();"));
        let names: Vec<_> = others.filter_map(|test| test.lines().next()).collect();
        assert!(names.is_empty(), "{}: {names:?}", path.display());
    }
}
