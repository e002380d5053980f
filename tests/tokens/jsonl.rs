use pipewright::data::{Form, LossOn, Recipe, Template};

use super::encoding::tokens;
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
    Recipe {
        field: "messages".to_owned(),
        ..Recipe::new(Form::Jsonl)
    }
}

#[test]
fn a_line_is_a_document_and_empty_lines_are_none() {
    let (_folder, path) = lines(&[
        r#"{"text": "one\ntwo", "id": 1}"#,
        "",
        r#"{"text": "\u00e9"}"#,
        " ",
    ]);
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
        let answers = Recipe {
            loss_on: LossOn::Answers,
            ..chats()
        };
        for (token, of_answer) in expected.iter_mut().zip(chat["of_answer"].as_array().unwrap()) {
            *token |= if of_answer.as_bool().unwrap() {
                0
            } else {
                NO_TARGET
            };
        }
        expected.push(NO_TARGET);
        assert_eq!(tokens(&paths, &answers).unwrap(), expected);
    }
}

#[test]
fn the_template_of_llama_3_has_headers_and_trims_the_contents() {
    let line =
        r#"{"messages": [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "ho"}]}"#;
    let (_folder, path) = lines(&[line]);
    let recipe = Recipe {
        template: Template::Llama3,
        ..chats()
    };
    let text = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>\
                <|start_header_id|>assistant<|end_header_id|>\n\nho<|eot_id|>";
    let expected = [small().encode(text).unwrap(), vec![0]].concat();
    assert_eq!(tokens(&[path], &recipe).unwrap(), expected);
}

#[test]
fn a_broken_line_is_refused_with_its_file_and_number() {
    let mut text = vec![r#"{"text": "fine"}"#; 30];
    text[16] = r#"{"text": "cut off"#;
    let said = refused(&text, &Recipe::new(Form::Jsonl));
    assert!(
        said.contains("data.jsonl` line 17 is broken JSON, at column 17"),
        "{said}"
    );
}

#[test]
fn a_line_that_is_no_document_is_refused_with_what_it_has() {
    let plain = Recipe::new(Form::Jsonl);
    let answers = Recipe {
        loss_on: LossOn::Answers,
        ..plain.clone()
    };
    let cases: [(&str, &Recipe, &str); 9] = [
        (
            r#"{"a": 1, "b": 2}"#,
            &plain,
            r#"line 2 has no field "text" (data.field), only "a", "b""#,
        ),
        (r#"{"text": 3}"#, &plain, r#"line 2 has a number in "text""#),
        ("[1, 2]", &plain, "line 2 is a list and not an object"),
        ("[", &plain, "line 2 is the beginning of a list and not an object"),
        (r#"{"text": "x"}"#, &answers, "line 2 is a text without answers"),
        (
            r#"{"messages": [{"role": "user"}]}"#,
            &chats(),
            r#"has no text "content" in message 1"#,
        ),
        (
            r#"{"messages": ["hello"]}"#,
            &chats(),
            r#"has no text "role" in message 1"#,
        ),
        (
            r#"{"messages": null}"#,
            &chats(),
            r#"line 2 has null in "messages""#,
        ),
        (
            r#"{"text": "x"} {"text": "y"}"#,
            &plain,
            "line 2 is broken JSON, at column 15",
        ),
    ];
    for (line, recipe, expected) in cases {
        let said = refused(&["", line], recipe);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn lines_of_a_folder_are_read_in_the_order_of_its_files() {
    let (folder, _) = lines(&[r#"{"text": "b"}"#]);
    fs::write(folder.path().join("a.jsonl"), r#"{"text": "a"}"#).unwrap();
    fs::write(folder.path().join("README.txt"), "no data").unwrap();
    let expected: Vec<u32> = ["a", "b"]
        .iter()
        .flat_map(|text| [small().encode(text).unwrap(), vec![0]].concat())
        .collect();
    assert_eq!(
        tokens(&[folder.path().to_owned()], &Recipe::new(Form::Jsonl)).unwrap(),
        expected
    );
    let empty = TempDir::new().unwrap();
    let said = message(tokens(&[empty.path().to_owned()], &Recipe::new(Form::Jsonl)));
    assert!(
        said.contains("holds no file whose name ends in `.jsonl`"),
        "{said}"
    );
}
