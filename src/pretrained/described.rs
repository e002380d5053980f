//! `config.json`: what model a folder has.

use std::fs;
use std::path::Path;

use pipewright_stages::layers::{Heads, Rope, RopeLayout, RopeScaling};
use pipewright_stages::models::{Gpt, Llama};
use serde_json::{Map, Value, json};

use super::architecture::{Architecture, Family};
use super::json::Json;
use super::sizes;
use crate::error::{Error, PretrainedError, Result};

/// The file that describes a model.
pub const CONFIG: &str = "config.json";

/// The file of a tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";

/// The architectures that `config.json` may name.
const KNOWN: [(&str, Option<Family>); 5] = [
    ("GPT2LMHeadModel", None),
    ("LlamaForCausalLM", Some(Family::Llama)),
    ("MistralForCausalLM", Some(Family::Mistral)),
    ("Qwen2ForCausalLM", Some(Family::Qwen2)),
    ("Qwen3ForCausalLM", Some(Family::Qwen3)),
];

/// The model that a folder's `config.json` describes.
///
/// # Errors
/// When there is no such file, or its model is none that this program knows.
pub fn read_config(folder: &Path) -> Result<Architecture> {
    let path = folder.join(CONFIG);
    if !path.is_file() {
        let folder = folder.to_owned();
        return Err(PretrainedError::NoConfig { folder }.into());
    }
    let bytes = fs::read(&path).map_err(Error::io("read", &path))?;
    let value = serde_json::from_slice(&bytes).map_err(|source| PretrainedError::Syntax {
        path: path.clone(),
        source,
    })?;
    let (path, value) = (&path, &value);
    let json = Json { path, value };
    let named = json.get("architectures").and_then(|names| names.get(0)?.as_str());
    let known = KNOWN.into_iter().find(|(name, _)| named == Some(name));
    let architecture = match known {
        Some((_, None)) => gpt2(json)?,
        Some((_, Some(family))) => llama(json, family)?,
        None => {
            return Err(PretrainedError::Architecture {
                path: path.clone(),
                found: named.map(str::to_owned),
                known: KNOWN.map(|(name, _)| name).to_vec(),
            }
            .into());
        }
    };
    sizes::check(path, &architecture)?;
    Ok(architecture)
}

fn gpt2(json: Json<'_>) -> Result<Architecture> {
    let dim = json.count("n_embd")?;
    let wide = json.count_or("n_inner", 4 * dim)?;
    json.require(wide == 4 * dim, "n_inner", "four times n_embd")?;
    let activation = json.text("activation_function")?.unwrap_or("gelu_new");
    let tanh = ["gelu_new", "gelu_pytorch_tanh"].contains(&activation);
    json.require(tanh, "activation_function", "`gelu_new` or `gelu_pytorch_tanh`")?;
    let epsilon = json.number_or("layer_norm_epsilon", 1e-5)?;
    json.require(epsilon == 1e-5, "layer_norm_epsilon", "1e-5")?;
    let scaled = json.truth_or("scale_attn_weights", true)?;
    json.require(scaled, "scale_attn_weights", "true")?;
    let by_layer = json.truth_or("scale_attn_by_inverse_layer_idx", false)?;
    json.require(!by_layer, "scale_attn_by_inverse_layer_idx", "false")?;
    Ok(Architecture::Gpt2(Gpt {
        vocab: json.count("vocab_size")?,
        dim,
        layers: json.layers("n_layer")?,
        heads: json.count("n_head")?,
        context: json.count("n_positions")?,
        dropout: 0.0,
        tied: json.truth_or("tie_word_embeddings", true)?,
        seed: 0,
    }))
}

