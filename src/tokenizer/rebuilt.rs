//! Tokenizers that transformers 5 builds anew: some of its classes take the vocabulary and the merges from
//! `tokenizer.json`, and have rules of their own for the rest.

use std::path::Path;

use serde_json::Value;

use super::class::Class;
use super::files::{CONFIG, bytes, json};
use super::of_model::FILE;
use crate::error::Result;

/// Other classes for text with rules of their own. Some of them add tokens around a text too.
const OTHERS: &[&str] = &[
    "AlbertTokenizer",
    "BarthezTokenizer",
    "BertTokenizer",
    "BigBirdTokenizer",
    "BlenderbotTokenizer",
    "CLIPTokenizer",
    "CamembertTokenizer",
    "CodeGenTokenizer",
    "CodeLlamaTokenizer",
    "CohereTokenizer",
    "DebertaTokenizer",
    "DebertaV2Tokenizer",
    "DistilBertTokenizer",
    "FNetTokenizer",
    "FunnelTokenizer",
    "GPTNeoXTokenizer",
    "GemmaTokenizer",
    "HerbertTokenizer",
    "LukeTokenizer",
    "MBartTokenizer",
    "MBart50Tokenizer",
    "MPNetTokenizer",
    "NllbTokenizer",
    "OpenAIGPTTokenizer",
    "PegasusTokenizer",
    "Qwen3_5Tokenizer",
    "ReformerTokenizer",
    "RemBertTokenizer",
    "RobertaTokenizer",
    "SeamlessM4TTokenizer",
    "SplinterTokenizer",
    "T5Tokenizer",
    "WhisperTokenizer",
    "XGLMTokenizer",
    "XLMRobertaTokenizer",
    "XLNetTokenizer",
];

/// What makes transformers read a folder as this program does.
const CURE: &str =
    "; with tokenizer_class PreTrainedTokenizerFast in tokenizer_config.json, transformers takes them too";

/// Lines about what transformers does with the tokenizer of this file or folder and this program does not.
/// None about what is no tokenizer: [`Tokenizer::read`](super::Tokenizer::read) refuses that.
///
/// # Errors
/// When a file beside it cannot be read, or is not JSON.
pub fn told_of_tokenizer(path: &Path) -> Result<Vec<String>> {
    let file = match path.is_dir() {
        true => path.join(FILE),
        false => path.to_owned(),
    };
    let Some(bytes) = bytes(&file)? else {
        return Ok(Vec::new());
    };
    let folder = file.parent().unwrap_or(path);
    let settings_path = folder.join(CONFIG);
    let (settings, model) = (json(&settings_path)?, json(&folder.join("config.json"))?);
    let mut lines = Vec::new();
    if let Some(other) = other_class(&settings, &model) {
        lines.push(format!(
            "{}: transformers 5 reads this as a {other}, which has rules of its own: some texts may become \
             other tokens there. This program takes the rules of the file{CURE}",
            file.display()
        ));
    }
    if let Some(class) = Class::of(&settings, &model, &bytes) {
        let tokenizer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let differs = match tokenizer.is_object() {
            true => class.differs(&tokenizer, &settings),
            false => Vec::new(),
        };
        if !differs.is_empty() {
            let cure = match model["model_type"].as_str() {
                Some("qwen2") => "",
                _ => CURE,
            };
            lines.push(format!(
                "{}: transformers 5 reads this as a {}, which has rules of its own in place of the file's \
                 {}: some texts become other tokens there. This program takes the rules of the file{cure}",
                file.display(),
                class.name(),
                differs.join(" and ")
            ));
        }
    }
    for key in
        ["fix_mistral_regex", "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"]
    {
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

/// A class that is none of [`Class`] and builds its tokenizer anew too.
fn other_class(settings: &Value, model: &Value) -> Option<&'static str> {
    let named = settings["tokenizer_class"].as_str()?;
    let named = named.strip_suffix("Fast").unwrap_or(named);
    let is_kept = matches!(model["model_type"].as_str(), Some("qwen2" | "mistral" | "mixtral"));
    OTHERS.iter().copied().find(|name| *name == named && !is_kept)
}
