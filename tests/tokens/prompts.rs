//! Records of a prompt and what follows it, with the names of TRL.

use super::encoding::tokens;
use super::*;

/// The bit of a token that is no target.
const NO_TARGET: u32 = 1 << 31;

fn recipe(field: &str, loss_on: LossOn) -> Recipe {
    Recipe { field: field.to_owned(), loss_on, ..Recipe::new(Form::Jsonl) }
}

/// The tokens of the second of three lines. The others are texts.
fn of(record: &Value, field: &str, loss_on: LossOn) -> pipewright::Result<Vec<u32>> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.jsonl");
    fs::write(&path, format!("\n{record}\n")).unwrap();
    tokens(&[path], &recipe(field, loss_on))
}

fn learnt(tokens: &[u32]) -> String {
    let learnt: Vec<u32> = tokens.iter().copied().filter(|token| token & NO_TARGET == 0).collect();
    small().decode(&learnt).unwrap()
}

fn without_marks(tokens: Vec<u32>) -> Vec<u32> {
    tokens.into_iter().map(|token| token & !NO_TARGET).collect()
}

#[test]
fn a_prompt_and_its_completion_are_one_text_of_which_the_completion_is_learnt() {
    let record = json!({"prompt": "Hear me", "completion": " speak, naïve.", "id": 7});
    let whole = of(&json!({"text": "Hear me speak, naïve."}), "text", LossOn::All).unwrap();
    for field in ["text", "completion"] {
        assert_eq!(of(&record, field, LossOn::All).unwrap(), whole, "{field}");
        let marked = of(&record, field, LossOn::Answers).unwrap();
        assert_eq!(learnt(&marked), format!(" speak, naïve.{}", small().decode(&[0]).unwrap()));
        assert_eq!(without_marks(marked), whole, "{field}");
    }
    // A completion without a prompt is a text like any other.
    let alone = of(&json!({"completion": "Hear me speak, naïve."}), "completion", LossOn::All).unwrap();
    assert_eq!(alone, whole);
}

#[test]
fn of_two_answers_the_one_that_is_named_is_learnt() {
    let record = json!({"prompt": "Hear", "chosen": " me", "rejected": " him"});
    for (field, text) in [("chosen", "Hear me"), ("rejected", "Hear him")] {
        let expected = of(&json!({"text": text}), "text", LossOn::All).unwrap();
        assert_eq!(of(&record, field, LossOn::All).unwrap(), expected);
    }
    let said = message(of(&record, "text", LossOn::All));
    has(
        &said,
        &[
            "data.jsonl` line 2 has \"chosen\" and no field \"text\" (data.field)",
            "set data.field to \"chosen\"",
        ],
    );
}

#[test]
fn of_two_parts_of_a_chat_the_second_is_learnt() {
    let [user, again] =
        [json!({"role": "user", "content": "one"}), json!({"role": "user", "content": "two"})];
    let said = json!({"role": "assistant", "content": "first answer"});
    let answer = json!({"role": "assistant", "content": "three"});
    let chat = json!({"messages": [user, said, again, answer]});
    let parts = json!({"prompt": [user, said, again], "completion": [answer]});
    let expected = of(&chat, "messages", LossOn::All).unwrap();
    assert_eq!(of(&parts, "text", LossOn::All).unwrap(), expected);
    let marked = of(&parts, "text", LossOn::Answers).unwrap();
    assert!(learnt(&marked).starts_with("three"), "{}", learnt(&marked));
    assert_eq!(without_marks(marked), without_marks(of(&chat, "messages", LossOn::Answers).unwrap()));
    // As in UltraFeedback: the chat that follows repeats the prompt.
    let repeated = json!({"prompt": "two", "chosen": [again, answer], "rejected": [again, said]});
    let expected = of(&json!({"messages": [again, answer]}), "messages", LossOn::Answers).unwrap();
    assert_eq!(of(&repeated, "chosen", LossOn::Answers).unwrap(), expected);
}

#[test]
fn a_record_in_parts_that_cannot_be_read_is_refused_by_line() {
    let user = json!([{"role": "user", "content": "one"}]);
    let cases = [
        (json!({"prompt": "a", "completion": "b"}), "prompt", "has \"completion\", which would be left out"),
        (json!({"prompt": "a", "chosen": "b"}), "prompt", "has \"chosen\", which would be left out"),
        (
            json!({"prompt": user, "completion": "b"}),
            "text",
            "has a list in \"prompt\" and a text in \"completion\"",
        ),
        (json!({"prompt": null, "completion": "b"}), "text", "has null in \"prompt\""),
        (json!({"prompt": "a", "completion": 7}), "text", "and a number in \"completion\""),
        (json!({"prompt": "a", "completion": user}), "text", "that is no message of \"completion\""),
        (json!({"prompt": "a"}), "text", "has no field \"text\" (data.field), only \"prompt\""),
        (
            json!({"prompt": user, "completion": user, "tools": [1]}),
            "text",
            "has \"tools\", which would be left out",
        ),
        (
            json!({"prompt": user, "completion": [{"role": "assistant"}]}),
            "text",
            "message 1 of \"completion\"",
        ),
    ];
    for (record, field, expected) in cases {
        let said = message(of(&record, field, LossOn::All));
        has(&said, &["data.jsonl` line 2 ", expected]);
    }
}
