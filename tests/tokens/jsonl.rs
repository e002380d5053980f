use super::encoding::{tokens, tokens_by};
use super::kinds::{folder, small_with};
use super::*;

/// The bit of a token that is no target.
const NO_TARGET: u32 = 1 << 31;

fn lines(lines: &[&str]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    (folder, path)
}

fn refused(text: &[&str], recipe: &Recipe) -> String {
    let (_folder, path) = lines(text);
    message(tokens(&[path], recipe))
}

fn chats() -> Recipe {
    Recipe { field: "messages".to_owned(), ..Recipe::new(Form::Jsonl) }
}

#[test]
fn a_line_is_a_document_and_empty_lines_are_none() {
    let (_folder, path) = lines(&[r#"{"text": "one\ntwo", "id": 1}"#, "", r#"{"text": "\u00e9"}"#, " "]);
    let document = |text: &str| [small().encode(text).unwrap(), vec![0]].concat();
    let expected = [document("one\ntwo"), document("é")].concat();
    assert_eq!(tokens(&[path], &Recipe::new(Form::Jsonl)).unwrap(), expected);
}

#[test]
fn a_chat_has_the_tokens_that_python_gives_and_counts_on_the_same_of_them() {
    for chat in encoded()["chats"].as_array().unwrap() {
        let line = serde_json::json!({ "messages": chat["messages"] }).to_string();
        let (_folder, path) = lines(&[&line]);
        let mut expected = tokens_of(&chat["tokens"]);
        let paths = [path];
        let all = tokens(&paths, &chats()).unwrap();
        assert_eq!(all, [&expected[..], &[0]].concat());
        let answers = Recipe { loss_on: LossOn::Answers, ..chats() };
        for (token, of_answer) in expected.iter_mut().zip(chat["of_answer"].as_array().unwrap()) {
            *token |= if of_answer.as_bool().unwrap() { 0 } else { NO_TARGET };
        }
        expected.push(NO_TARGET);
        assert_eq!(tokens(&paths, &answers).unwrap(), expected);
    }
}

#[test]
fn the_template_of_llama_3_has_headers_and_trims_the_contents() {
    let marks = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];
    let tokenizer = folder(&small_with(&marks), &[]);
    let tokenizer = Tokenizer::read(tokenizer.path()).unwrap();
    let line =
        r#"{"messages": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "ho"}]}"#;
    let (_folder, path) = lines(&[line]);
    let recipe = Recipe { template: Some(Template::Llama3), ..chats() };
    let text = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>\
                <|start_header_id|>assistant<|end_header_id|>\n\nho<|eot_id|>";
    let expected = [tokenizer.encode(text).unwrap(), vec![0]].concat();
    assert_eq!(tokens_by(&tokenizer, std::slice::from_ref(&path), &recipe).unwrap(), expected);
    let said = message(tokens(&[path], &recipe));
    has(&said, &["has no token `<|begin_of_text|>`, which the template \"llama3\""]);
}

/// The texts of the parts of a chat that are answers, by the tokenizer's own template.
fn answers(template: &str, chat: &Value) -> pipewright::Result<Vec<String>> {
    let config = r#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
    let files = [("tokenizer_config.json", config), ("chat_template.jinja", template)];
    let mut json = small_with(&["<s>", "</s>", "<end_of_turn>", "<|eot_id|>"]);
    json["post_processor"] = serde_json::json!({
        "type": "BertProcessing", "sep": ["</s>", 513], "cls": ["<s>", 512],
    });
    let folder = folder(&json, &files);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    let (_lines, path) = lines(&[&serde_json::json!({ "messages": chat }).to_string()]);
    let recipe = Recipe { loss_on: LossOn::Answers, ..chats() };
    let tokens = tokens_by(&tokenizer, &[path], &recipe)?;
    // Tokens are added to texts, not to chats, whose templates write them.
    assert!(tokens.iter().filter(|&&token| token & !NO_TARGET == 512).count() <= 2);
    let parts = tokens.split(|token| token & NO_TARGET != 0).filter(|part| !part.is_empty());
    parts.map(|part| tokenizer.decode(part)).collect()
}

/// A chat with two answers: one has white space around it, and the other a thought.
fn two_answers() -> Value {
    json!([
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": " Hello \n"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb"},
    ])
}

/// A template of ours, as in `tests/golden/chats`.
fn own(name: &str) -> String {
    fs::read_to_string(golden("../chats").join(name)).unwrap()
}

#[test]
fn answers_are_found_in_the_text_of_any_template() {
    let expected = [
        ("headers.jinja", "Hello<|eot_id|>", "<think>\nhm\n</think>\n\nb<|eot_id|>"),
        ("brackets.jinja", " Hello</s>", " <think>\nhm\n</think>\n\nb</s>"),
        ("turns.jinja", "Hello<end_of_turn>", "<think>\nhm\n</think>\n\nb<end_of_turn>"),
        ("thoughts.jinja", " Hello \n<|im_end|>", "<think>\nhm\n</think>\n\nb<|im_end|>"),
    ];
    for (name, first, second) in expected {
        assert_eq!(answers(&own(name), &two_answers()).unwrap(), [first, second], "{name}");
    }
}

