//! Conversations: `sample --chat` without a prompt.

use std::process::Stdio;

use super::*;

/// A config for a model that learns five chats by heart.
pub(crate) const CHATS: &str = "\
[model]
vocab = 512
dim = 32
layers = 2
heads = 2
context = 2048

[data]
kind = 'jsonl'
path = 'chats.jsonl'
tokenizer = 'TOKENIZER'
field = 'messages'
loss_on = 'answers'
cache = 'cache'
seq = 64

[pipeline]
micro_batches = 2
micro_batch_size = 4

[optimizer]
learning_rate = 0.01

[train]
name = 'chat'
steps = 60
";

/// A folder with a model that has learnt to chat, and its exported form in `model`.
pub(crate) fn trained() -> Place {
    let place = Place::new();
    place.write("chats.toml", CHATS.replace("TOKENIZER", TOKENIZER));
    let first = [("Hello", "Hi there!"), ("Colour?", "Blue and grün 日."), ("Count", "one two three")];
    let second = [("Bye", "Good bye."), ("Thanks", "You are welcome.")];
    let lines = first.iter().flat_map(|first| {
        second.iter().flat_map(move |second| {
            let chat = |pairs: &[&(&str, &str)]| {
                let message = |(user, assistant): &&(&str, &str)| {
                    [("user", *user), ("assistant", *assistant)]
                        .map(|(role, content)| serde_json::json!({"role": role, "content": content}))
                };
                let messages: Vec<_> = pairs.iter().flat_map(message).collect();
                format!("{}\n", serde_json::json!({ "messages": messages }))
            };
            [chat(&[first]), chat(&[second]), chat(&[first, second])]
        })
    });
    place.write("chats.jsonl", lines.collect::<String>().repeat(4));
    place.run(&["train", "chats.toml"]).done();
    place.run(&["export", "runs/chat", "model"]).done();
    place
}

/// What is answered to this input.
fn talk(place: &Place, args: &[&str], input: &str) -> Run {
    let mut command = place.command(&[&["sample", "runs/chat", "--chat"], args].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Run(child.wait_with_output().unwrap())
}

const COLD: &[&str] = &["--temperature", "0"];

#[test]
fn each_line_is_answered_and_the_conversation_is_remembered_until_it_is_reset() {
    let place = trained();
    let run =
        talk(&place, &[COLD, &["--timing"]].concat(), "Hello\n\n  \nBye\n/reset\nColour?\n/exit\nBye\n")
            .done();
    assert_eq!(run.stdout(), "Hi there!\nGood bye.\nBlue and grün 日.\n");
    let read: Vec<usize> =
        run.stderr().lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    // The second message is read alone: what was said before it is known.
    let alone = place.run(&["sample", "runs/chat", "--chat", "--prompt", "Bye", "--timing"]).done().stderr();
    let alone: usize = alone.split("; ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(read.len() == 3 && read[1] <= alone + 2, "{read:?}, {alone}");
    assert_eq!(
        place
            .run(&["sample", "runs/chat", "--chat", "--prompt", "Hello", "--temperature", "0"])
            .done()
            .stdout(),
        "Hi there!\n"
    );
}

#[test]
fn what_was_said_before_is_read_with_the_next_message() {
    let place = trained();
    // 60 messages in a row fill 2048 tokens, and a new conversation has room again.
    let many = "Hello\n".repeat(90) + "/reset\nColour?\n";
    let run = talk(&place, COLD, &many).done();
    has(
        &run.stderr(),
        &[
            "error: with this message the conversation has 20",
            "tokens, and the model's context is 2048: /reset begins a new one, or write less",
        ],
    );
    assert!(run.stdout().ends_with("Blue and grün 日.\n"), "{}", run.stdout());
}

#[test]
fn commands_and_lines_that_go_on() {
    let place = trained();
    let run = talk(&place, COLD, "/rest\nHel\\\nlo\n /reset\n").done();
    has(&run.stderr(), &["/rest is unknown: /reset begins a new conversation, /exit or Ctrl-D ends"]);
    assert_eq!(run.stdout().lines().count(), 2, "{}", run.stdout());
}

#[test]
fn an_answer_that_is_cut_says_so() {
    let place = trained();
    let run = talk(&place, &[COLD, &["--tokens", "3"]].concat(), "Count\n").done();
    assert_eq!(run.stderr(), "warning: this answer was cut after 3 tokens: --tokens N allows more\n");
    let run = talk(&place, &[COLD, &["--stop", " two"]].concat(), "Count\n").done();
    assert_eq!((run.stdout().as_str(), run.stderr().as_str()), ("one\n", ""));
}

#[test]
fn seeds_choose_and_each_answer_has_its_own() {
    let place = trained();
    let answers = |seed: &str| {
        talk(&place, &["--temperature", "2", "--tokens", "20", "--seed", seed], "Hello\n/reset\nHello\n")
            .done()
            .stdout()
    };
    let first = answers("1");
    assert_eq!(answers("1"), first);
    let each: Vec<_> = first.lines().collect();
    assert_ne!(each.first(), each.last());
}

#[test]
fn a_chat_that_cannot_be_is_refused_before_it_begins() {
    let place = trained();
    let refused = |args: &[&str]| place.run(&[&["sample"], args].concat()).refused();
    let template = "{% for m in messages %}{% if m.role == 'system' %}\
                    {{ raise_exception('no system, please') }}{% endif %}{{ m.content }}{% endfor %}";
    place.write("model/chat_template.jinja", template);
    let said = refused(&["model", "--chat", "--system", "Be kind."]);
    has(
        &said,
        &["chat_template.jinja` has a chat template that cannot write this chat", "no system, please"],
    );
    has(&refused(&["model", "--system", "Be kind."]), &["--chat"]);
    place.run(&["train", "my.toml", "--steps", "1"]).done();
    has(&refused(&["runs/small", "--chat"]), &["this model has no tokenizer, so it was not trained to chat"]);
}
