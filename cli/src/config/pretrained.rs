//! The keys of `[model]` that a folder's `config.json` decides.

use std::path::{Path, PathBuf};

use pipewright::stages::layers::{Rope, RopeScaling};
use pipewright::stages::models::{Gpt, Llama};
use toml::{Table, Value};

use super::tree::{Entry, Tree, is_stronger};
use crate::error::{ConfigError, Origin, Result};
use pipewright::pretrained::{
    ADAPTER_CONFIG, Architecture, Base, CONFIG, Family, OWN_CONFIG, TOKENIZER, is_own, own_config,
    read_adapters, read_config,
};

/// Keys that stay with the user when a folder decides the others.
const OWN: [&str; 4] = ["path", "dropout", "auxiliary", "seed"];

/// Adds what the folder of `model.path` decides: the keys of `[model]`, and its tokenizer, unless another is
/// given. Does nothing without that key, or if `model.kind` is given
/// by the same or a stronger source: then the config says it all, as the config of a run does.
pub(super) fn add(tree: &mut Tree) -> Result<()> {
    let Some(path) = tree.get("model", "path").cloned() else {
        return Ok(());
    };
    let kind = tree.get("model", "kind");
    if kind.is_some_and(|kind| !is_stronger(&path.origin, &kind.origin)) {
        return Ok(());
    }
    let Some(folder) = path.value.as_str().map(PathBuf::from) else {
        return Ok(());
    };
    let given: Vec<String> = tree.section("model").map(|(key, _)| key.to_owned()).collect();
    for key in given.iter().filter(|key| !OWN.contains(&key.as_str())) {
        let entry = tree.get("model", key).expect("just listed");
        if !is_stronger(&path.origin, &entry.origin) {
            return Err(ConfigError::OfFolder {
                origin: entry.origin.clone(),
                key: format!("model.{key}"),
                by: "model.path",
                folder,
            }
            .into());
        }
        tree.remove("model", key);
    }
    let (keys, file) = match is_own(&folder) {
        true => (own_keys(&folder)?, folder.join(OWN_CONFIG)),
        false => (keys(&read_config(&folder)?), folder.join(CONFIG)),
    };
    for (key, value) in keys {
        tree.insert("model", &key, entry(value, file.clone()));
    }
    let tokenizer = folder.join(TOKENIZER);
    if tree.get("data", "tokenizer").is_none() && tokenizer.is_file() {
        let value = Value::from(tokenizer.to_string_lossy().into_owned());
        tree.insert("data", "tokenizer", entry(value, folder.join(CONFIG)));
    }
    Ok(())
}

/// Adds what the folder of `lora.path` decides, unless all of that is given by the same or a stronger source:
/// then the config says it all, as the config of a run does.
pub(super) fn add_adapters(tree: &mut Tree) -> Result<()> {
    let Some(path) = tree.get("lora", "path").cloned() else {
        return Ok(());
    };
    let Some(folder) = path.value.as_str().map(PathBuf::from) else {
        return Ok(());
    };
    let keys = ["rank", "alpha", "dropout", "targets"];
    let given = keys.map(|key| (key, tree.get("lora", key)));
    let given = given.into_iter().filter_map(|(key, entry)| Some((key, entry?)));
    let given: Vec<_> = given
        .filter(|(_, entry)| !is_stronger(&path.origin, &entry.origin))
        .collect();
    match &given[..] {
        [_, _, _, _] => return Ok(()),
        [(key, entry), ..] => {
            return Err(ConfigError::OfFolder {
                origin: entry.origin.clone(),
                key: format!("lora.{key}"),
                by: "lora.path",
                folder,
            }
            .into());
        }
        [] => {}
    }
    let of_model = |key| tree.get("model", key).map(|entry| &entry.value);
    let blocks = of_model("layers").and_then(Value::as_integer).unwrap_or(1);
    let base = Base {
        kind: of_model("kind").and_then(Value::as_str).unwrap_or("gpt"),
        // Other numbers are refused when all keys are checked.
        blocks: blocks.clamp(1, 1000) as usize,
        tied: of_model("tied").and_then(Value::as_bool).unwrap_or(false),
    };
    let adapters = read_adapters(&folder, base)?;
    for (key, value) in [
        ("rank", Value::from(adapters.rank as i64)),
        ("alpha", Value::from(adapters.alpha)),
        ("dropout", Value::from(adapters.dropout)),
        ("targets", Value::from(adapters.targets)),
    ] {
        tree.insert("lora", key, entry(value, folder.join(ADAPTER_CONFIG)));
    }
    Ok(())
}

