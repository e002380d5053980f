//! Sizes of memory, as people write them.

/// The units and their bytes; a name that ends like another stands before it.
const UNITS: [(&str, f64); 7] = [
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

/// A number of bytes, such as `200MiB`, `1.5 GiB` or `1000000`.
pub(super) fn parse_bytes(text: &str) -> Result<f64, String> {
    let (number, unit) = UNITS
        .iter()
        .find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)))
        .unwrap_or((text, 1.0));
    let number: Option<f64> = number.trim().parse().ok();
    number
        .map(|number| number * unit)
        .filter(|bytes| bytes.is_finite() && *bytes > 0.0)
        .ok_or_else(|| "give a size above 0 such as 200MiB, 1.5GiB or 1000000".to_owned())
}

/// Bytes for people.
pub(super) fn in_words(bytes: f64) -> String {
    let (name, unit) = UNITS[..3]
        .iter()
        .rev()
        .find(|(_, unit)| bytes >= *unit)
        .unwrap_or(&UNITS[0]);
    format!("{:.2} {name}", bytes / unit)
}
