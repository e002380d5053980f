//! What a chat says besides its texts is used, or refused by line.

use super::encoding::tokens;
use super::*;

/// The bit of a token that is no target.
const NO_TARGET: u32 = 1 << 31;

fn recipe(loss_on: LossOn) -> Recipe {
    Recipe { field: "messages".to_owned(), loss_on, ..Recipe::new(Form::Jsonl) }
}

fn of_line(line: &str, recipe: &Recipe) -> pipewright::Result<Vec<u32>> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.jsonl");
    fs::write(&path, format!("\n{line}\n")).unwrap();
    tokens(&[path], recipe)
}

/// A chat whose answer has these keys too.
fn answer_with(more: &Value) -> Value {
    let mut answer = json!({"role": "assistant", "content": "three"});
    let keys = more.as_object().unwrap().clone();
    answer.as_object_mut().unwrap().extend(keys);
    json!([{"role": "user", "content": "one two"}, answer])
}

#[test]
fn a_key_that_changes_what_is_learnt_is_refused_by_line() {
    let call = json!([{"type": "function", "function": {"name": "multiply", "arguments": "{}"}}]);
    let cases = [
        ("tool_calls", call, "write the call into \"content\""),
        ("function_call", json!({"name": "f"}), "write the call into \"content\""),
        ("tool_call_id", json!("a"), "write it into \"content\", or remove it"),
        ("reasoning_content", json!("so"), "write the thoughts into \"content\""),
        ("reasoning", json!("so"), "write the thoughts into \"content\""),
        ("thinking", json!("so"), "write the thoughts into \"content\""),
        ("refusal", json!("no"), "write it into \"content\", or remove it"),
        ("name", json!("Ann"), "write it into \"content\", or remove it"),
        ("prefix", json!(true), "write it into \"content\", or remove it"),
        ("images", json!(["a.png"]), "only text is read"),
        ("audio", json!({"id": "a"}), "only text is read"),
        ("train_detail", json!([{"begin_offset": 0}]), "write \"train\": true or false"),
        ("loss_weight", json!(0.5), "write \"weight\": 0 or 1"),
        ("loss_mask", json!([1]), "write \"weight\": 0 or 1"),
        ("mask", json!(1), "write \"weight\": 0 or 1"),
    ];
    for (key, value, cure) in cases {
        let line = json!({"messages": answer_with(&json!({key: value}))}).to_string();
        let said = message(of_line(&line, &recipe(LossOn::All)));
        let expected =
            format!("line 2 has \"{key}\" in message 2 of \"messages\", which would be left out: {cure}");
        has(&said, &[&expected]);
        // What has nothing to say is as if it were absent.
        let line = json!({"messages": answer_with(&json!({key: null}))}).to_string();
        of_line(&line, &recipe(LossOn::All)).unwrap();
    }
}

#[test]
fn a_key_of_a_record_that_changes_what_is_learnt_is_refused_by_line() {
    let keys = [
        ("tools", json!([{"type": "function"}])),
        ("functions", json!([{"name": "f"}])),
        ("system", json!("Be short.")),
        ("system_prompt", json!("Be short.")),
        ("documents", json!(["a"])),
        ("chat_template_kwargs", json!({"enable_thinking": true})),
        ("weight", json!(2)),
        ("images", json!(["a.png"])),
        ("image", json!("a.png")),
        ("videos", json!(["a.mp4"])),
        ("audios", json!(["a.wav"])),
    ];
    for (key, value) in keys {
        let line = json!({"messages": answer_with(&json!({})), key: value}).to_string();
        let said = message(of_line(&line, &recipe(LossOn::All)));
        has(&said, &[&format!("line 2 has \"{key}\", which would be left out: ")]);
        let line = json!({"messages": answer_with(&json!({})), key: []}).to_string();
        of_line(&line, &recipe(LossOn::All)).unwrap();
    }
}

