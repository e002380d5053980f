//! The classes of transformers 5 that build a tokenizer anew and can be compared with a `tokenizer.json`.

use serde_json::{Value, json};

use super::added::DECODER;

/// A class that builds its tokenizer anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Gpt2,
    Llama,
    Qwen2,
}

/// How `Qwen2Tokenizer` finds words.
const QWEN2_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// The settings of a model that say what becomes of unknown characters.
const OF_UNKNOWN: [&str; 2] = ["unk_token", "fuse_unk"];

impl Class {
    /// The class with which transformers 5 reads a folder, if it builds its tokenizer anew: by
    /// `tokenizer_config.json`, `config.json` and the bytes of `tokenizer.json`.
    pub(super) fn of(settings: &Value, model: &Value, tokenizer: &[u8]) -> Option<Self> {
        let named = settings["tokenizer_class"].as_str();
        let named = named.or_else(|| model["tokenizer_class"].as_str());
        let named = named.map(|name| name.strip_suffix("Fast").unwrap_or(name));
        let of_kind = match model["model_type"].as_str() {
            Some("gpt2") => Some(Self::Gpt2),
            // It does not believe what the folders of Qwen-2 name.
            Some("qwen2") => return Some(Self::Qwen2),
            Some("qwen3") => Some(Self::Qwen2),
            Some("mistral" | "mixtral") => return None,
            _ => None,
        };
        let Some(named) = named else {
            return of_kind;
        };
        let class = [Self::Gpt2, Self::Llama, Self::Qwen2].into_iter().find(|class| class.name() == named)?;
        let mark = b"\"ByteLevel\"";
        let has_bytes = tokenizer.windows(mark.len()).any(|part| part == mark);
        (class != Self::Llama || !has_bytes).then_some(class)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT2Tokenizer",
            Self::Llama => "LlamaTokenizer",
            Self::Qwen2 => "Qwen2Tokenizer",
        }
    }

    /// The special tokens that it has where a folder names none.
    pub(super) fn names(self) -> Vec<(&'static str, String)> {
        let names: &[(&str, &str)] = match self {
            Self::Gpt2 => &[
                ("bos_token", "<|endoftext|>"),
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
            ],
            Self::Llama => &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")],
            Self::Qwen2 => &[
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
                ("pad_token", "<|endoftext|>"),
            ],
        };
        names.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
    }

    /// The parts of a `tokenizer.json` that are not as this class builds them.
    pub(super) fn differs(self, tokenizer: &Value, settings: &Value) -> Vec<&'static str> {
        let built = self.built(settings);
        let mut differs = Vec::new();
        for part in ["normalizer", "pre_tokenizer"] {
            if without_offsets(&tokenizer[part]) != built[part] {
                differs.push(part);
            }
        }
        let model = &tokenizer["model"];
        let of_model = built["model"].as_object().into_iter().flatten();
        // With a token for each byte, nothing is unknown.
        let has_all_bytes =
            self == Self::Llama && (0..=255).all(|byte| !model["vocab"][format!("<0x{byte:02X}>")].is_null());
        let of_model = of_model.filter(|(key, _)| !has_all_bytes || !OF_UNKNOWN.contains(&key.as_str()));
        let mut of_model = of_model.filter(|(key, value)| !is_alike(&model[key.as_str()], value));
        if of_model.next().is_some() {
            differs.push("model");
        }
        // With a list by numbers, it does not look at the file's.
        if let Some(numbered) = settings[DECODER].as_object() {
            let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
            let has = |token: &Value| numbered.contains_key(&token["id"].to_string());
            if added.filter(|token| !has(token)).count() > 0 {
                differs.push("added_tokens");
            }
        }
        differs
    }

    /// What it builds.
    fn built(self, settings: &Value) -> Value {
        let prefix = settings["add_prefix_space"].as_bool();
        let bytes = |use_regex: bool| {
            let prefix = prefix.unwrap_or(false);
            json!({"type": "ByteLevel", "add_prefix_space": prefix, "use_regex": use_regex})
        };
        let model = |is_llama: bool| {
            json!({
                "dropout": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "unk_token": null, "fuse_unk": is_llama, "byte_fallback": is_llama, "ignore_merges": false,
            })
        };
        match self {
            Self::Gpt2 => json!({"normalizer": null, "pre_tokenizer": bytes(true), "model": model(false)}),
            Self::Qwen2 => {
                let words = json!({"Regex": QWEN2_WORDS});
                let split =
                    json!({"type": "Split", "pattern": words, "behavior": "Isolated", "invert": false});
                json!({
                    "normalizer": {"type": "NFC"},
                    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes(false)]},
                    "model": model(false),
                })
            }
            Self::Llama => {
                let scheme = match (prefix, settings["legacy"].as_bool()) {
                    (Some(false), _) => "never",
                    (_, Some(true)) => "always",
                    _ => "first",
                };
                let words = json!({
                    "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false,
                });
                json!({"normalizer": null, "pre_tokenizer": words, "model": model(true)})
            }
        }
    }
}

/// A part without what changes only the places of tokens in a text.
fn without_offsets(part: &Value) -> Value {
    let mut part = part.clone();
    if let Some(part) = part.as_object_mut() {
        part.remove("trim_offsets");
    }
    if let Some(Value::Array(steps)) = part.get_mut("pretokenizers") {
        steps.iter_mut().for_each(|step| *step = without_offsets(step));
    }
    part
}

/// Whether two settings of a model mean the same: one that is left out is `null`, `false` or an empty text.
fn is_alike(one: &Value, other: &Value) -> bool {
    let is_nothing = |value: &Value| value.is_null() || value == false || value == "" || value == 0.0;
    one == other || (is_nothing(one) && is_nothing(other))
}
