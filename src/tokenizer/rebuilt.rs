//! Tokenizers that transformers 5 builds anew: some of its classes take the vocabulary and the merges from
//! `tokenizer.json`, and have rules of their own for the rest.

use std::path::Path;

use serde_json::Value;

use super::about::{CONFIG, json as read};
use super::class::Class;
use super::of_model::FILE;
use crate::error::{Error, Result};

/// Other classes with rules of their own, some of which add tokens around a text too.
const OTHERS: [&str; 20] = [
    "AlbertTokenizer",
    "BertTokenizer",
    "BlenderbotTokenizer",
    "CLIPTokenizer",
    "CamembertTokenizer",
    "CodeGenTokenizer",
    "CodeLlamaTokenizer",
    "CohereTokenizer",
    "DebertaTokenizer",
    "DebertaV2Tokenizer",
    "GPTNeoXTokenizer",
    "GemmaTokenizer",
    "NllbTokenizer",
    "Qwen3_5Tokenizer",
    "RobertaTokenizer",
    "T5Tokenizer",
    "WhisperTokenizer",
    "XGLMTokenizer",
    "XLMRobertaTokenizer",
    "XLNetTokenizer",
];

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
    if let Some(other) = other_class(&settings, &model) {
        lines.push(format!(
            "{}: transformers 5 reads this as a {other}, which has rules of its own: some texts may become \
             other tokens there. This program takes those of the file{CURE}",
            file.display()
        ));
    }
    let bytes = std::fs::read(&file).map_err(Error::io("read", &file))?;
    if let Some(class) = Class::of(&settings, &model, &bytes) {
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

/// A class that is none of [`Class`] and builds its tokenizer anew too.
fn other_class(settings: &Value, model: &Value) -> Option<&'static str> {
    let named = settings["tokenizer_class"].as_str()?;
    let named = named.strip_suffix("Fast").unwrap_or(named);
    let is_kept = matches!(
        model["model_type"].as_str(),
        Some("qwen2" | "mistral" | "mixtral")
    );
    OTHERS.into_iter().find(|name| *name == named && !is_kept)
}
