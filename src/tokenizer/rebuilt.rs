//! Tokenizers that transformers 5 builds anew: some of its classes take the vocabulary and the merges from
//! `tokenizer.json`, and have rules of their own for the rest.

use std::path::Path;

use serde_json::{Value, json};

use super::about::{CONFIG, json as read};
use super::of_model::FILE;
use crate::error::Result;

/// A class that builds its tokenizer anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Gpt2,
    Llama,
    Qwen2,
}

/// How `Qwen2Tokenizer` finds words.
const QWEN2_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
);

/// What makes transformers read a folder as this program does.
const CURE: &str =
    "; with tokenizer_class PreTrainedTokenizerFast in tokenizer_config.json it takes the file's";

/// Lines about what transformers does with the tokenizer of this file or folder and this program does not.
///
/// # Errors
/// When a file cannot be read, or is not JSON.
pub fn told_of_tokenizer(path: &Path) -> Result<Vec<String>> {
    let file = match path.is_dir() {
        true => path.join(FILE),
        false => path.to_owned(),
    };
    let folder = file.parent().unwrap_or(path);
    let (settings_path, tokenizer) = (folder.join(CONFIG), read(&file)?);
    let (settings, model) = (read(&settings_path)?, read(&folder.join("config.json"))?);
    let mut lines = Vec::new();
    if let Some(class) = Class::of(&settings, &model, &tokenizer) {
        let differs = class.differs(&tokenizer, &settings);
        if !differs.is_empty() {
            let cure = match model["model_type"].as_str() {
                Some("qwen2") => "",
                _ => CURE,
            };
            lines.push(format!(
                "{}: transformers 5 reads this as a {}, which has rules of its own in place of the file's \
                 {}: some texts become other tokens there. This program takes the file's{cure}",
                file.display(),
                class.name(),
                differs.join(" and ")
            ));
        }
    }
    for key in [
        "fix_mistral_regex",
        "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
    ] {
        if settings[key] == true {
            lines.push(format!(
                "{}: {key} is true: transformers computes with it, this program does not; tokenizer.json \
                 counts",
                settings_path.display()
            ));
        }
    }
    Ok(lines)
}

impl Class {
    /// The class with which transformers 5 reads a folder, if it builds its tokenizer anew: by
    /// `tokenizer_config.json`, `config.json` and `tokenizer.json`.
    fn of(settings: &Value, model: &Value, tokenizer: &Value) -> Option<Self> {
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
        let class = [Self::Gpt2, Self::Llama, Self::Qwen2]
            .into_iter()
            .find(|class| class.name() == named)?;
        let has_bytes = ["pre_tokenizer", "decoder"].map(|part| tokenizer[part].to_string());
        let has_bytes = has_bytes.iter().any(|part| part.contains("\"ByteLevel\""));
        (class != Self::Llama || !has_bytes).then_some(class)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gpt2 => "GPT2Tokenizer",
            Self::Llama => "LlamaTokenizer",
            Self::Qwen2 => "Qwen2Tokenizer",
        }
    }

    /// The parts of a `tokenizer.json` that are not as this class builds them.
    fn differs(self, tokenizer: &Value, settings: &Value) -> Vec<&'static str> {
        let built = self.built(settings);
        let mut differs = Vec::new();
        for part in ["normalizer", "pre_tokenizer"] {
            if without_offsets(&tokenizer[part]) != built[part] {
                differs.push(part);
            }
        }
        let model = &tokenizer["model"];
        let of_model = built["model"].as_object().into_iter().flatten();
        let mut of_model = of_model.filter(|(key, value)| !is_alike(&model[key.as_str()], value));
        if of_model.next().is_some() {
            differs.push("model");
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
