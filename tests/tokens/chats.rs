//! Chats as text, by the template beside a tokenizer.

use super::kinds::{folder, small_with};
use super::*;

/// Templates of well-known models, and what transformers 5.24 writes with each of them:
/// `render_jinja_template([chat], chat_template=template, add_generation_prompt=chat[-1]["role"] == "user",
/// bos_token="<s>", eos_token="</s>")`.
fn written() -> Value {
    serde_json::from_slice(&fs::read(golden("chats.json")).unwrap()).unwrap()
}

fn messages(chat: &Value) -> Vec<(&str, &str)> {
    let messages = chat.as_array().unwrap().iter();
    messages.map(|one| (one["role"].as_str().unwrap(), one["content"].as_str().unwrap())).collect()
}

#[test]
fn the_templates_of_models_write_what_transformers_writes() {
    let written = written();
    for case in written["templates"].as_array().unwrap() {
        let (name, source) = (&case["name"], case["template"].as_str().unwrap());
        let config = written["special"].to_string();
        let files = [("tokenizer_config.json", config.as_str()), ("chat_template.jinja", source)];
        let folder = folder(&small_with(&[]), &files);
        let chat = Tokenizer::read(folder.path()).unwrap().chat(None).unwrap();
        for (messages_of, text) in
            written["chats"].as_array().unwrap().iter().zip(case["texts"].as_array().unwrap())
        {
            let messages = messages(messages_of);
            let asks = messages.last().unwrap().0 == "user";
            match (chat.text(&Chat::of(&messages), asks), text.as_str()) {
                (Ok(ours), Some(theirs)) => assert_eq!(ours, theirs, "{name}"),
                (Err(error), None) => {
                    let said = text["refused"].as_str().unwrap();
                    assert!(error.to_string().contains(said), "{name}: {error}");
                }
                (ours, theirs) => panic!("{name}: {ours:?}, {theirs:?}"),
            }
        }
    }
}

#[test]
fn a_template_stands_in_one_of_three_files() {
    let own = "{{ messages[0].content }}!";
    let inner = serde_json::json!({ "chat_template": own }).to_string();
    let named = serde_json::json!({ "chat_template": [
        {"name": "tool_use", "template": "no"}, {"name": "default", "template": own},
    ]});
    let cases: [(&str, &str); 4] = [
        ("chat_template.jinja", own),
        ("tokenizer_config.json", &inner),
        ("tokenizer_config.json", &named.to_string()),
        ("chat_template.json", &inner),
    ];
    for file in cases {
        let folder = folder(&small_with(&[]), &[file]);
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        assert_eq!(
            tokenizer.chat(None).unwrap().text(&Chat::of(&[("user", "a")]), true).unwrap(),
            "a!",
            "{file:?}"
        );
        let path = tokenizer.other_template(Template::ChatMl).unwrap();
        assert_eq!(path, folder.path().join(file.0));
    }
    let chatml = [("chat_template.jinja", Template::ChatMl.source())];
    let folder = folder(&small_with(&[]), &chatml);
    let tokenizer = Tokenizer::read(folder.path()).unwrap();
    assert_eq!(tokenizer.other_template(Template::ChatMl), None);
}

#[test]
fn a_ready_template_needs_its_tokens() {
    let tokenizer = small();
    tokenizer.chat(None).unwrap();
    let said = message(tokenizer.chat(Some(Template::Llama3)));
    has(&said, &["has no token `<|begin_of_text|>`, which the template \"llama3\" writes into a chat: set"]);
}

#[test]
fn a_template_that_is_broken_or_refuses_is_named() {
    let of = |source: &str| {
        let folder = folder(&small_with(&[]), &[("chat_template.jinja", source)]);
        let tokenizer = Tokenizer::read(folder.path()).unwrap();
        tokenizer.chat(None).map(|chat| chat.text(&Chat::of(&[("user", "a")]), true))
    };
    let said = message(of("{% for %}"));
    has(&said, &["chat_template.jinja` has a chat template that cannot write this chat: syntax error"]);
    let said = of("{{ raise_exception('no such role') }}").unwrap().unwrap_err().to_string();
    has(&said, &["cannot write this chat: invalid operation: no such role"]);
}
