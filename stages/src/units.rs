//! Bytes in the units that people read, and counts.

/// The units and their bytes, the largest first.
const UNITS: [(&str, f64); 5] = [
    ("TiB", 1_099_511_627_776.0),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1024.0),
    ("B", 1.0),
];

/// A count with its noun: `1 step`, `2 steps`.
pub fn counted(count: u64, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// The largest unit that is at most `bytes`, and its number of bytes.
pub fn byte_unit(bytes: f64) -> (&'static str, f64) {
    let fits = |unit: &&(&str, f64)| bytes >= unit.1;
    *UNITS.iter().find(fits).unwrap_or(&UNITS[UNITS.len() - 1])
}

/// A number of bytes as people write it: `1.50 GiB`, `512 B`.
pub fn in_words(bytes: f64) -> String {
    let (name, unit) = byte_unit(bytes);
    let decimals = if unit > 1.0 { 2 } else { 0 };
    format!("{:.decimals$} {name}", bytes / unit)
}
