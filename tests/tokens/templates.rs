//! Templates of our own, which use what the templates of ten families of models use.

use pipewright::tokenizer::{ChatTemplate, Date};

use super::encoding::tokens_by;
use super::kinds::{folder, small_with};
use super::*;

fn chats(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/chats").join(name)
}

/// What transformers wrote with them: `scripts/chat_golden.py`.
fn written() -> Value {
    serde_json::from_slice(&fs::read(chats("written.json")).unwrap()).unwrap()
}

/// The chats, with the keys of objects in the order of the file.
fn given() -> Vec<Chat> {
    let text = fs::read_to_string(chats("written.json")).unwrap();
    let inside = text.split("\"chats\": [\n").nth(1).unwrap().split("\n],").next().unwrap();
    let date: Date = written()["now"].as_str().unwrap().parse().unwrap();
    let read = |line: &str| {
        let line = line.trim_end_matches(',').replace("\"settings\": ", "\"chat_template_kwargs\": ");
        Chat::read(&line).unwrap().dated(date)
    };
    inside.lines().map(read).collect()
}

fn template(special: &Value, source: &str) -> ChatTemplate {
    let special = special.to_string();
    let files = [("tokenizer_config.json", special.as_str()), ("chat_template.jinja", source)];
    let folder = folder(&small_with(&[]), &files);
    Tokenizer::read(folder.path()).unwrap().chat(None).unwrap()
}

