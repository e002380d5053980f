//! `config.json`: what model a folder has.

use std::path::{Path, PathBuf};

use pipewright_stages::layers::{Heads, Rope, Routing};
use pipewright_stages::models::{Gpt, Llama};
use serde_json::{Value, json};

use super::architecture::{Architecture, Family};
use super::families::{every, gpt2, llama};
use super::head::Head;
use super::json::{Json, read};
use super::key::{Key, Table, completed};
use super::{rope, sizes};
use crate::error::{Error, Result, download};

/// The file that describes a model.
pub const CONFIG: &str = "config.json";

/// The file of a tokenizer.
pub const TOKENIZER: &str = "tokenizer.json";

/// The architectures that `config.json` may name. Of two with one family, the first is the usual one.
const KNOWN: [(&str, Option<Family>, Head); 12] = [
    ("GPT2LMHeadModel", None, Head::Tokens),
    ("LlamaForCausalLM", Some(Family::Llama), Head::Tokens),
    ("MistralForCausalLM", Some(Family::Mistral), Head::Tokens),
    ("MixtralForCausalLM", Some(Family::Mixtral), Head::Tokens),
    ("Qwen2ForCausalLM", Some(Family::Qwen2), Head::Tokens),
    ("Qwen3ForCausalLM", Some(Family::Qwen3), Head::Tokens),
    ("GPT2ForSequenceClassification", None, Head::Reward),
    ("LlamaForSequenceClassification", Some(Family::Llama), Head::Reward),
    ("MistralForSequenceClassification", Some(Family::Mistral), Head::Reward),
    ("MixtralForSequenceClassification", Some(Family::Mixtral), Head::Reward),
    ("Qwen2ForSequenceClassification", Some(Family::Qwen2), Head::Reward),
    ("Qwen3ForSequenceClassification", Some(Family::Qwen3), Head::Reward),
];

/// A folder's `config.json`, and the family that it names.
pub(super) struct Described {
    pub(super) path: PathBuf,
    pub(super) found: Value,
    pub(super) family: Option<Family>,
    head: Head,
}

impl Described {
    /// Reads the file of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Err(Error::pretrained(format!(
                "`{}` is no model's folder: it has no config.json; a folder of Hugging Face has one, and \
                 `pipewright import` makes one from a .gguf file{}",
                folder.display(),
                download(folder)
            )));
        }
        let found = read(&path)?;
        let (family, head) = named(&path, &found)?;
        Ok(Self { path, found, family, head })
    }

    /// The tables of its keys.
    pub(super) fn tables(&self) -> Vec<Table<'static>> {
        tables(self.family)
    }

    /// The file with the defaults of the keys that it does not have.
    pub(super) fn completed(&self) -> Result<Value> {
        completed(&self.path, &self.found, &self.tables())
    }
}

/// The tables of a family's keys.
pub(super) fn tables(family: Option<Family>) -> Vec<Table<'static>> {
    let own: &[&'static [Key]] = match family {
        None => &[gpt2::KEYS],
        Some(Family::Llama) => &[llama::SHARED, llama::LLAMA],
        Some(Family::Mistral) => &[llama::SHARED, llama::MISTRAL],
        Some(Family::Mixtral) => &[llama::SHARED, llama::MIXTRAL],
        Some(Family::Qwen2) => &[llama::SHARED, llama::QWENS, llama::QWEN2],
        Some(Family::Qwen3) => &[llama::SHARED, llama::QWENS, llama::QWEN3],
    };
    let all = std::iter::once(every::KEYS).chain(own.iter().copied());
    all.map(|keys| Table { prefix: "", keys }).collect()
}

/// The model that a folder's `config.json` describes. A key that the file does not have is as in
/// transformers.
///
/// # Errors
/// When there is no such file, its model is none that this program knows, or a key has a value for which
/// there is no layer.
pub fn read_config(folder: &Path) -> Result<Architecture> {
    let described = Described::read(folder)?;
    let (path, value) = (&described.path, &described.completed()?);
    let json = Json { path, value };
    let architecture = match described.family {
        None => gpt2(json, described.head)?,
        Some(family) => {
            let rope = rope::read(path, &described.found, json)?;
            Architecture::Llama(family, llama(json, family, rope)?, described.head)
        }
    };
    sizes::check(path, &architecture)?;
    Ok(architecture)
}

