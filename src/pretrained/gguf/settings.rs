//! What model a file has.

use pipewright_stages::layers::{Heads, Rope, RopeLayout, RopeScaling};
use pipewright_stages::models::Llama;
use serde_json::{Map, Value as Json};

use super::file::Gguf;
use super::keys::{OF_FILE, OF_MODEL};
use super::scaling::scaling;
use crate::error::{Error, Result};
use crate::pretrained::json::Json as Keys;
use crate::pretrained::key::{Table, completed, named, unknown};
use crate::pretrained::sizes::possible;
use crate::pretrained::{Architecture, Family, Head};

/// The architectures, as a file names them.
const KNOWN: [(&str, Family); 3] =
    [("llama", Family::Llama), ("qwen2", Family::Qwen2), ("qwen3", Family::Qwen3)];

/// What a file says of its model.
pub(super) struct Settings {
    pub(super) family: Family,
    pub(super) model: Llama,
    /// Keys of the architecture that are not known.
    pub(super) unknown: Vec<String>,
}

/// The settings of a file.
pub(super) fn settings(file: &Gguf) -> Result<Settings> {
    let said = file.values.get("general.architecture").and_then(Json::as_str);
    let Some((name, family)) = KNOWN.into_iter().find(|(name, _)| said == Some(name)) else {
        return Err(Error::unknown_model(file.path(), said, &KNOWN.map(|(name, _)| name)));
    };
    let prefix = format!("{name}.");
    let of_file = Table { prefix: "", keys: OF_FILE };
    let of_model = Table { prefix: &prefix, keys: OF_MODEL };
    let tables = [of_file, of_model];
    let found = found(file, &prefix);
    let (path, value) = (file.path(), &completed(file.path(), &found, &tables)?);
    let model = model(file, family, Keys { path, value }, &prefix)?;
    let unknown = unknown(&found, &tables);
    Ok(Settings { family, model, unknown })
}

/// The values of the tables' keys, and all of the architecture.
fn found(file: &Gguf, prefix: &str) -> Json {
    let of_file = |key: &str| named(&[Table { prefix: "", keys: OF_FILE }]).any(|(name, _)| name == key);
    let values = file.values.iter();
    let values = values.filter(|(key, _)| key.starts_with(prefix) || of_file(key));
    let all: Map<String, Json> = values.map(|(key, value)| (key.clone(), value.clone())).collect();
    all.into()
}

fn model(file: &Gguf, family: Family, keys: Keys<'_>, prefix: &str) -> Result<Llama> {
    let key = |name: &str| format!("{prefix}{name}");
    let count = |name: &str| keys.count(&key(name));
    let (dim, query) = (count("embedding_length")?, count("attention.head_count")?);
    let heads = Heads {
        query,
        key_value: keys.count_or(&key("attention.head_count_kv"), query)?,
        width: keys.count_or(&key("attention.key_length"), dim / query.max(1))?,
    };
    for name in ["attention.value_length", "rope.dimension_count"] {
        let whole = keys.count_or(&key(name), heads.width)? == heads.width;
        keys.require(whole, &key(name), "the width of a head of keys")?;
    }
    let mut rope = Rope {
        theta: keys.number(&key("rope.freq_base"))?,
        scaling: RopeScaling::None,
        layout: RopeLayout::Halves,
    };
    rope.scaling = scaling(file, keys, prefix, rope, heads.width)?;
    let embedding = file.dims("token_embd.weight");
    Ok(Llama {
        vocab: embedding.and_then(|dims| possible(*dims.first()? as u64)).unwrap_or(0),
        dim,
        layers: keys.layers(&key("block_count"))?,
        heads,
        ffn: count("feed_forward_length")?,
        context: count("context_length")?,
        rope,
        epsilon: keys.number(&key("attention.layer_norm_rms_epsilon"))? as f32,
        tied: file.dims("output.weight").is_none(),
        bias: family == Family::Qwen2,
        head_norms: family == Family::Qwen3,
        window: None,
        padding: None,
        experts: None,
        seed: 0,
    })
}

impl From<(Family, Llama)> for Architecture {
    fn from((family, model): (Family, Llama)) -> Self {
        Self::Llama(family, model, Head::Tokens)
    }
}
