//! The config with the settings found.

use std::path::Path;

use toml::{Table, Value};

use super::Args;
use super::grid::Found;
use crate::config::Config;
use crate::plan::AUTO;
use crate::{Error, Result};

/// The keys that say what was found.
const FOUND: [&str; 8] = [
    "stages",
    "chunks",
    "schedule",
    "micro_batches",
    "micro_batch_size",
    "partition",
    "costs",
    "memory",
];

/// Writes the config, and beside it the costs that its settings were found by. It is the given file with other keys in
/// `[pipeline]`, comments and all; where that would not say the same, all keys are written.
pub(super) fn write(found: &Found, args: &Args, out: &Path) -> Result<()> {
    let costs = out.with_extension("costs.json");
    found.measured_costs.write(&costs)?;
    let mut config = found.config.clone();
    config.pipeline.costs = Some(costs);
    // A search has to have the limit that it had.
    let searched = (found.setting.schedule == AUTO).then_some(found.limit).flatten();
    config.pipeline.memory = args.memory.or(searched);
    let whole = config.resolved_toml()?;
    let given = std::fs::read_to_string(&args.config).map_err(Error::io("read", &args.config))?;
    let edited = edit(&given, &whole);
    let same = Config::parse("tuned", &edited, &[], &[])
        .and_then(|config| config.resolved_toml())
        .is_ok_and(|text| text == whole);
    let text = if same { edited } else { whole };
    std::fs::write(out, text).map_err(Error::io("write", out))
}

/// A config file with other keys in `[pipeline]`, each on one line; where the file has one, it stays in its place.
fn edit(given: &str, wanted: &str) -> String {
    let wanted: Table = wanted.parse().unwrap_or_default();
    let mut keys = match wanted.get("pipeline") {
        Some(Value::Table(keys)) => keys.clone(),
        _ => Table::new(),
    };
    let mut lines: Vec<String> = Vec::new();
    let mut end = None;
    let mut inside = false;
    for line in given.lines() {
        let start = line.trim_start();
        if start.starts_with('[') && !start.contains('=') {
            inside = start.starts_with("[pipeline]");
        }
        let key = line.split_once('=').map(|(key, _)| key.trim().to_owned());
        match key.filter(|_| inside && !start.starts_with('#')) {
            Some(key) => lines.extend(keys.remove(&key).map(|value| format!("{key} = {value}"))),
            None => lines.push(line.to_owned()),
        }
        if inside && !start.is_empty() {
            end = Some(lines.len());
        }
    }
    if end.is_none() {
        lines.extend([String::new(), "[pipeline]".to_owned()]);
    }
    let left = keys.iter().filter(|(key, _)| FOUND.contains(&key.as_str()));
    let left: Vec<String> = left.map(|(key, value)| format!("{key} = {value}")).collect();
    let end = end.unwrap_or(lines.len());
    lines.splice(end..end, left);
    lines.join("\n") + "\n"
}
