//! The keys of `[model]` that a folder's `config.json` decides.

use std::path::{Path, PathBuf};

use pipewright::stages::layers::RopeScaling;
use toml::{Table, Value};

use super::kinds;
use super::model::{Model, ModelKind, RopeScalingKind};
use super::settings::not_written;
use super::tree::{Entry, Tree, is_stronger};
use crate::error::{ConfigError, Origin, Result};
use pipewright::pretrained::{
    ADAPTER_CONFIG, Architecture, Base, CONFIG, OWN_CONFIG, TOKENIZER, is_own, own_config, read_adapters,
    read_config,
};

/// Keys that stay with the user when a folder decides the others.
const OWN: [&str; 5] = ["path", "base", "dropout", "auxiliary", "seed"];

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
            return Err(of_folder(entry, &format!("model.{key}"), "model.path", &folder).into());
        }
        tree.remove("model", key);
    }
    let (keys, file) = match is_own(&folder) {
        true => (own_keys(&folder)?, folder.join(OWN_CONFIG)),
        false => (keys(&read_config(&folder)?)?, folder.join(CONFIG)),
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
    let given: Vec<_> = given.filter(|(_, entry)| !is_stronger(&path.origin, &entry.origin)).collect();
    match &given[..] {
        [_, _, _, _] => return Ok(()),
        [(key, entry), ..] => {
            return Err(of_folder(entry, &format!("lora.{key}"), "lora.path", &folder).into());
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

/// Refuses a key that the folder of another key decides.
fn of_folder(entry: &Entry, key: &str, by: &str, folder: &Path) -> ConfigError {
    let (origin, folder) = (&entry.origin, folder.display());
    ConfigError::Other(format!(
        "{origin}: {key} comes from the folder of {by}, `{folder}`: remove it, or remove {by}"
    ))
}

fn entry(value: Value, file: PathBuf) -> Entry {
    Entry { value, text: None, origin: Origin::Pretrained(file) }
}

/// The keys of `[model]` in a folder in our own form.
fn own_keys(folder: &Path) -> Result<Table> {
    let text = own_config(folder)?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        pipewright::Error::damaged(&folder.join(OWN_CONFIG), error.message())
    })?;
    Ok(keys_in(&table))
}

/// The keys of a config's model that a folder decides.
fn keys_in(config: &Table) -> Table {
    let keys = config.get("model").and_then(Value::as_table);
    let mut keys = keys.cloned().unwrap_or_default();
    keys.retain(|key, _| !OWN.contains(&key));
    keys
}

/// The keys of a model.
///
/// # Errors
/// When a number is too large for TOML.
fn keys(architecture: &Architecture) -> Result<Table> {
    let model = Table::try_from(model_of(architecture)).map_err(not_written)?;
    let mut config = Table::from_iter([("model".to_owned(), Value::Table(model))]);
    kinds::strip(&mut config);
    Ok(keys_in(&config))
}

fn model_of(architecture: &Architecture) -> Model {
    let (family, llama) = match architecture {
        Architecture::Llama(family, llama, _) => (*family, llama),
        Architecture::Gpt2(gpt, _) => {
            return Model {
                kind: ModelKind::Gpt,
                vocab: gpt.vocab,
                dim: gpt.dim,
                layers: gpt.layers,
                heads: gpt.heads,
                context: Some(gpt.context),
                tied: gpt.tied,
                ..Model::default()
            };
        }
    };
    let mut model = Model {
        kind: Value::from(family.name()).try_into().expect("a family is a kind"),
        vocab: llama.vocab,
        dim: llama.dim,
        layers: llama.layers,
        heads: llama.heads.query,
        kv_heads: Some(llama.heads.key_value),
        head_width: Some(llama.heads.width),
        ffn: Some(llama.ffn),
        context: Some(llama.context),
        tied: llama.tied,
        norm_epsilon: llama.epsilon.to_string().parse().expect("a number as text"),
        window: llama.window,
        padding_token: llama.padding,
        rope_theta: llama.rope.theta,
        ..Model::default()
    };
    if let Some(routing) = llama.experts {
        (model.experts, model.experts_per_token) = (routing.experts, routing.chosen);
    }
    match llama.rope.scaling {
        RopeScaling::None => {}
        RopeScaling::Linear { factor } => {
            model.rope_scaling = RopeScalingKind::Linear;
            model.rope_factor = factor;
        }
        RopeScaling::Llama3 { factor, low, high, original } => {
            model.rope_scaling = RopeScalingKind::Llama3;
            (model.rope_factor, model.rope_original) = (factor, original);
            (model.rope_low, model.rope_high) = (low, high);
        }
        RopeScaling::Yarn { factor, original, fast, slow, attention } => {
            model.rope_scaling = RopeScalingKind::Yarn;
            (model.rope_factor, model.rope_original) = (factor, original);
            (model.rope_fast, model.rope_slow) = (fast, slow);
            model.rope_attention = Some(attention);
        }
    }
    model
}