#[test]
fn only_roles_that_templates_write_are_read() {
    let cases = [
        ("human", "write \"user\""),
        ("gpt", "write \"assistant\""),
        ("developer", "write \"system\""),
        ("tool", "write the result into a message of the role \"user\""),
        ("function", "write the result into a message of the role \"user\""),
        ("observer", "write one of these"),
        ("Assistant", "write one of these"),
    ];
    for (role, cure) in cases {
        let line = json!({"messages": [{"role": role, "content": "Hi"}]}).to_string();
        let said = message(of_line(&line, &recipe(LossOn::All)));
        let expected =
            format!("line 2 has the role \"{role}\" in message 1 of \"messages\", and templates write");
        has(&said, &[&expected, cure]);
    }
    let line = json!({"messages": [{"from": "human", "value": "Hi"}]}).to_string();
    let said = message(of_line(&line, &recipe(LossOn::All)));
    has(&said, &["line 2 has \"from\" in message 1", "\"gpt\" as \"assistant\""]);
}

#[test]
fn parts_of_text_are_one_text_and_other_parts_are_refused() {
    let of = |content: Value| {
        let line = json!({"messages": [{"role": "user", "content": content}]}).to_string();
        of_line(&line, &recipe(LossOn::All))
    };
    let parts = json!([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]);
    assert_eq!(of(parts).unwrap(), of(json!("one two")).unwrap());
    for content in [
        json!([{"type": "image_url", "image_url": {"url": "a.png"}}]),
        json!([{"type": "text", "text": 3}]),
        json!({"text": "one"}),
        json!(null),
    ] {
        has(&message(of(content)), &["line 2 has no text \"content\" in message 1"]);
    }
}

#[test]
fn an_answer_of_weight_0_is_no_target() {
    let counted = |more: &Value| -> usize {
        let line = json!({"messages": answer_with(more)}).to_string();
        let all = of_line(&line, &recipe(LossOn::Answers)).unwrap();
        all.iter().filter(|token| **token & NO_TARGET == 0).count()
    };
    let all = small().encode("three").unwrap().len() + 1;
    for key in ["weight", "train", "training", "train_on", "trainable", "loss"] {
        for (value, expected) in
            [(json!(0), 0), (json!(false), 0), (json!(1), all), (json!(true), all), (json!(null), all)]
        {
            assert_eq!(counted(&json!({key: value})), expected, "{key} {value}");
        }
    }
}

#[test]
fn a_weight_that_cannot_be_heeded_is_refused() {
    let said = |messages: &Value, loss_on| {
        message(of_line(&json!({"messages": messages}).to_string(), &recipe(loss_on)))
    };
    let half = said(&answer_with(&json!({"weight": 0.5})), LossOn::Answers);
    has(&half, &["line 2 has a \"weight\" in message 2 of \"messages\" that is neither 0 nor 1"]);
    let all = said(&answer_with(&json!({"weight": 0})), LossOn::All);
    has(&all, &["\"weight\" in message 2 of \"messages\", of the role \"assistant\", and with data.loss_on"]);
    let user =
        json!([{"role": "user", "content": "Hi", "train": true}, {"role": "assistant", "content": "Ho"}]);
    let user = said(&user, LossOn::Answers);
    has(&user, &["only the role \"assistant\" is learnt"]);
    let not =
        json!([{"role": "user", "content": "Hi", "train": false}, {"role": "assistant", "content": "Ho"}]);
    of_line(&json!({"messages": not}).to_string(), &recipe(LossOn::Answers)).unwrap();
}

#[test]
fn numbers_in_fields_that_are_not_read_make_no_difference() {
    let plain = Recipe::new(Form::Jsonl);
    let expected = of_line(r#"{"text": "one"}"#, &plain).unwrap();
    assert_eq!(of_line(r#"{"score": 1e999, "text": "one", "n": [-1e999]}"#, &plain).unwrap(), expected);
    for word in ["NaN", "Infinity", "-Infinity"] {
        let said = message(of_line(&format!("{{\"score\": {word}, \"text\": \"one\"}}"), &plain));
        has(&said, &["line 2 is broken JSON", "write null"]);
    }
}
