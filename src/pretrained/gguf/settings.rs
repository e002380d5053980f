//! What model a file has.

use pipewright_stages::layers::{Heads, Rope, RopeLayout, RopeScaling};
use pipewright_stages::models::Llama;

use super::file::Gguf;
use super::value::Value;
use crate::error::{PretrainedError, Result};
use crate::pretrained::sizes::{FEW, WHOLE, possible, possible_layers};
use crate::pretrained::{Architecture, Family};

/// The architectures, as a file names them.
const KNOWN: [(&str, Family); 3] = [
    ("llama", Family::Llama),
    ("qwen2", Family::Qwen2),
    ("qwen3", Family::Qwen3),
];

/// The model of a file.
pub(super) fn settings(file: &Gguf) -> Result<(Family, Llama)> {
    let named = file.values.get("general.architecture").and_then(Value::text);
    let Some((name, family)) = KNOWN.into_iter().find(|(name, _)| named == Some(name)) else {
        return Err(PretrainedError::Architecture {
            path: file.path().to_owned(),
            found: named.map(str::to_owned),
            known: KNOWN.map(|(name, _)| name).to_vec(),
        }
        .into());
    };
    let count = |key: &str, default: Option<usize>| {
        let key = format!("{name}.{key}");
        let value = file.values.get(&key).map(Value::whole);
        let count = value.map_or(default, |whole| possible(u64::try_from(whole?).ok()?));
        count.ok_or_else(|| file.wrong(&key, WHOLE))
    };
    let layers = {
        let key = format!("{name}.block_count");
        let count = file.values.get(&key).and_then(Value::whole);
        let count = count.and_then(|count| possible_layers(u64::try_from(count).ok()?));
        count.ok_or_else(|| file.wrong(&key, FEW))?
    };
    let number = |key: &str, default: f64| {
        let key = format!("{name}.{key}");
        let value = file.values.get(&key).map(Value::real);
        value
            .unwrap_or(Some(default))
            .ok_or_else(|| file.wrong(&key, "a number"))
    };
    refuse_scaling(file, name)?;
    let (dim, query) = (
        count("embedding_length", None)?,
        count("attention.head_count", None)?,
    );
    let heads = Heads {
        query,
        key_value: count("attention.head_count_kv", Some(query))?,
        width: count("attention.key_length", Some(dim / query.max(1)))?,
    };
    let embedding = file.dims("token_embd.weight");
    let model = Llama {
        vocab: embedding
            .and_then(|dims| possible(*dims.first()? as u64))
            .unwrap_or(0),
        dim,
        layers,
        heads,
        ffn: count("feed_forward_length", None)?,
        context: count("context_length", None)?,
        rope: Rope {
            theta: number("rope.freq_base", 10_000.0)?,
            scaling: RopeScaling::None,
            layout: RopeLayout::Halves,
        },
        epsilon: number("attention.layer_norm_rms_epsilon", 1e-6)? as f32,
        tied: file.dims("output.weight").is_none(),
        bias: family == Family::Qwen2,
        head_norms: family == Family::Qwen3,
        window: None,
        seed: 0,
    };
    Ok((family, model))
}

/// Refuses scaled positions, which such a file describes in other ways than `config.json`.
fn refuse_scaling(file: &Gguf, name: &str) -> Result<()> {
    let key = format!("{name}.rope.scaling.type");
    let scaling = file.values.get(&key).and_then(Value::text);
    if scaling.is_some_and(|scaling| scaling != "none") || file.dims("rope_freqs.weight").is_some() {
        return Err(file.wrong(
            &key,
            "`none`: take the folder of Hugging Face for scaled positions",
        ));
    }
    Ok(())
}

impl From<(Family, Llama)> for Architecture {
    fn from((family, model): (Family, Llama)) -> Self {
        Self::Llama(family, model)
    }
}
