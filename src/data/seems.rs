//! What a text seems to be, by its name and its first bytes.

use std::path::Path;

use serde::de::IgnoredAny;

/// The fewest lines, each with as many separators, that seem to be a table.
const ROWS: usize = 3;

/// The fewest separators in each line of a table without a table's name.
const SEPARATORS: usize = 2;

/// Whether it seems to be records of JSON: lines, or one list.
pub(super) fn records(extension: Option<&str>, start: &[u8]) -> bool {
    if matches!(extension, Some("jsonl" | "ndjson")) {
        return true;
    }
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let object = match start.strip_prefix(b"[") {
        Some(rest) => rest.trim_ascii_start(),
        None => start,
    };
    let Some(rest) = object.strip_prefix(b"{") else {
        return false;
    };
    if extension == Some("json") || object.len() < start.len() {
        return rest.trim_ascii_start().starts_with(b"\"");
    }
    match start.iter().position(|&byte| byte == b'\n') {
        Some(end) => serde_json::from_slice::<IgnoredAny>(&start[..end]).is_ok(),
        // The first line is longer than what was looked at, or the only one.
        None => rest.trim_ascii_start().starts_with(b"\""),
    }
}

/// Whether it seems to be a table of cells with commas or tabs between them.
pub(super) fn table(extension: Option<&str>, start: &[u8]) -> bool {
    if matches!(extension, Some("csv" | "tsv")) {
        return true;
    }
    let lines: Vec<_> = start.split_inclusive(|&byte| byte == b'\n').take(ROWS).collect();
    let is_table = |separator: u8| {
        let count = |line: &&[u8]| line.iter().filter(|&&byte| byte == separator).count();
        let counts: Vec<_> = lines.iter().map(count).collect();
        counts[0] >= SEPARATORS && counts.iter().all(|count| *count == counts[0])
    };
    lines.len() == ROWS && lines[ROWS - 1].ends_with(b"\n") && [b',', b'\t'].into_iter().any(is_table)
}

/// What a name ends in, in small letters, without the `.gz` of a packed file.
pub(super) fn extension(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    name.rsplit_once('.').map(|(_, extension)| extension.to_owned())
}
