//! Training and evaluations on several sources of data.

use super::*;

const MIXED: &str = "\
[model]
vocab = 512
dim = 16
layers = 2
heads = 2

[data]
tokenizer = 'TOKENIZER'
cache = 'cache'
seq = 32
validation = 6

[[data.sources]]
kind = 'jsonl'
path = 'chats.jsonl'
field = 'messages'
loss_on = 'answers'
share = 0.5

[[data.sources]]
name = 'short'
kind = 'jsonl'
path = 'pairs.jsonl'
packing = 'single'
share = 0.3

[[data.sources]]
kind = 'text'
path = 'book.txt'
validation = 0.1
share = 0.2

[pipeline]
stages = 2
micro_batches = 5
micro_batch_size = 2

[train]
name = 'mixed'
steps = 6
validate_every = 3

[checkpoint]
every = 2
";

fn mixed() -> Place {
    let place = Place::new();
    place.write("my.toml", MIXED.replace("TOKENIZER", TOKENIZER));
    let words = |from: usize, count: usize| (from..from + count).map(|word| format!("w{word} "));
    let chats = (0..40).map(|chat| {
        let message = |role: &str, count| {
            serde_json::json!({"role": role, "content": words(chat, count).collect::<String>()})
        };
        let messages = [message("user", 2 + chat % 3), message("assistant", 1 + chat % 5)];
        serde_json::json!({ "messages": messages }).to_string() + "\n"
    });
    place.write("chats.jsonl", chats.collect::<String>());
    let pairs = (0..30).map(|pair| {
        let [prompt, completion] = [1, 1 + pair % 4].map(|count| words(pair, count).collect::<String>());
        serde_json::json!({ "prompt": prompt, "completion": completion }).to_string() + "\n"
    });
    place.write("pairs.jsonl", pairs.collect::<String>());
    place.write("book.txt", words(0, 2000).collect::<String>());
    place
}

/// The numbers of a run that do not depend on the time.
fn numbers(place: &Place, run: &str) -> Vec<[serde_json::Value; 5]> {
    let keys = ["loss", "grad_norm", "tokens", "sequences", "validation_losses"];
    place.lines(run).iter().map(|line| keys.map(|key| line[key].clone())).collect()
}

#[test]
fn sources_are_mixed_validated_one_by_one_and_resumed_exactly() {
    let place = mixed();
    let said = place.run(&["train", "my.toml"]).done().stdout();
    has(&said, &["chats (share 0.5): ", "short (share 0.3): ", "book (share 0.2): "]);
    has(&said, &[" % of the places of micro-batches are empty"]);
    has(
        &said,
        &["validation after 3 steps: loss", "\n  chats: loss ", "\n  short: loss ", "\n  book: loss "],
    );
    let whole = numbers(&place, "runs/mixed");
    for [.., sequences, _] in &whole {
        assert_eq!(*sequences, serde_json::json!({"chats": 5, "short": 3, "book": 2}));
    }
    assert_eq!(whole[2][4].as_object().unwrap().len(), 3, "{:?}", whole[2]);

    // Stopped, and gone on from the checkpoint of step 4; and cut and replicated in other ways.
    let parts = mixed();
    parts.run(&["train", "my.toml", "--steps", "4"]).done();
    parts.run(&["train", "my.toml", "--resume"]).done();
    let resumed = numbers(&parts, "runs/mixed");
    assert_eq!(resumed[4..], whole[4..]);
    let losses = |numbers: &[[serde_json::Value; 5]]| -> Vec<serde_json::Value> {
        numbers.iter().map(|line| line[0].clone()).collect()
    };
    let cut = ["pipeline.stages=1", "pipeline.replicas=2", "pipeline.gradient_groups=2"];
    parts.run_with(&["train", "my.toml", "--run-dir", "runs/cut"], &cut).done();
    parts.run_with(&["train", "my.toml", "--run-dir", "runs/one"], &["pipeline.gradient_groups=2"]).done();
    assert_eq!(losses(&numbers(&parts, "runs/cut")), losses(&numbers(&parts, "runs/one")));
}

