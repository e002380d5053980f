//! Small tokenizers of every kind, made here.

use serde_json::Map;

use super::*;

/// A folder with a tokenizer and the files beside it.
pub(super) fn folder(tokenizer: &Value, files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// The small tokenizer with these special tokens more, from 512 on.
pub(super) fn small_with(special: &[&str]) -> Value {
    let mut json: Value = serde_json::from_slice(&fs::read(golden("tokenizer.json")).unwrap()).unwrap();
    let added = json["added_tokens"].as_array_mut().unwrap();
    for (id, content) in (512..).zip(special) {
        added.push(special_token(id, content));
    }
    json
}

fn special_token(id: u32, content: &str) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    })
}

/// A tokenizer with `</s>` as token 0 and `<unk>` as token 1.
pub(super) fn made(model: Value, parts: Value) -> Value {
    let mut json = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "model": model,
        "added_tokens": [special_token(0, "</s>"), special_token(1, "<unk>")],
    });
    for (key, value) in parts.as_object().unwrap() {
        json[key] = value.clone();
    }
    json
}

fn vocabulary(tokens: impl IntoIterator<Item = String>) -> Map<String, Value> {
    let all = ["</s>".to_owned(), "<unk>".to_owned()].into_iter().chain(tokens);
    let mut vocabulary = Map::new();
    for token in all {
        let id = vocabulary.len();
        vocabulary.entry(token).or_insert(json!(id));
    }
    vocabulary
}

/// Pairs of characters as in Llama 2: `▁` for a space, and bytes for what is not in the vocabulary.
pub(super) fn pairs() -> Value {
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let letters = ('a'..='z').chain("▁.,éABCDEFGHIJKLMNOPQRSTUVWXYZ".chars()).map(String::from);
    let merges = ["t h", "th e", "▁ the", "a n", "an d", "▁ a", "▁ ▁", "i n", "in g", "▁▁ ▁▁"];
    let merged = merges.map(|pair| pair.replace(' ', ""));
    json!({
        "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
        "vocab": vocabulary(bytes.chain(letters).chain(merged)), "merges": merges,
    })
}

/// Pieces of words, as in BERT.
fn pieces() -> Value {
    let letters = ('a'..='z').chain(".,-?!0123456789".chars()).map(String::from);
    let inner = ('a'..='z').map(|letter| format!("##{letter}"));
    let words = ["the", "and", "##ing", "##nd"].map(str::to_owned);
    json!({
        "type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": vocabulary(letters.chain(inner).chain(words)),
    })
}

fn byte_level(add_prefix_space: bool) -> Value {
    json!({
        "type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": true,
    })
}

fn metaspace(scheme: &str) -> Value {
    json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false})
}

fn replace(from: &str, to: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": from}, "content": to})
}

fn sequence(key: &str, steps: &[Value]) -> Value {
    json!({"type": "Sequence", key: steps})
}

/// The decoder of Llama 2.
pub(super) fn of_bytes() -> Value {
    let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    let steps = [replace("▁", " "), json!({"type": "ByteFallback"}), json!({"type": "Fuse"}), strip];
    sequence("decoders", &steps)
}

/// How text becomes tokens, in every way that real models have; by name.
pub(super) fn kinds() -> Vec<(&'static str, Value)> {
    let prepended = sequence("normalizers", &[json!({"type": "Prepend", "prepend": "▁"}), replace(" ", "▁")]);
    let of_bert = json!({
        "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
        "lowercase": true,
    });
    let digits = json!({
        "type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|\s+|[^\s\p{N}]+"}, "behavior": "Isolated",
        "invert": false,
    });
    let mut with_space = small_with(&[]);
    with_space["pre_tokenizer"] = byte_level(true);
    let mut normalized = small_with(&[]);
    normalized["normalizer"] =
        sequence("normalizers", &[json!({"type": "NFKC"}), json!({"type": "Lowercase"})]);
    let pieces = json!({
        "normalizer": of_bert, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    });
    vec![
        ("byte-level", small_with(&[])),
        ("byte-level with a space before", with_space),
        ("normalized", normalized),
        ("prepended", made(pairs(), json!({"normalizer": prepended, "decoder": of_bytes()}))),
        (
            "metaspace before all",
            made(pairs(), json!({"pre_tokenizer": metaspace("always"), "decoder": metaspace("always")})),
        ),
        (
            "metaspace before the first",
            made(pairs(), json!({"pre_tokenizer": metaspace("first"), "decoder": of_bytes()})),
        ),
        ("word pieces", made(self::pieces(), pieces)),
        ("digits by three", made(pairs(), json!({"pre_tokenizer": digits, "decoder": of_bytes()}))),
        ("a fixed length", made(pairs(), json!({"pre_tokenizer": {"type": "FixedLength", "length": 7}}))),
    ]
}

/// How tokens become text, in every way that there is; by name.
pub(super) fn decoders() -> Vec<(&'static str, Value)> {
    let fused = json!({"type": "Fuse"});
    let strip = |start, stop| json!({"type": "Strip", "content": "a", "start": start, "stop": stop});
    let joined = sequence("decoders", &[fused.clone(), replace("nd", "+")]);
    let bytes = sequence("decoders", &[json!({"type": "ByteFallback"}), json!({"type": "Fuse"})]);
    let of_pairs = [
        ("none", Value::Null),
        ("bytes", bytes),
        ("bytes of Llama 2", of_bytes()),
        ("metaspace", metaspace("always")),
        ("replaced in tokens", replace("▁", "_")),
        ("replaced in the whole", joined),
        ("stripped", sequence("decoders", &[fused.clone(), strip(1, 0)])),
        ("stripped behind", sequence("decoders", &[fused, strip(0, 2)])),
        ("ends of words", json!({"type": "BPEDecoder", "suffix": "e"})),
        ("repeated", json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "▁", "cleanup": true})),
    ];
    let mut all: Vec<_> = of_pairs
        .into_iter()
        .map(|(name, decoder)| (name, made(pairs(), json!({"decoder": decoder}))))
        .collect();
    let of_pieces = |cleanup| json!({"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}});
    all.push(("byte-level", small_with(&["<s>"])));
    all.push(("word pieces", made(pieces(), of_pieces(false))));
    all.push(("word pieces, cleaned", made(pieces(), of_pieces(true))));
    all
}
