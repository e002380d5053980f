//! What a test says where it cannot run.

/// Says that something is not tested here, and why. With `PIPEWRIGHT_SKIPS=refused` that is a failure.
pub(crate) fn skipped(what: &str) {
    let refused = std::env::var_os("PIPEWRIGHT_SKIPS").is_some_and(|skips| skips == "refused");
    assert!(!refused, "not tested: {what}");
    println!("skipped: {what}");
}
