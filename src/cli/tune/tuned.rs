//! The config with the settings found.

use std::path::Path;

use toml::Value;

use super::Args;
use super::grid::Found;
use crate::config::Config;
use crate::{Error, Result};

/// Writes the config, and beside it the costs that its settings were found by. It is the given file with other keys in
/// `[pipeline]`, comments and all; where that would not say the same, all keys are written.
pub(super) fn write(found: &Found, args: &Args, out: &Path) -> Result<()> {
    let costs = out.with_extension("costs.json");
    found.measured_costs.write(&costs)?;
    let mut config = found.config.clone();
    config.pipeline.costs = Some(costs);
    let whole = config.resolved_toml()?;
    let given = std::fs::read_to_string(&args.config).map_err(Error::io("read", &args.config))?;
    let edited = edit(&given, &whole);
    let same = Config::parse("tuned", &edited, &[], &[])
        .and_then(|config| config.resolved_toml())
        .is_ok_and(|text| text == whole);
    let text = if same { edited } else { whole };
    std::fs::write(out, text).map_err(Error::io("write", out))
}

/// A config file with the `[pipeline]` keys of another; single lines only.
fn edit(given: &str, wanted: &str) -> String {
    let table: toml::Table = wanted.parse().unwrap_or_default();
    let pipeline = table
        .get("pipeline")
        .and_then(Value::as_table)
        .cloned()
        .unwrap_or_default();
    let keys: Vec<String> = pipeline
        .iter()
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect();
    let mut text = String::new();
    let mut inside = false;
    for line in given.lines() {
        let start = line.trim_start();
        if start.starts_with('[') && start.contains(']') && !start.contains('=') {
            inside = start.starts_with("[pipeline]");
            text += &format!("{line}\n");
            if inside {
                text += &keys.concat();
            }
            continue;
        }
        if !inside || start.is_empty() || start.starts_with('#') {
            text += &format!("{line}\n");
        }
    }
    text
}