#[test]
fn each_template_writes_what_transformers_writes() {
    let (written, given) = (written(), given());
    let mut wrong = Vec::new();
    for case in written["cases"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let number = case["chat"].as_u64().unwrap() as usize;
        let source = fs::read_to_string(chats(name)).unwrap();
        let messages = written["chats"][number]["messages"].as_array().unwrap();
        let asks = messages.last().unwrap()["role"] != "assistant";
        let ours = template(&written["special"], &source).text(&given[number], asks);
        let matches = match (&ours, case["text"].as_str()) {
            (Ok(ours), Some(theirs)) => ours == theirs,
            (Err(_), None) => true,
            _ => false,
        };
        if !matches {
            wrong.push(format!("{name}, chat {number}:\n  ours   {ours:?}\n  theirs {}", case));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The tokens of a chat in a file by this template, and for each whether it is of an answer.
fn learnt(messages: &Value, source: &str) -> pipewright::Result<(Vec<u32>, Vec<u64>)> {
    let folder = folder(&small_with(&[]), &[("chat_template.jinja", source)]);
    let path = folder.path().join("data.jsonl");
    fs::write(&path, json!({ "messages": messages }).to_string()).unwrap();
    let recipe =
        Recipe { field: "messages".to_owned(), loss_on: LossOn::Answers, ..Recipe::new(Form::Jsonl) };
    let tokens = tokens_by(&Tokenizer::read(folder.path()).unwrap(), &[path], &recipe)?;
    let counts = tokens.iter().map(|token| u64::from(token & 1 << 31 == 0));
    Ok((tokens.iter().map(|token| token & !(1 << 31)).collect(), counts.collect()))
}

#[test]
fn what_templates_use_of_python_is_as_there() {
    let written = written();
    for case in written["expressions"].as_array().unwrap() {
        let text = template(&written["special"], case[0].as_str().unwrap()).text(&given()[0], false);
        assert_eq!(text.ok().as_deref(), case[1].as_str(), "{}", case[0]);
    }
}

#[test]
fn marked_answers_are_those_of_transformers() {
    let written = written();
    let masks = written["masks"].as_array().unwrap();
    assert_eq!(masks.len(), 2);
    for mask in masks {
        let source = fs::read_to_string(chats(mask["template"].as_str().unwrap())).unwrap();
        let (ids, counts) = learnt(&written["learnt"], &source).unwrap();
        let (expected, end) = (tokens_of(&mask["ids"]), ids.len() - 1);
        assert_eq!((&ids[..end], ids[end]), (&expected[..], 0), "{}", mask["template"]);
        let answers: Vec<u64> =
            mask["answers"].as_array().unwrap().iter().map(|one| one.as_u64().unwrap()).collect();
        assert_eq!((&counts[..end], counts[end]), (&answers[..], 0), "{}", mask["template"]);
    }
}

#[test]
fn chats_with_tools_are_learnt_as_transformers_writes_them_or_refused() {
    let written = written();
    let recipe = Recipe {
        field: "messages".to_owned(),
        date: Some(written["now"].as_str().unwrap().parse().unwrap()),
        ..Recipe::new(Form::Jsonl)
    };
    let text = fs::read_to_string(chats("written.json")).unwrap();
    let lines: Vec<&str> = text.lines().skip_while(|line| *line != "\"chats\": [").skip(1).collect();
    let (mut same, mut refused) = (0, Vec::new());
    for case in written["cases"].as_array().unwrap() {
        let number = case["chat"].as_u64().unwrap() as usize;
        // These end with an answer.
        let Some(expected) = case["text"].as_str().filter(|_| [2, 3, 9, 11].contains(&number)) else {
            continue;
        };
        let name = case["template"].as_str().unwrap();
        let source = fs::read_to_string(chats(name)).unwrap();
        let special = written["special"].to_string();
        let files = [("tokenizer_config.json", special.as_str()), ("chat_template.jinja", source.as_str())];
        let folder = folder(&small_with(&[]), &files);
        let path = folder.path().join("data.jsonl");
        fs::write(&path, lines[number].trim_end_matches(',')).unwrap();
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        match tokens_by(&tokenizer, &[path], &recipe) {
            Ok(tokens) => {
                let expected = tokenizer.encode_bare(expected).unwrap();
                assert_eq!(tokens[..expected.len()], expected, "{name}, chat {number}");
                same += 1;
            }
            Err(error) => {
                has(&error.to_string(), &["data.jsonl` line 1 has"]);
                refused.push((name, number));
            }
        }
    }
    // What they do not write of thoughts, of calls and of tools.
    let expected = [
        ("answers.jinja", 3),
        ("brackets.jinja", 3),
        ("flags.jinja", 3),
        ("flags.jinja", 9),
        ("flags.jinja", 11),
        ("headers.jinja", 3),
        ("marks.jinja", 3),
        ("marks.jinja", 9),
        ("marks.jinja", 11),
        ("sources.jinja", 3),
        ("turns.jinja", 3),
        ("turns.jinja", 11),
    ];
    assert_eq!((same, &refused[..]), (27, &expected[..]));
}

#[test]
fn a_record_says_only_what_its_template_asks_for() {
    let source = "{% for m in messages %}{{ m.role + m.content }}\
                  {% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}\
                  {{ m.name if m.role == 'tool' }}{% endfor %}{{ tools | length if mood }}";
    let said = |record: Value| {
        let folder = folder(&small_with(&[]), &[("chat_template.jinja", source)]);
        let path = folder.path().join("data.jsonl");
        fs::write(&path, record.to_string()).unwrap();
        let recipe = Recipe { field: "messages".to_owned(), ..Recipe::new(Form::Jsonl) };
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        tokens_by(&tokenizer, &[path], &recipe).and_then(|tokens| tokenizer.decode(&tokens))
    };
    let call = json!({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]});
    let result = json!({"role": "tool", "tool_call_id": "1", "name": "g", "content": "h"});
    let record = json!({"messages": [call, result], "tools": [{}], "chat_template_kwargs": {"mood": true}});
    let with = |key: &str, value: Value| {
        let mut record = record.clone();
        record[key] = value;
        message(said(record))
    };
    let text = said(record.clone());
    assert!(text.is_err(), "null is no text");
    let mut record = record.clone();
    record["messages"][0]["content"] = json!("a");
    assert_eq!(said(record.clone()).unwrap(), "assistantaftoolhg1<|endoftext|>");
    has(&with("tools", json!("[]")), &["line 1 has a text in \"tools\", where a list was expected"]);
    has(
        &with("chat_template_kwargs", json!([1])),
        &["has a list in \"chat_template_kwargs\", where an object"],
    );
    let said_of = with("chat_template_kwargs", json!({"mood": 1, "other": 2}));
    has(
        &said_of,
        &["has \"chat_template_kwargs\", which would be left out: the template does not ask for all"],
    );
    has(&with("documents", json!(["a"])), &["has \"documents\", which would be left out"]);
    has(&with("functions", json!([{}])), &["has \"functions\", which would be left out"]);
    let other = json!([{"role": "function", "content": "a"}]);
    has(&with("messages", other), &["has the role \"function\" in message 1"]);
    let named = json!([{"role": "user", "name": "Ann", "content": "a"}]);
    has(&with("messages", named), &["has \"name\" in message 1"]);
    let thought = json!([{"role": "assistant", "content": "a", "thinking": "b"}]);
    has(
        &with("messages", thought),
        &["has \"thinking\" in message 1 of \"messages\", which would be left out"],
    );
}

#[test]
fn marks_that_do_not_tell_answers_apart_are_refused() {
    let two = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "weight": 0},
    ]);
    let said = |source: &str| message(learnt(&two, source));
    let last = "{% for m in messages %}{% if loop.last %}{% generation %}{{ m.content }}{% endgeneration %}\
                {% else %}{{ m.content }}{% endif %}{% endfor %}";
    has(&said(last), &["line 1 is a chat", "marks 1 answers ({% generation %}) in a chat with 2 messages"]);
    let more = "{%- generation -%} x {%- endgeneration +%}\
                {% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
    has(&said(more), &["marks 5 answers ({% generation %}) in a chat with 2 messages"]);
    let usual = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
                 {% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}";
    let letter = json!([{"role": "assistant", "content": "a\u{fdd0}b"}]);
    has(&message(learnt(&letter, usual)), &["this chat has the letter U+FDD0"]);
    let (_, counts) = learnt(&two, usual).unwrap();
    assert_eq!(counts, [0, 1, 0, 0, 0]);
}

