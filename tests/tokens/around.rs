//! What a tokenizer adds around a text.

use super::kinds::{folder, small_with};
use super::*;

/// The small tokenizer with `<s>` as token 512 and `</s>` as token 513, with a post-processor that adds some
/// of them.
fn around(before: &[&str], after: &[&str]) -> Value {
    let added = |names: &[&str]| -> Vec<Value> {
        let one = |name| serde_json::json!({"SpecialToken": {"id": name, "type_id": 0}});
        names.iter().map(one).collect()
    };
    let text = vec![serde_json::json!({"Sequence": {"id": "A", "type_id": 0}})];
    let single = [added(before), text, added(after)].concat();
    let mut json = small_with(&["<s>", "</s>"]);
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": single,
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "<s>": {"id": "<s>", "ids": [512], "tokens": ["<s>"]},
            "</s>": {"id": "</s>", "ids": [513], "tokens": ["</s>"]},
        },
    });
    json
}

/// The tokens before and after a text, as transformers 5.24 adds them:
/// `AutoTokenizer.from_pretrained(folder)(text)` of these tokenizers. It does not look at the two keys of the
/// settings if there is a `tokenizer.json`.
#[test]
fn a_text_has_around_it_what_transformers_adds() {
    let config = |keys: &str| format!(r#"{{"bos_token": "<s>", "eos_token": {{"content": "</s>"}}{keys}}}"#);
    let adds = r#", "add_bos_token": true, "add_eos_token": true"#;
    type Case<'a> = (Value, Option<String>, &'a [u32], &'a [u32]);
    let cases: [Case<'_>; 6] = [
        (small_with(&["<s>", "</s>"]), None, &[], &[]),
        (small_with(&["<s>", "</s>"]), Some(config(adds)), &[], &[]),
        (around(&["<s>"], &[]), None, &[512], &[]),
        (around(&["<s>"], &[]), Some(config(r#", "add_bos_token": false"#)), &[512], &[]),
        (around(&[], &["</s>"]), Some(config("")), &[], &[513]),
        (around(&["<s>"], &["</s>"]), None, &[512], &[513]),
    ];
    let inner = small().encode_bare("Hear me").unwrap();
    for (json, config, begin, end) in cases {
        let files: Vec<_> = config.iter().map(|text| ("tokenizer_config.json", text.as_str())).collect();
        let folder = folder(&json, &files);
        for path in [folder.path().to_owned(), folder.path().join("tokenizer.json")] {
            let tokenizer = Tokenizer::read(&path).unwrap();
            let whole = tokenizer.encode("Hear me").unwrap();
            assert_eq!(whole, [begin, &inner, end].concat(), "{config:?}");
            assert_eq!(tokenizer.encode_bare("Hear me").unwrap(), inner);
            assert_eq!(tokenizer.around(), [begin, end]);
        }
    }
}

#[test]
fn settings_that_are_broken_are_refused() {
    let folder = folder(&small_with(&[]), &[("tokenizer_config.json", "{")]);
    has(&message(Tokenizer::read(folder.path())), &["tokenizer_config.json` is no JSON: EOF"]);
}

/// The tokens of a file by a recipe.
fn encoded(tokenizer: &Tokenizer, path: PathBuf, recipe: &Recipe) -> Vec<u32> {
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out.bin");
    let mut writer = TokenWriter::create(&out, Width::U32).unwrap();
    recipe.encode(&[path], tokenizer, &mut writer, &mut |_| ()).unwrap();
    writer.finish(false).unwrap();
    let bytes = fs::read(out).unwrap();
    bytes.as_chunks().0.iter().map(|token| u32::from_le_bytes(*token)).collect()
}

#[test]
fn each_document_begins_as_a_text_does_and_ends_once() {
    let text = small().encode("Hear me.").unwrap();
    let folder = folder(&around(&["<s>"], &["</s>"]), &[]);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    let (plain, lines) = (folder.path().join("a.txt"), folder.path().join("a.jsonl"));
    fs::write(&plain, "Hear me.").unwrap();
    fs::write(&lines, "{\"text\": \"Hear me.\"}\n".repeat(2)).unwrap();
    let recipe = |form, end: &str| Recipe { end_of_text: Some(end.to_owned()), ..Recipe::new(form) };
    let once = [&[512], &text[..], &[513]].concat();
    assert_eq!(encoded(&tokenizer, plain.clone(), &recipe(Form::Text, "</s>")), once);
    let other = [&once[..], &[0]].concat();
    assert_eq!(encoded(&tokenizer, plain, &recipe(Form::Text, "<|endoftext|>")), other);
    assert_eq!(encoded(&tokenizer, lines, &recipe(Form::Jsonl, "</s>")), once.repeat(2));
}

#[test]
fn other_files_beside_a_tokenizer_are_another_tokenizer() {
    let checksum = |json: &Value, files: &[(&str, &str)]| {
        let folder = folder(json, files);
        Tokenizer::read(folder.path()).unwrap().checksum()
    };
    let json = around(&["<s>"], &[]);
    let plain = checksum(&json, &[]);
    assert_eq!(checksum(&json, &[("README.md", "x")]), plain);
    assert_ne!(checksum(&around(&[], &[]), &[]), plain);
    let beside = |text: &str| checksum(&json, &[("tokenizer_config.json", text)]);
    assert_ne!(beside(r#"{"pad_token": "<pad>"}"#), plain);
    assert_ne!(beside(r#"{"split_special_tokens": true}"#), plain);
    let read = |files: &[(&str, &str)]| {
        let folder = folder(&json, files);
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        Recipe::new(Form::Jsonl).checksum(&[], &tokenizer).unwrap()
    };
    let chats = read(&[]);
    assert_ne!(read(&[("chat_template.jinja", "{{ messages }}")]), chats);
    assert_ne!(read(&[("tokenizer_config.json", r#"{"bos_token": "<s>"}"#)]), chats);
    // What only chats depend on makes no other tokens of a text.
    assert_eq!(beside(r#"{"bos_token": "<s>"}"#), plain);
    assert_eq!(checksum(&json, &[("chat_template.jinja", "{{ messages }}")]), plain);
}