/// The family and the head that `architectures` names, or else `model_type`. Two that contradict each other
/// are refused.
fn named(path: &Path, value: &Value) -> Result<(Option<Family>, Head)> {
    let json = Json { path, value };
    let named = json.get("architectures").and_then(|names| names.get(0)?.as_str());
    let kind = json.text("model_type")?;
    let known = KNOWN.into_iter().find(|&(name, family, _)| match named {
        Some(named) => named == name,
        None => kind == Some(model_type(family)),
    });
    let Some((_, family, head)) = known else {
        let texts = KNOWN.iter().filter(|(.., head)| *head == Head::Tokens).map(|(name, ..)| *name);
        let names: Vec<_> = texts.chain(["and ...ForSequenceClassification of each"]).collect();
        return Err(Error::unknown_model(path, named.or(kind), &names));
    };
    let agrees = kind.is_none_or(|kind| kind == model_type(family));
    json.require(agrees, "model_type", "the type of its `architectures`")?;
    Ok((family, head))
}

fn model_type(family: Option<Family>) -> &'static str {
    family.map_or("gpt2", Family::name)
}

fn gpt2(json: Json<'_>, head: Head) -> Result<Architecture> {
    let dim = json.count("n_embd")?;
    let wide = json.count_or("n_inner", 4 * dim)?;
    json.require(wide == 4 * dim, "n_inner", "four times n_embd")?;
    let gpt = Gpt {
        vocab: json.count("vocab_size")?,
        dim,
        layers: json.layers("n_layer")?,
        heads: json.count("n_head")?,
        context: json.count("n_positions")?,
        dropout: 0.0,
        tied: json.truth("tie_word_embeddings")?,
        seed: 0,
    };
    Ok(Architecture::Gpt2(gpt, head))
}

fn llama(json: Json<'_>, family: Family, rope: Rope) -> Result<Llama> {
    let (dim, query) = (json.count("hidden_size")?, json.count("num_attention_heads")?);
    json.require(query > 0, "num_attention_heads", "1 or more")?;
    let heads = Heads {
        query,
        key_value: json.count_or("num_key_value_heads", query)?,
        width: json.count_or("head_dim", dim / query)?,
    };
    let epsilon = json.number("rms_norm_eps")?;
    json.require(epsilon > 0.0, "rms_norm_eps", "above 0")?;
    let layers = json.layers("num_hidden_layers")?;
    let experts = match family {
        Family::Mixtral => Some(routing(json)?),
        _ => None,
    };
    Ok(Llama {
        vocab: json.count("vocab_size")?,
        dim,
        layers,
        heads,
        ffn: json.count("intermediate_size")?,
        context: json.count("max_position_embeddings")?,
        rope,
        epsilon: epsilon as f32,
        tied: json.truth("tie_word_embeddings")?,
        bias: family == Family::Qwen2,
        head_norms: family == Family::Qwen3,
        window: window(json, family, layers)?,
        padding: padding(json)?,
        experts,
        seed: 0,
    })
}

/// The token whose vector is not trained. As an index in Python, a number below 0 counts from the end.
fn padding(json: Json<'_>) -> Result<Option<u32>> {
    let Some(value) = json.get("pad_token_id") else {
        return Ok(None);
    };
    let vocab = json.count("vocab_size")? as i64;
    let token = value.as_i64().map(|id| if id < 0 { vocab + id } else { id });
    let token = token.filter(|token| (0..vocab).contains(token));
    json.require(token.is_some(), "pad_token_id", "a number below vocab_size, or null")?;
    Ok(token.and_then(|token| u32::try_from(token).ok()))
}

/// How many tokens a token sees.
fn window(json: Json<'_>, family: Family, layers: usize) -> Result<Option<usize>> {
    let has_window = match family {
        Family::Llama => false,
        Family::Mistral | Family::Mixtral => true,
        Family::Qwen2 | Family::Qwen3 => all_slide(json, layers)?,
    };
    if !has_window || json.get("sliding_window").is_none() {
        return Ok(None);
    }
    let window = json.count("sliding_window")?;
    json.require(window > 0, "sliding_window", "1 or more, or null")?;
    Ok(Some(window))
}

