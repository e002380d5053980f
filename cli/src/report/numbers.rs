//! Numbers as people read them.

use pipewright::stages::units::in_words;

/// A number to about four digits.
pub(super) fn rounded(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e6.. => format!("{:.3}M", value / 1e6),
        1e4.. => format!("{:.1}k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1e-3.. => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}

/// A whole number with its thousands apart: `1,000,000`.
pub(super) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(|group| String::from_utf8_lossy(group)).collect();
    groups.join(",")
}

/// A share as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Seconds as a duration: `12.3 s`, `4 min 5 s`, `3 h 20 min`.
pub(super) fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 if seconds < 1.0 => format!("{:.1} ms", 1e3 * seconds),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Bytes with their unit.
pub(super) fn bytes(bytes: f64) -> String {
    in_words(bytes)
}
