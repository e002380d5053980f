//! When a stall is told.

use pipewright_cli::config::{Auto, WarnOfStall};

use super::*;

#[test]
fn a_stall_is_told_after_seconds_or_by_the_times_seen_and_after_no_other_time() {
    for (value, stall_warning) in [
        ("'auto'", WarnOfStall::Named(Auto::Auto)),
        ("0", WarnOfStall::Seconds(0.0)),
        ("2.5", WarnOfStall::Seconds(2.5)),
    ] {
        let config = parse(&format!("[pipeline]\nstall_warning = {value}")).unwrap();
        assert_eq!(config.pipeline.stall_warning, stall_warning);
    }
    all_refused(&[
        (
            "[pipeline]\nstall_warning = 'soon'",
            &["pipeline.stall_warning: expected \"auto\" or seconds (0 for never), got \"soon\""],
        ),
        (
            "[pipeline]\nstall_warning = -1",
            &["pipeline.stall_warning: ", "it must be 0 (never) or more seconds, up to a year"],
        ),
        ("[pipeline]\nstall_warning = 1e300", &["up to a year"]),
        ("[pipeline]\nstall_warning = nan", &["up to a year"]),
    ]);
}