#[test]
fn evaluations_and_the_page_of_a_run_name_each_source() {
    let place = mixed();
    place.run(&["train", "my.toml", "--steps", "3"]).done();
    let said = place.run(&["evaluate", "runs/mixed"]).done().stdout();
    has(&said, &["\nchats: loss ", "\nshort: loss ", "\nbook: loss ", "\nloss "]);
    let json = place.run(&["evaluate", "runs/mixed", "--format", "json"]).done().stdout();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let sources = json["sources"].as_object().unwrap();
    let sum = |key: &str| sources.values().map(|source| source[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!(sum("targets"), json["targets"].as_f64().unwrap());
    let losses = sources.values().map(|one| one["loss"].as_f64().unwrap() * one["targets"].as_f64().unwrap());
    let mean = losses.sum::<f64>() / sum("targets");
    assert!((mean - json["loss"].as_f64().unwrap()).abs() < 1e-9, "{json}");
    // Other data for all.
    place.write("other.txt", "a b c d e f g h i j ".repeat(50));
    let other = ["data.validation_path=other.txt", "data.kind=text"];
    let said = place.run_with(&["evaluate", "runs/mixed"], &other).done().stdout();
    assert!(said.starts_with("`other.txt`: ") && !said.contains("chats"), "{said}");

    place.run(&["report", "runs/mixed"]).done();
    let page = place.text("runs/mixed/report.html");
    has(&page, &["Sequences from chats", "15, 50.0 %", "Sequences from book", "6, 20.0 %"]);
    has(&page, &["Last validation loss of short"]);
}

#[test]
fn a_resumed_run_may_take_another_batch_at_any_step() {
    for at in 3..7 {
        let place = mixed();
        let steps = at.to_string();
        place.run(&["train", "my.toml", "--steps", &steps]).done();
        let more = ["train", "--resume", "--run-dir", "runs/mixed", "--set", "train.steps=9"];
        place.run_with(&more, &["pipeline.micro_batches=3", "pipeline.micro_batch_size=4"]).done();
        let taken: Vec<u64> = numbers(&place, "runs/mixed")
            .iter()
            .map(|[.., sequences, _]| {
                sequences.as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum()
            })
            .collect();
        let expected = [vec![10; at], vec![12; 9 - at]].concat();
        assert_eq!(taken, expected, "resumed after {at} steps");
    }
}

#[test]
fn a_resumed_run_does_not_train_on_what_a_source_held_back() {
    let place = mixed();
    place.run(&["train", "my.toml", "--steps", "2"]).done();
    let config = place.text("my.toml");
    let with = |validation: &str| {
        place.write("my.toml", config.replace("validation = 6", validation));
        place.run(&["train", "my.toml", "--resume", "--steps", "4"])
    };
    has(
        &with("validation = 3").refused(),
        &["was trained on 0..34 of `chats.jsonl`, and training would now be on 0..37"],
    );
    has(
        &with("validation = 8").done().stdout(),
        &["training was on 0..34 of `chats.jsonl` and is now on 0..32: what is held back for validation now"],
    );
}

#[test]
fn a_common_validation_is_the_same_for_a_run_and_its_evaluation() {
    let place = mixed();
    let held = (0..9).map(|line| format!("{{\"body\": \"{}\"}}\n", "held back ".repeat(1 + line)));
    place.write("held.jsonl", held.collect::<String>());
    let config = place.text("my.toml").replace(
        "validation = 6",
        "kind = 'jsonl'\nfield = 'body'\npacking = 'single'\nvalidation_path = 'held.jsonl'",
    );
    let config = config.replace("path = 'pairs.jsonl'", "path = 'pairs.jsonl'\nfield = 'text'");
    place.write("my.toml", config.replace("validation = 0.1\n", ""));
    place.run(&["train", "my.toml", "--steps", "3"]).done();
    let lines = place.lines("runs/mixed");
    let json = place.run(&["evaluate", "runs/mixed", "--format", "json"]).done().stdout();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [run, evaluated] = [&lines[2]["validation_loss"], &json["loss"]].map(|loss| loss.as_f64().unwrap());
    assert!((run - evaluated).abs() < 1e-6, "{run} and {evaluated}");
}

#[test]
fn an_exported_model_has_the_template_of_its_chats_wherever_they_stand() {
    let place = mixed();
    let list = |first: &str, second: &str| format!("data.sources=[{{{first}}}, {{{second}}}]");
    let [book, chats] = [
        "path='book.txt', validation=0.1",
        "kind='jsonl', path='chats.jsonl', field='messages', template='chatml'",
    ];
    for (run, sources) in [("a", list(book, chats)), ("b", list(chats, book))] {
        let (runs, out) = (format!("runs/{run}"), format!("out-{run}"));
        place.run_with(&["train", "my.toml", "--steps", "1", "--run-dir", &runs], &[&sources]).done();
        place.run(&["export", &runs, &out]).done();
        has(&place.text(&format!("{out}/chat_template.jinja")), &["<|im_start|>"]);
    }
}

#[test]
fn a_source_with_no_share_is_only_for_validation() {
    let place = mixed();
    let config = place.text("my.toml").replace("share = 0.2", "share = 0").replace("validation = 0.1\n", "");
    place.write("my.toml", config);
    let said = place.run(&["train", "my.toml", "--steps", "2"]).done().stdout();
    has(&said, &["book (share 0): ", "\n  book: loss "]);
    for [.., sequences, _] in numbers(&place, "runs/mixed") {
        assert_eq!(sequences.get("book"), None, "{sequences}");
    }
}

#[test]
fn what_is_wrong_in_a_source_is_named() {
    let place = mixed();
    let lines = place.text("pairs.jsonl");
    let lines = lines.lines().enumerate().map(|(line, text)| match line {
        16 => "{\"prompt\": \"w\"}\n".to_owned(),
        _ => format!("{text}\n"),
    });
    place.write("pairs.jsonl", lines.collect::<String>());
    has(&place.run(&["train", "my.toml"]).refused(), &["`pairs.jsonl` line 17 has no field \"text\""]);
    std::fs::remove_file(place.path("book.txt")).unwrap();
    let said = place.run_with(&["train", "my.toml"], &["data.sources=[{path = 'book.txt'}]"]).refused();
    has(&said, &["book.txt"]);
}
