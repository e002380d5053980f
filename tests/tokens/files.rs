//! What the files beside a `tokenizer.json` change, and how transformers finds words: against its tokens.

use pipewright::tokenizer::told_of_tokenizer;

use super::kinds::folder;
use super::*;

/// The small tokenizer with these parts in place of its own, and without padding.
fn small_with_parts(parts: &Value) -> Value {
    let mut json: Value = serde_json::from_slice(&fs::read(golden("tokenizer.json")).unwrap()).unwrap();
    json["padding"] = Value::Null;
    for (key, value) in parts.as_object().unwrap() {
        json[key] = value.clone();
    }
    json
}

#[test]
fn texts_have_the_tokens_of_transformers_whatever_stands_beside_a_tokenizer() {
    let golden: Value = serde_json::from_slice(&fs::read(golden("files.json")).unwrap()).unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let files = case["files"].as_object().unwrap().iter();
        let files: Vec<_> = files.map(|(name, text)| (name.as_str(), text.as_str().unwrap())).collect();
        let folder = folder(&small_with_parts(&case["patch"]), &files);
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        for pair in case["texts"].as_array().unwrap() {
            let (text, expected) = (pair[0].as_str().unwrap(), tokens_of(&pair[1]));
            assert_eq!(tokenizer.encode(text).unwrap(), expected, "{}: {text:?}", case["name"]);
        }
    }
}

#[test]
fn a_token_that_only_a_file_beside_adds_may_be_unknown_to_the_model() {
    let beside = json!({"pad_token": "<pad>"}).to_string();
    let folder = folder(&small_with_parts(&json!({})), &[("tokenizer_config.json", &beside)]);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    assert_eq!([tokenizer.vocabulary(), tokenizer.all_tokens()], [512, 513]);
    tokenizer.check_vocabulary(512).unwrap();
    has(&message(tokenizer.check_vocabulary(511)), &["512", "511"]);
}

#[test]
fn lists_of_what_is_no_token_are_refused_by_key() {
    for (beside, key) in [
        (json!({"added_tokens_decoder": {"512": "<x>"}}), "added_tokens_decoder"),
        (json!({"added_tokens_decoder": {"x": {"content": "<x>"}}}), "added_tokens_decoder"),
        (json!({"additional_special_tokens": [3]}), "extra_special_tokens"),
        (json!({"extra_special_tokens": {"x": {}}}), "extra_special_tokens"),
    ] {
        let folder = folder(&small_with_parts(&json!({})), &[("tokenizer_config.json", &beside.to_string())]);
        let said = message(Tokenizer::read(folder.path()));
        let expected = format!(
            "tokenizer_config.json` `{key}` has something that is no token: expected texts, or objects with \
             `content`"
        );
        has(&said, &[&expected]);
    }
}

#[test]
fn what_transformers_builds_anew_is_told_unless_it_is_the_same() {
    let of_gpt2 = json!({
        "normalizer": null,
        "pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
        },
    });
    let of_llama = json!({
        "normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "decoder": {"type": "Fuse"},
        "post_processor": null,
    });
    let small = json!({});
    let rules = "normalizer and pre_tokenizer";
    let fast = json!({"tokenizer_class": "PreTrainedTokenizerFast"});
    let with_prefix = json!({"add_prefix_space": true});
    for (parts, settings, model_type, expected) in [
        (&small, json!({}), None, None),
        (&small, fast.clone(), Some("qwen3"), None),
        (&small, json!({"tokenizer_class": "Qwen2Tokenizer"}), None, None),
        (&small, json!({}), Some("qwen3"), None),
        (&small, with_prefix.clone(), Some("qwen2"), Some(("Qwen2Tokenizer", "pre_tokenizer"))),
        (&of_gpt2, fast.clone(), Some("qwen2"), Some(("Qwen2Tokenizer", rules))),
        (&small, json!({"tokenizer_class": "GPT2TokenizerFast"}), None, Some(("GPT2Tokenizer", rules))),
        (&small, json!({}), Some("gpt2"), Some(("GPT2Tokenizer", rules))),
        (&of_gpt2, json!({}), Some("gpt2"), None),
        (&of_gpt2, with_prefix.clone(), Some("gpt2"), Some(("GPT2Tokenizer", "pre_tokenizer"))),
        // A Llama of bytes is read as it is.
        (&small, json!({"tokenizer_class": "LlamaTokenizer"}), Some("llama"), None),
        (
            &of_llama,
            json!({"tokenizer_class": "LlamaTokenizerFast"}),
            Some("llama"),
            Some(("LlamaTokenizer", "model")),
        ),
        (&of_llama, json!({"tokenizer_class": "LlamaTokenizer"}), Some("mistral"), None),
    ] {
        let (settings, model) = (settings.to_string(), json!({"model_type": model_type}).to_string());
        let files = [("tokenizer_config.json", &*settings), ("config.json", &*model)];
        let folder = folder(&small_with_parts(parts), &files);
        let told = told_of_tokenizer(folder.path()).unwrap();
        match expected {
            None => assert_eq!(told, Vec::<String>::new(), "{settings} {model}"),
            Some((class, parts)) => {
                let words = format!(
                    "reads this as a {class}, which has rules of its own in place of the file's {parts}: "
                );
                assert!(told.len() == 1 && told[0].contains(&words), "{settings} {model}: {told:?}");
                let has_cure = told[0].ends_with("in tokenizer_config.json, transformers takes them too");
                assert_eq!(has_cure, model_type != Some("qwen2"));
            }
        }
    }
}

#[test]
fn classes_that_cannot_be_compared_and_lists_that_are_not_whole_are_told() {
    let decoder = json!({"0": {"content": "<|endoftext|>", "special": true}});
    for (settings, expected) in [
        (
            json!({"tokenizer_class": "CodeLlamaTokenizerFast"}),
            "reads this as a CodeLlamaTokenizer, which has rules of its own: some texts may become other",
        ),
        (
            json!({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder}),
            "in place of the file's added_tokens: ",
        ),
    ] {
        let folder =
            folder(&small_with_parts(&json!({})), &[("tokenizer_config.json", &settings.to_string())]);
        let told = told_of_tokenizer(folder.path()).unwrap();
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
    }
}

#[test]
fn what_is_no_tokenizer_has_nothing_to_be_told_and_is_not_waited_for() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    let told = || told_of_tokenizer(folder.path()).unwrap();
    assert_eq!(told(), Vec::<String>::new());
    let file = folder.path().join("tokenizer.json");
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    assert_eq!(told(), Vec::<String>::new());
    fs::remove_file(&file).unwrap();
    for text in ["", "[]", "{"] {
        fs::write(&file, text).unwrap();
        assert_eq!(told(), Vec::<String>::new());
    }
}