#[test]
fn a_template_that_rewrites_earlier_answers_is_refused_with_the_cure() {
    let (source, mut chat) = (own("thoughts.jinja"), two_answers());
    let [first, second] = [1, 3].map(|index| chat[index]["content"].clone());
    (chat[1]["content"], chat[3]["content"]) = (second, first);
    has(
        &message(answers(&source, &chat)),
        &["data.jsonl` line 1 is a chat, and the tokenizer's chat template writes message 2 otherwise when \
             others follow it, so answers cannot be told from it: set data.loss_on to \"all\""],
    );
    let begun = chat.as_array().unwrap()[..2].to_vec();
    let found = answers(&source, &Value::Array(begun)).unwrap();
    assert_eq!(found, ["<think>\nhm\n</think>\n\nb<|im_end|>"]);
}

#[test]
fn a_broken_line_is_refused_with_its_file_and_number() {
    let mut text = vec![r#"{"text": "fine"}"#; 30];
    text[16] = r#"{"text": "cut off"#;
    has(&refused(&text, &Recipe::new(Form::Jsonl)), &["data.jsonl` line 17 is broken JSON, at column 17"]);
}

#[test]
fn a_line_that_is_no_document_is_refused_with_what_it_has() {
    let plain = Recipe::new(Form::Jsonl);
    let answers = Recipe { loss_on: LossOn::Answers, ..plain.clone() };
    let cases: [(&str, &Recipe, &str); 9] = [
        (r#"{"a": 1, "b": 2}"#, &plain, r#"line 2 has no field "text" (data.field), only "a", "b""#),
        (r#"{"text": 3}"#, &plain, r#"line 2 has a number in "text""#),
        ("[1, 2]", &plain, "line 2 is a list and not an object"),
        ("[", &plain, "line 2 is the beginning of a list and not an object"),
        (r#"{"text": "x"}"#, &answers, "line 2 is a text without answers"),
        (r#"{"messages": [{"role": "user"}]}"#, &chats(), r#"has no text "content" in message 1"#),
        (r#"{"messages": ["hello"]}"#, &chats(), r#"has no text "role" in message 1"#),
        (r#"{"messages": null}"#, &chats(), r#"line 2 has null in "messages""#),
        (r#"{"text": "x"} {"text": "y"}"#, &plain, "line 2 is broken JSON, at column 15"),
    ];
    for (line, recipe, expected) in cases {
        has(&refused(&["", line], recipe), &[expected]);
    }
}

#[test]
fn lines_of_a_folder_are_read_in_the_order_of_its_files() {
    let (folder, _) = lines(&[r#"{"text": "b"}"#]);
    fs::write(folder.path().join("a.jsonl"), r#"{"text": "a"}"#).unwrap();
    fs::write(folder.path().join("README.txt"), "no data").unwrap();
    let expected: Vec<u32> =
        ["a", "b"].iter().flat_map(|text| [small().encode(text).unwrap(), vec![0]].concat()).collect();
    assert_eq!(tokens(&[folder.path().to_owned()], &Recipe::new(Form::Jsonl)).unwrap(), expected);
    let empty = TempDir::new().unwrap();
    let said = message(tokens(&[empty.path().to_owned()], &Recipe::new(Form::Jsonl)));
    has(&said, &["holds no file whose name ends in `.jsonl`"]);
}

#[test]
fn a_chat_whose_template_writes_the_end_ends_once() {
    let config = r#"{"bos_token": "<s>", "eos_token": "</s>"}"#;
    let template = "{{ bos_token }}{% for message in messages %}[{{ message.role }}]{{ message.content }}\
                    {% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
    let files = [("tokenizer_config.json", config), ("chat_template.jinja", template)];
    let folder = folder(&small_with(&["<s>", "</s>"]), &files);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    for (last, ends) in [("assistant", 1), ("user", 1)] {
        let chat = serde_json::json!({"messages": [
            {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
            {"role": last, "content": "three"},
        ]});
        let (_lines, path) = lines(&[&chat.to_string()]);
        for loss_on in [LossOn::All, LossOn::Answers] {
            let recipe = Recipe { loss_on, end_of_text: Some("</s>".to_owned()), ..chats() };
            let tokens = tokens_by(&tokenizer, std::slice::from_ref(&path), &recipe).unwrap();
            let at_end = tokens.iter().rev().take_while(|&&token| token & !NO_TARGET == 513);
            assert_eq!(at_end.count(), ends, "{last} {loss_on:?}: {tokens:?}");
        }
    }
}
