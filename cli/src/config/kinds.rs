//! Keys for only one kind of model, data, optimizer or fabric.

use toml::{Table, Value};

use super::tree::{Tree, is_stronger};
use crate::error::ConfigError;

/// A key that counts only if another key of its section has one of these values.
struct Rule {
    section: &'static str,
    key: &'static str,
    by: &'static str,
    is: &'static [&'static str],
}

const fn rule(
    section: &'static str,
    key: &'static str,
    by: &'static str,
    is: &'static [&'static str],
) -> Rule {
    Rule { section, key, by, is }
}

/// The models of tokens.
const TOKENS: &[&str] = &["gpt", "llama", "mistral", "mixtral", "qwen2", "qwen3"];
/// Llama and its kin.
const LLAMAS: &[&str] = &["llama", "mistral", "mixtral", "qwen2", "qwen3"];

/// The models that may read tokens.
const OF_TOKENS: &[&str] = &["gpt", "llama", "mistral", "mixtral", "qwen2", "qwen3", "stack"];

/// The models of convolutions.
const CONVOLUTIONS: &[&str] = &["cnn", "resnet"];

const RULES: [Rule; 54] = [
    rule("model", "vocab", "kind", OF_TOKENS),
    rule("model", "dim", "kind", TOKENS),
    rule("model", "layers", "kind", TOKENS),
    rule("model", "heads", "kind", TOKENS),
    rule("model", "tied", "kind", TOKENS),
    rule("model", "context", "kind", TOKENS),
    rule("model", "kv_heads", "kind", LLAMAS),
    rule("model", "head_width", "kind", LLAMAS),
    rule("model", "ffn", "kind", LLAMAS),
    rule("model", "rope_theta", "kind", LLAMAS),
    rule("model", "rope_scaling", "kind", LLAMAS),
    rule(
        "model",
        "rope_factor",
        "rope_scaling",
        &["linear", "llama3", "yarn"],
    ),
    rule("model", "rope_low", "rope_scaling", &["llama3"]),
    rule("model", "rope_high", "rope_scaling", &["llama3"]),
    rule("model", "rope_original", "rope_scaling", &["llama3", "yarn"]),
    rule("model", "rope_fast", "rope_scaling", &["yarn"]),
    rule("model", "rope_slow", "rope_scaling", &["yarn"]),
    rule("model", "rope_attention", "rope_scaling", &["yarn"]),
    rule("model", "norm_epsilon", "kind", LLAMAS),
    rule("model", "experts", "kind", &["mixtral"]),
    rule("model", "experts_per_token", "kind", &["mixtral"]),
    rule("model", "auxiliary", "kind", &["mixtral"]),
    rule(
        "model",
        "window",
        "kind",
        &["mistral", "mixtral", "qwen2", "qwen3"],
    ),
    rule("model", "padding_token", "kind", LLAMAS),
    rule("model", "dropout", "kind", &["gpt", "mlp"]),
    rule("model", "sizes", "kind", &["mlp"]),
    rule("model", "image", "kind", &["cnn", "resnet", "stack"]),
    rule("model", "classes", "kind", CONVOLUTIONS),
    rule("model", "channels", "kind", &["cnn"]),
    rule("model", "blocks", "kind", &["resnet"]),
    rule("model", "width", "kind", &["resnet"]),
    rule("model", "stack", "kind", &["stack"]),
    rule(
        "data",
        "tokenizer",
        "kind",
        &["text", "tokens", "jsonl", "parquet"],
    ),
    rule("data", "end_of_text", "kind", &["text", "jsonl", "parquet"]),
    rule("data", "cache", "kind", &["text", "jsonl", "parquet"]),
    rule("data", "field", "kind", &["jsonl", "parquet"]),
    rule("data", "template", "kind", &["jsonl", "parquet"]),
    rule("data", "loss_on", "kind", &["jsonl", "parquet"]),
    rule("data", "packing", "kind", &["jsonl", "parquet"]),
    rule("data", "seq", "kind", &["text", "tokens", "jsonl", "parquet"]),
    rule("data", "dtype", "kind", &["tokens"]),
    rule("data", "labels", "kind", &["idx"]),
    rule("data", "augment", "kind", &["cifar10"]),
    rule("pipeline", "max_staleness", "sync", &["server"]),
    rule("optimizer", "betas", "kind", &["adamw", "lion", "muon"]),
    rule("optimizer", "eps", "kind", &["adamw", "muon"]),
    rule("optimizer", "momentum", "kind", &["muon", "sgd"]),
    rule("optimizer", "by_adamw", "kind", &["muon"]),
    rule(
        "optimizer",
        "warmup_steps",
        "schedule",
        &["cosine", "linear", "wsd"],
    ),
    rule("optimizer", "decay_steps", "schedule", &["wsd"]),
    rule(
        "optimizer",
        "min_learning_rate",
        "schedule",
        &["cosine", "linear", "wsd"],
    ),
    rule("launch", "address", "fabric", &["auto", "sockets"]),
    rule("launch", "token_file", "fabric", &["auto", "sockets"]),
    rule("launch", "tls", "fabric", &["auto", "sockets"]),
];

/// Removes the keys of other kinds if a stronger source chose the kind. Otherwise refuses them. `resolved`
/// holds every key's value.
pub(super) fn settle(tree: &mut Tree, resolved: &Table) -> Result<(), ConfigError> {
    for Rule { section, key, by, is } in RULES {
        let chosen = text(resolved, section, by);
        let Some(entry) = tree.get(section, key).filter(|_| !is.contains(&chosen)) else {
            continue;
        };
        let overridden = tree
            .get(section, by)
            .is_some_and(|by| is_stronger(&by.origin, &entry.origin));
        if !overridden {
            return Err(ConfigError::OtherKind {
                origin: entry.origin.clone(),
                key: format!("{section}.{key}"),
                by: format!("{section}.{by}"),
                is,
                chosen: chosen.to_owned(),
            });
        }
        tree.remove(section, key);
    }
    Ok(())
}

/// Removes the keys of other kinds from a config that is written.
pub(super) fn strip(resolved: &mut Table) {
    for Rule { section, key, by, is } in RULES {
        if !is.contains(&text(resolved, section, by))
            && let Some(Value::Table(keys)) = resolved.get_mut(section)
        {
            keys.remove(key);
        }
    }
}

fn text<'a>(table: &'a Table, section: &str, key: &str) -> &'a str {
    table
        .get(section)
        .and_then(|keys| keys.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}
