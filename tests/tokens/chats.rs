//! Chats as text, by the template beside a tokenizer.

use super::kinds::{folder, small_with};
use super::*;

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
