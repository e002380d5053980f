//! Writes the config with the chosen settings.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, RawString, TableLike};

use super::grid::Found;
use super::search::{CostsOf, Search};
use super::variant;
use crate::commands::out::{Out, Replace};
use crate::config::Config;
use crate::{Error, Result};
use pipewright::mesh::Map;
use pipewright::plan::AUTO;
use pipewright::stages::optimizer::StateFormat;
use pipewright::stages::{DType, Device, WireFormat};

/// The keys of `[pipeline]` that are chosen. They are written if the given config does not have them.
const FOUND: [&str; 8] =
    ["stages", "chunks", "schedule", "micro_batches", "micro_batch_size", "partition", "costs", "memory"];

/// The files that `--out` asks for.
#[derive(Debug)]
pub(super) struct Tuned {
    config: Out,
    costs: Out,
    costs_path: PathBuf,
}

impl Tuned {
    /// Refuses files that cannot be written, before anything is measured. An existing config is never
    /// replaced: it may be the given one.
    pub(super) fn check(out: &Path) -> Result<Self> {
        let costs_path = out.with_extension("costs.json");
        Ok(Self {
            config: Out::check(out, Replace::Nothing)?,
            costs: Out::check(&costs_path, Replace::Costs)?,
            costs_path,
        })
    }

    /// Writes the config, and beside it the costs that were used to find its settings. The config is the text
    /// of the `given` file, with its comments and with new values in `[pipeline]`. If that text would mean
    /// something else, the config has all keys.
    pub(super) fn write(&self, found: &Found, given: &Path, search: &Search) -> Result<()> {
        self.costs.write(&found.measured_costs.to_json())?;
        let mut config = found.config.clone();
        config.pipeline.costs = Some(self.costs_path.clone());
        // The config with a searched schedule needs the memory limit of the search.
        let searched = (found.setting.schedule == AUTO).then_some(found.limit).flatten();
        config.pipeline.memory = search.memory.or(searched);
        if let CostsOf::Figures(_) = search.costs {
            // Each host counts its own.
            let world = config.pipeline.devices.0.len() as u32;
            let each = world.div_ceil(search.links.hosts());
            config.pipeline.devices.0 = (0..world).map(|rank| Device::Cuda(rank % each)).collect();
        }
        let resolved = config.resolved_toml()?;
        let given = std::fs::read_to_string(given).map_err(Error::io("read", given))?;
        let says_the_same = |text: &String| {
            Config::parse("tuned", text, &[], &[])
                .and_then(|config| config.resolved_toml())
                .is_ok_and(|text| text == resolved)
        };
        let edited = edit(&given, &resolved, &found.config).filter(says_the_same);
        self.config.write(&edited.unwrap_or(resolved))
    }
}

/// The text of a config, with the values of the sections replaced that have chosen keys. Comments and the
/// order of keys stay. If a key is removed, the comments above it move to the next key. `None` if one of the
/// texts is not TOML or has another form.
fn edit(given: &str, wanted: &str, found: &Config) -> Option<String> {
    let mut given: DocumentMut = given.parse().ok()?;
    let mut wanted: DocumentMut = wanted.parse().ok()?;
    let mut chosen = FOUND.to_vec();
    if found.pipeline.replicas > 1 {
        chosen.extend(["replicas", "gradient_groups"]);
    }
    if found.pipeline.shards > 1 {
        chosen.extend(["shards", "shard_groups"]);
    }
    if found.pipeline.dtype != DType::default() {
        chosen.push("dtype");
    }
    if found.pipeline.wires != WireFormat::default() {
        chosen.push("wires");
    }
    if found.pipeline.sums != DType::default() {
        chosen.push("sums");
    }
    if found.pipeline.devices.has_gpu() {
        chosen.push("devices");
    }
    if variant::recompute_word(found) != variant::USUAL {
        chosen.push("recompute");
    }
    if found.pipeline.offload.is_some() {
        chosen.push("offload");
    }
    edit_section(&mut given, &mut wanted, "pipeline", &chosen)?;
    let of_optimizer = [
        ("sharded", found.optimizer.sharded),
        ("state", found.optimizer.state != StateFormat::default()),
        ("state_on_host", found.optimizer.state_on_host),
    ];
    let chosen: Vec<&str> = of_optimizer.iter().filter(|(_, is)| *is).map(|(key, _)| *key).collect();
    if !chosen.is_empty() {
        edit_section(&mut given, &mut wanted, "optimizer", &chosen)?;
    }
    if found.launch.map != Map::default() || given.contains_key("launch") {
        edit_section(&mut given, &mut wanted, "launch", &["map"])?;
    }
    Some(given.to_string())
}

fn edit_section(
    given: &mut DocumentMut,
    wanted: &mut DocumentMut,
    name: &str,
    chosen: &[&str],
) -> Option<()> {
    let wanted = wanted.get_mut(name)?.as_table_like_mut()?;
    let section = given.entry(name).or_insert(toml_edit::table());
    let section = section.as_table_like_mut()?;
    let mut comments = String::new();
    for key in names(section) {
        match wanted.remove(&key) {
            Some(value) => {
                replace(section.get_mut(&key)?, value);
                put_above(section, &key, &std::mem::take(&mut comments));
            }
            None => {
                comments += &above(section, &key);
                section.remove(&key);
            }
        }
    }
    for key in names(wanted).iter().filter(|key| chosen.contains(&key.as_str())) {
        section.insert(key, wanted.remove(key)?);
        put_above(section, key, &std::mem::take(&mut comments));
    }
    Some(())
}

fn names(table: &dyn TableLike) -> Vec<String> {
    table.iter().map(|(name, _)| name.to_owned()).collect()
}

/// Replaces a value, and keeps what is around it, such as a comment after it.
fn replace(item: &mut Item, new: Item) {
    let around = item.as_value().map(|old| old.decor().clone());
    *item = new;
    if let (Some(value), Some(around)) = (item.as_value_mut(), around) {
        *value.decor_mut() = around;
    }
}

/// The lines of comments above a key.
fn above(section: &dyn TableLike, key: &str) -> String {
    let prefix = section.key(key).and_then(|key| key.leaf_decor().prefix());
    prefix.and_then(RawString::as_str).unwrap_or_default().to_owned()
}

/// Puts lines of comments above a key, before the ones that it has.
fn put_above(section: &mut dyn TableLike, key: &str, comments: &str) {
    let all = comments.to_owned() + &above(section, key);
    if let Some(mut key) = section.key_mut(key).filter(|_| !comments.is_empty()) {
        key.leaf_decor_mut().set_prefix(all);
    }
}
