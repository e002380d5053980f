//! The vocabulary of a file as a `tokenizer.json`.

use serde_json::{Map, Value as Json, json};

use super::file::Gguf;

/// What splits text before pairs are merged: the name in the file, a regular expression for words, and
/// whether each digit is a word.
const SPLITS: [(&str, Option<&str>, bool); 4] = [
    ("smollm", None, true),
    ("gpt-2", None, false),
    (OF_LLAMA_3, Some(LLAMA_3), false),
    (OF_QWEN_2, Some(QWEN_2), false),
];

/// The name of Llama 3's. Its text begins with a token, unless the file says otherwise, and a word that is a
/// token is not split.
const OF_LLAMA_3: &str = "llama-bpe";

/// The name of Qwen-2's. What looks the same in Unicode has the same tokens: it is composed first (NFC).
const OF_QWEN_2: &str = "qwen2";

const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// The kinds of tokens that are not made by merging.
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// The files of a tokenizer: names and texts. `None`: a vocabulary of another kind than pairs of bytes.
pub(super) fn files(file: &Gguf) -> Option<Vec<(&'static str, String)>> {
    let value = |key: &str| file.values.get(&format!("tokenizer.ggml.{key}"));
    if value("model")?.as_str()? != "gpt2" {
        return None;
    }
    let split = value("pre").and_then(Json::as_str).unwrap_or("gpt-2");
    let (_, words, digits) = SPLITS.into_iter().find(|(name, ..)| *name == split)?;
    let tokens: Vec<&str> = value("tokens")?.as_array()?.iter().filter_map(Json::as_str).collect();
    let kinds = value("token_type").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let merges: Vec<&str> = value("merges")?.as_array()?.iter().filter_map(Json::as_str).collect();
    let kind = |index: usize| kinds.get(index).and_then(Json::as_i64).unwrap_or(1);
    let added = |(index, token): (usize, &&str)| {
        let special = kind(index) == CONTROL;
        (special || kind(index) == USER_DEFINED).then(|| {
            json!({
                "id": index, "content": token, "special": special, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        })
    };
    let added: Vec<Json> = tokens.iter().enumerate().filter_map(added).collect();
    let id = |(index, token): (usize, &&str)| ((*token).to_owned(), Json::from(index));
    let vocabulary: Map<String, Json> = tokens.iter().enumerate().map(id).collect();
    let merges: Vec<Vec<&str>> = merges.iter().map(|pair| pair.splitn(2, ' ').collect()).collect();
    let bytes = |regex: bool| {
        let mut bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true});
        bytes["use_regex"] = json!(regex);
        bytes
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": (split == OF_QWEN_2).then(|| json!({"type": "NFC"})),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pretokenizers(words, digits, &bytes)},
        "post_processor": ends(file, &tokens),
        "decoder": bytes(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": split == OF_LLAMA_3,
            "vocab": vocabulary, "merges": merges,
        },
    });
    Some(vec![
        ("tokenizer.json", format!("{tokenizer}\n")),
        ("tokenizer_config.json", format!("{:#}\n", about(file, &tokens))),
    ])
}

fn pretokenizers(words: Option<&str>, digits: bool, bytes: &dyn Fn(bool) -> Json) -> Vec<Json> {
    let mut all = Vec::new();
    if digits {
        all.push(json!({"type": "Digits", "individual_digits": true}));
    }
    if let Some(words) = words {
        let pattern = json!({"Regex": words});
        all.push(json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false}));
    }
    all.push(bytes(words.is_none()));
    all
}

/// `tokenizer_config.json`: the names of special tokens, and how a chat is written.
fn about(file: &Gguf, tokens: &[&str]) -> Json {
    let mut about = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": false,
        "clean_up_tokenization_spaces": false,
    });
    let [begins, ends] = adds(file);
    about["add_bos_token"] = json!(begins);
    about["add_eos_token"] = json!(ends);
    for (key, id) in [("bos_token", "bos"), ("eos_token", "eos"), ("pad_token", "padding")] {
        if let Some(token) = id_of(file, id).and_then(|id| tokens.get(id as usize)) {
            about[key] = json!(token);
        }
    }
    if let Some(template) = file.values.get("tokenizer.chat_template").and_then(Json::as_str) {
        about["chat_template"] = json!(template);
    }
    about
}

/// Whether a text begins and whether it ends with a token of its own.
fn adds(file: &Gguf) -> [bool; 2] {
    let value = |key: &str| file.values.get(&format!("tokenizer.ggml.{key}"));
    let split = value("pre").and_then(Json::as_str);
    let flag = |key: &str, default| value(key).and_then(Json::as_bool).unwrap_or(default);
    [flag("add_bos_token", split == Some(OF_LLAMA_3)), flag("add_eos_token", false)]
}

/// The post-processor that adds the tokens with which a text begins and ends.
fn ends(file: &Gguf, tokens: &[&str]) -> Json {
    let mut special = Map::new();
    let mut token = |adds: bool, name: &str| {
        let id = id_of(file, name).filter(|_| adds)?;
        let token = *tokens.get(usize::try_from(id).ok()?)?;
        special.insert(token.to_owned(), json!({"id": token, "ids": [id], "tokens": [token]}));
        Some(token)
    };
    let [begins, ends] = adds(file);
    let (first, last) = (token(begins, "bos"), token(ends, "eos"));
    if first.is_none() && last.is_none() {
        return Json::Null;
    }
    let one = |text: &str, place: usize| {
        let token =
            |token: Option<&str>| token.map(|token| json!({"SpecialToken": {"id": token, "type_id": place}}));
        let text = Some(json!({"Sequence": {"id": text, "type_id": place}}));
        [token(first), text, token(last)].into_iter().flatten().collect::<Vec<_>>()
    };
    let pair = [one("A", 0), one("B", 1)].concat();
    json!({
        "type": "TemplateProcessing",
        "single": one("A", 0),
        "pair": pair,
        "special_tokens": special,
    })
}

/// `generation_config.json`: the tokens with which a text begins and ends. Those that end a turn or a message
/// end a text too.
pub(super) fn generation(file: &Gguf) -> String {
    let mut generation = json!({});
    for (key, id) in [("bos_token_id", "bos"), ("pad_token_id", "padding")] {
        if let Some(id) = id_of(file, id) {
            generation[key] = json!(id);
        }
    }
    let mut ends: Vec<i64> = ["eos", "eot", "eom"].iter().filter_map(|name| id_of(file, name)).collect();
    ends.sort_unstable();
    ends.dedup();
    match ends[..] {
        [] => {}
        [end] => generation["eos_token_id"] = json!(end),
        _ => generation["eos_token_id"] = json!(ends),
    }
    format!("{generation:#}\n")
}

fn id_of(file: &Gguf, name: &str) -> Option<i64> {
    file.values.get(&format!("tokenizer.ggml.{name}_token_id"))?.as_i64()
}