#[test]
fn a_chat_without_a_date_has_none_and_a_template_that_needs_one_refuses() {
    let chat = Chat::of(&[("user", "a")]);
    let asks = template(&json!({}), "{{ strftime_now('%Y') if strftime_now is defined else 'none' }}");
    assert_eq!(asks.text(&chat, true).unwrap(), "none");
    let dated = chat.clone().dated("2026-03-07".parse().unwrap());
    assert_eq!(asks.text(&dated, true).unwrap(), "2026");
    let needs = template(&json!({}), "{{ strftime_now(messages[0].content) }}");
    let said = needs.text(&chat, true).unwrap_err().to_string();
    has(
        &said,
        &[
            "strftime_now is unknown",
            "a chat to learn has no date, because it must be the same on each day: set",
        ],
    );
    let said = needs.text(&Chat::of(&[("user", "%!")]).dated(Date::now()), true).unwrap_err().to_string();
    has(&said, &["strftime_now has no form \"%!\""]);
    assert_eq!("7 March".parse::<Date>().unwrap_err(), "a date such as \"2026-03-07\"");
}

#[test]
fn a_chat_with_tools_is_written_by_the_template_for_tools() {
    let named = json!({ "chat_template": [
        {"name": "default", "template": "usual"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]});
    let beside = |folder: &TempDir| {
        fs::create_dir(folder.path().join("additional_chat_templates")).unwrap();
        fs::write(
            folder.path().join("additional_chat_templates/tool_use.jinja"),
            "{{ tools | length }} tools",
        )
    };
    let in_list = folder(&small_with(&[]), &[("tokenizer_config.json", &named.to_string())]);
    let in_folder = folder(&small_with(&[]), &[("chat_template.jinja", "usual")]);
    beside(&in_folder).unwrap();
    for folder in [in_list, in_folder] {
        let chat = Tokenizer::read(folder.path()).unwrap().chat(None).unwrap();
        assert_eq!(chat.text(&Chat::of(&[("user", "a")]), true).unwrap(), "usual");
        let tools = Chat::read(r#"{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}"#).unwrap();
        assert_eq!(chat.text(&tools, true).unwrap(), "1 tools");
    }
    let other = json!({ "chat_template": [{"name": "rag", "template": "no"}] }).to_string();
    let folder = folder(&small_with(&[]), &[("tokenizer_config.json", &other)]);
    let said = message(Tokenizer::read(folder.path()).unwrap().chat(None));
    has(&said, &["tokenizer_config.json` has several chat templates and none of the name \"default\": put"]);
}

#[test]
fn a_template_that_never_ends_is_stopped() {
    let endless = "{% for a in range(90000) %}{% for b in range(90000) %}{{ a }}{% endfor %}{% endfor %}";
    let said = template(&json!({}), endless).text(&Chat::of(&[("user", "a")]), true).unwrap_err().to_string();
    has(&said, &["it computes too long for one chat"]);
}

#[test]
fn what_is_no_chat_is_refused() {
    for (json, problem) in [
        ("[1]", "is no chat in JSON"),
        ("{}", "has no list \"messages\""),
        (r#"{"messages": {"role": "user"}}"#, "has no list \"messages\""),
        (r#"{"messages": [{}, "a"]}"#, "has a message 2 that is no object"),
        (
            r#"{"messages": [], "chat_template_kwargs": 3}"#,
            "has a \"chat_template_kwargs\" that is no object",
        ),
        (
            r#"{"messages": [], "chat_template_kwargs": {"messages": []}}"#,
            "has \"messages\" in \"chat_template_kwargs\", which are for settings of the template: leave",
        ),
    ] {
        has(&Chat::read(json).unwrap_err().to_string(), &[problem]);
    }
}