/// Whether all layers of a Qwen have its window, or none. Some is not possible here.
fn all_slide(json: Json<'_>, layers: usize) -> Result<bool> {
    let may_slide = json.truth("use_sliding_window")? && json.get("sliding_window").is_some();
    let Some(types) = json.get("layer_types") else {
        let first = json.count("max_window_layers")?;
        let alike = !may_slide || first == 0 || first >= layers;
        json.require(
            alike,
            "max_window_layers",
            "0 or num_hidden_layers: all blocks have the window of sliding_window, or none",
        )?;
        return Ok(may_slide && first < layers);
    };
    let all = |kind: &str| {
        let types = types.as_array();
        types.is_some_and(|types| types.len() == layers && types.iter().all(|one| one == kind))
    };
    let slide = all("sliding_attention") && may_slide;
    json.require(
        slide || all("full_attention"),
        "layer_types",
        "`full_attention` for each block, or `sliding_attention` for each, with use_sliding_window and \
         sliding_window",
    )?;
    Ok(slide)
}

/// Mixtral's experts. The auxiliary loss is a setting of training, as dropout is: it does not come from here.
fn routing(json: Json<'_>) -> Result<Routing> {
    let routing = Routing {
        experts: json.count("num_local_experts")?,
        chosen: json.count("num_experts_per_tok")?,
        auxiliary: 0.0,
    };
    let holds = (1..=routing.experts).contains(&routing.chosen);
    json.require(holds, "num_experts_per_tok", "1 to num_local_experts")?;
    Ok(routing)
}

/// The text of a `config.json` for a model. It names no token that begins or ends a text: without these keys,
/// transformers takes the first tokens of Llama's vocabulary. The one number of a reward model is a label
/// there.
pub fn describe(architecture: &Architecture) -> String {
    let mut value = match architecture {
        Architecture::Gpt2(gpt, head) => json!({
            "architectures": [class(None, *head)],
            "model_type": "gpt2",
            "vocab_size": gpt.vocab,
            "n_embd": gpt.dim,
            "n_layer": gpt.layers,
            "n_head": gpt.heads,
            "n_positions": gpt.context,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "tie_word_embeddings": gpt.tied,
            "bos_token_id": null,
            "eos_token_id": null,
            "dtype": "float32",
        }),
        Architecture::Llama(family, model, head) => described_llama(*family, model, *head),
    };
    if architecture.head() == Head::Reward {
        value["id2label"] = json!({"0": "LABEL_0"});
        value["label2id"] = json!({"LABEL_0": 0});
    }
    format!("{value:#}\n")
}

/// The name of a model's class.
fn class(family: Option<Family>, head: Head) -> &'static str {
    let named = KNOWN.iter().find(|(_, of, end)| (*of, *end) == (family, head));
    named.expect("every family has a name").0
}

fn described_llama(family: Family, model: &Llama, head: Head) -> Value {
    let mut value = json!({
        "architectures": [class(Some(family), head)],
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
        "rope_parameters": rope::described(model.rope),
        "bos_token_id": null,
        "eos_token_id": null,
        "dtype": "float32",
    });
    match (family, model.window) {
        (Family::Mistral | Family::Mixtral, window) => value["sliding_window"] = json!(window),
        (_, Some(window)) => {
            value["use_sliding_window"] = json!(true);
            value["sliding_window"] = json!(window);
            value["max_window_layers"] = json!(0);
        }
        _ => {}
    }
    if let Some(token) = model.padding {
        value["pad_token_id"] = json!(token);
    }
    if let Some(routing) = model.experts {
        value["num_local_experts"] = json!(routing.experts);
        value["num_experts_per_tok"] = json!(routing.chosen);
    }
    value
}

/// The shortest number that is read as this one.
fn shortest(number: f32) -> Value {
    let shortest: f64 = number.to_string().parse().expect("a number as text is a number");
    json!(shortest)
}