fn entry(value: Value, file: PathBuf) -> Entry {
    Entry {
        value,
        text: None,
        origin: Origin::Pretrained(file),
    }
}

/// The keys of `[model]` in a folder in our own form.
fn own_keys(folder: &Path) -> Result<Table> {
    let text = own_config(folder)?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        pipewright::Error::damaged(&folder.join(OWN_CONFIG), error.message())
    })?;
    let mut keys = match table.get("model") {
        Some(Value::Table(keys)) => keys.clone(),
        _ => Table::new(),
    };
    for own in OWN {
        keys.remove(own);
    }
    Ok(keys)
}

/// The keys of a model.
fn keys(architecture: &Architecture) -> Table {
    match architecture {
        Architecture::Gpt2(gpt) => of_gpt(gpt),
        Architecture::Llama(family, llama) => of_llama(*family, llama),
    }
}

fn of_gpt(gpt: &Gpt) -> Table {
    let mut table = Table::new();
    table.insert("kind".to_owned(), Value::from("gpt"));
    for (key, count) in [
        ("vocab", gpt.vocab),
        ("dim", gpt.dim),
        ("layers", gpt.layers),
        ("heads", gpt.heads),
        ("context", gpt.context),
    ] {
        table.insert(key.to_owned(), Value::from(count as i64));
    }
    table.insert("tied".to_owned(), Value::from(gpt.tied));
    table
}

fn of_llama(family: Family, llama: &Llama) -> Table {
    let mut table = Table::new();
    let mut set = |key: &str, value: Value| table.insert(key.to_owned(), value);
    set("kind", Value::from(family.name()));
    for (key, count) in [
        ("vocab", llama.vocab),
        ("dim", llama.dim),
        ("layers", llama.layers),
        ("heads", llama.heads.query),
        ("kv_heads", llama.heads.key_value),
        ("head_width", llama.heads.width),
        ("ffn", llama.ffn),
        ("context", llama.context),
    ] {
        set(key, Value::from(count as i64));
    }
    set("tied", Value::from(llama.tied));
    let epsilon: f64 = llama.epsilon.to_string().parse().expect("a number as text");
    set("norm_epsilon", Value::from(epsilon));
    if let Some(window) = llama.window {
        set("window", Value::from(window as i64));
    }
    if let Some(token) = llama.padding {
        set("padding_token", Value::from(token));
    }
    if let Some(routing) = llama.experts {
        set("experts", Value::from(routing.experts as i64));
        set("experts_per_token", Value::from(routing.chosen as i64));
    }
    table.extend(of_rope(llama.rope));
    table
}

fn of_rope(rope: Rope) -> Table {
    let mut table = Table::new();
    let mut set = |key: &str, value: Value| table.insert(key.to_owned(), value);
    set("rope_theta", Value::from(rope.theta));
    match rope.scaling {
        RopeScaling::None => {
            set("rope_scaling", Value::from("none"));
        }
        RopeScaling::Linear { factor } => {
            set("rope_scaling", Value::from("linear"));
            set("rope_factor", Value::from(factor));
        }
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
            set("rope_scaling", Value::from("llama3"));
            set("rope_factor", Value::from(factor));
            set("rope_low", Value::from(low));
            set("rope_high", Value::from(high));
            set("rope_original", Value::from(original as i64));
        }
        RopeScaling::Yarn {
            factor,
            original,
            fast,
            slow,
            attention,
        } => {
            set("rope_scaling", Value::from("yarn"));
            set("rope_factor", Value::from(factor));
            set("rope_original", Value::from(original as i64));
            set("rope_fast", Value::from(fast));
            set("rope_slow", Value::from(slow));
            set("rope_attention", Value::from(attention));
        }
    }
    table
}