fn llama(json: Json<'_>, family: Family) -> Result<Architecture> {
    let activation = json.text("hidden_act")?.unwrap_or("silu");
    json.require(activation == "silu", "hidden_act", "`silu`")?;
    for key in ["attention_bias", "mlp_bias", "use_sliding_window"] {
        let is_set = json.truth_or(key, false)?;
        json.require(!is_set, key, "false, because this program has no such layer")?;
    }
    let (dim, query) = (json.count("hidden_size")?, json.count("num_attention_heads")?);
    json.require(query > 0, "num_attention_heads", "1 or more")?;
    let heads = Heads {
        query,
        key_value: json.count_or("num_key_value_heads", query)?,
        width: json.count_or("head_dim", dim / query)?,
    };
    let window = match family {
        Family::Mistral => Some(json.count_or("sliding_window", 0)?).filter(|window| *window > 0),
        _ => None,
    };
    let epsilon = json.number_or("rms_norm_eps", 1e-6)?;
    json.require(epsilon > 0.0, "rms_norm_eps", "above 0")?;
    let model = Llama {
        vocab: json.count("vocab_size")?,
        dim,
        layers: json.layers("num_hidden_layers")?,
        heads,
        ffn: json.count("intermediate_size")?,
        context: json.count_or("max_position_embeddings", 2048)?,
        rope: rope(json)?,
        epsilon: epsilon as f32,
        tied: json.truth_or("tie_word_embeddings", false)?,
        bias: family == Family::Qwen2,
        head_norms: family == Family::Qwen3,
        window,
        seed: 0,
    };
    Ok(Architecture::Llama(family, model))
}

/// Older files have `rope_theta` and `rope_scaling`, newer ones both in `rope_parameters`.
fn rope(json: Json<'_>) -> Result<Rope> {
    let newer = json.inside("rope_parameters")?;
    let theta = newer.unwrap_or(json).number_or("rope_theta", 10_000.0)?;
    let rope = |scaling| Rope {
        theta,
        scaling,
        layout: RopeLayout::Halves,
    };
    let older = json.inside("rope_scaling")?;
    let Some(scaling) = newer.or(older) else {
        return Ok(rope(RopeScaling::None));
    };
    let (kind, older_kind) = (scaling.text("rope_type")?, scaling.text("type")?);
    let number = |key: &str| scaling.number(key);
    let known = match kind.or(older_kind).unwrap_or("default") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear {
            factor: number("factor")?,
        },
        "llama3" => RopeScaling::Llama3 {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            original: scaling.count("original_max_position_embeddings")?,
        },
        _ => {
            scaling.require(false, "rope_type", "`default`, `linear` or `llama3`")?;
            RopeScaling::None
        }
    };
    Ok(rope(known))
}

/// The text of a `config.json` for a model.
pub fn describe(architecture: &Architecture) -> String {
    let value = match architecture {
        Architecture::Gpt2(gpt) => json!({
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": gpt.vocab,
            "n_embd": gpt.dim,
            "n_layer": gpt.layers,
            "n_head": gpt.heads,
            "n_positions": gpt.context,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": gpt.tied,
            "dtype": "float32",
        }),
        Architecture::Llama(family, model) => described_llama(*family, model),
    };
    format!("{value:#}\n")
}

fn described_llama(family: Family, model: &Llama) -> Value {
    let named = KNOWN.iter().find(|(_, of)| *of == Some(family));
    let mut value = json!({
        "architectures": [named.expect("every family has a name").0],
        "model_type": family.name(),
        "vocab_size": model.vocab,
        "hidden_size": model.dim,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads.query,
        "num_key_value_heads": model.heads.key_value,
        "head_dim": model.heads.width,
        "intermediate_size": model.ffn,
        "max_position_embeddings": model.context,
        "hidden_act": "silu",
        "rms_norm_eps": shortest(model.epsilon),
        "tie_word_embeddings": model.tied,
        "rope_parameters": described_rope(model.rope),
        "dtype": "float32",
    });
    if family == Family::Mistral {
        value["sliding_window"] = json!(model.window);
    }
    value
}

/// The shortest number that is read as this one.
fn shortest(number: f32) -> Value {
    let shortest: f64 = number.to_string().parse().expect("a number as text is a number");
    json!(shortest)
}

fn described_rope(rope: Rope) -> Value {
    let mut map = Map::new();
    let mut set = |key: &str, value: Value| map.insert(key.to_owned(), value);
    set("rope_theta", json!(rope.theta));
    match rope.scaling {
        RopeScaling::None => {
            set("rope_type", json!("default"));
        }
        RopeScaling::Linear { factor } => {
            set("rope_type", json!("linear"));
            set("factor", json!(factor));
        }
        RopeScaling::Llama3 {
            factor,
            low,
            high,
            original,
        } => {
            set("rope_type", json!("llama3"));
            set("factor", json!(factor));
            set("low_freq_factor", json!(low));
            set("high_freq_factor", json!(high));
            set("original_max_position_embeddings", json!(original));
        }
    }
    Value::Object(map)
}
