//! What commands say of files that were meant in another way, of chats without answers, and of batches that
//! change.

use super::*;

/// A config for documents, one in each sequence.
const DOCUMENTS: &str = "\
[model]
vocab = 512
dim = 8
layers = 1
heads = 1

[data]
kind = 'jsonl'
path = 'train.jsonl'
tokenizer = 'TOKENIZER'
validation = 0
cache = 'cache'
packing = false
seq = 16

[pipeline]
stages = 1
micro_batches = 4
micro_batch_size = 1

[train]
name = 'small'
steps = 6
validate_every = 0
print_every = 1

[checkpoint]
every = 0
";

fn place(lines: &[serde_json::Value]) -> Place {
    let place = Place::new();
    place.write("my.toml", DOCUMENTS.replace("TOKENIZER", TOKENIZER));
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    place.write("train.jsonl", lines);
    place
}

/// Twelve documents of 2 to 13 targets, each of another length.
fn twelve() -> Place {
    let texts: Vec<_> = (2..14).map(|count| serde_json::json!({ "text": "a".repeat(count) })).collect();
    place(&texts)
}

fn numbers(place: &Place, key: &str) -> Vec<serde_json::Value> {
    place.lines("runs/small").iter().map(|line| line[key].clone()).collect()
}

fn targets(place: &Place) -> u64 {
    numbers(place, "tokens").iter().map(|tokens| tokens.as_u64().unwrap()).sum()
}

#[test]
fn a_resumed_run_with_another_batch_goes_on_with_the_samples_that_were_not_used() {
    let whole = twelve();
    whole.run(&["train", "my.toml", "--steps", "3"]).done();
    let parts = twelve();
    parts.run(&["train", "my.toml", "--steps", "2"]).done();
    let resume = ["train", "my.toml", "--resume", "--steps", "4", "--set", "pipeline.micro_batches=2"];
    let said = parts.run(&resume).done().stdout();
    has(&said, &["note      the data goes on with sample 8: none is repeated, and none is left out"]);
    assert_eq!(targets(&parts), targets(&whole), "an epoch is an epoch");
    // The next resume begins where this one has ended.
    let resume = ["train", "my.toml", "--resume", "--steps", "5", "--set", "pipeline.micro_batch_size=3"];
    has(&parts.run(&resume).done().stdout(), &["the data goes on with sample 12:"]);
}

#[test]
fn a_resume_in_another_order_is_told_and_data_that_was_held_back_is_refused() {
    let place = twelve();
    let first = ["train", "my.toml", "--steps", "2", "--set", "data.validation=4"];
    place.run(&first).done();
    let resume = ["train", "my.toml", "--resume", "--steps", "3"];
    let with = |sets: &[&str]| place.run_with(&resume, sets);
    has(
        &with(&["data.validation=2"]).refused(),
        &["was trained on 0..8 of `train.jsonl`, and training would now be on 0..10", "--allow-other-data"],
    );
    has(&with(&["data.validation_path=train.jsonl"]).refused(), &["training would now be on 0..12"]);
    let said = with(&["data.validation=5", "data.seed=2"]).done().stdout();
    has(&said, &["what is held back for validation now was trained on before"]);
    has(&said, &["the data goes on in another order (sequences of 16 tokens"]);
    let allowed = [&resume[..3], &["--steps", "4", "--allow-other-data"]].concat();
    has(&place.run(&allowed).done().stdout(), &["note      ", "training would now be on 0..12"]);
}

#[test]
fn a_step_without_a_target_has_no_loss_and_is_told() {
    let chat = |role: &str| serde_json::json!({"messages": [{"role": role, "content": "Hi"}]});
    let place = place(&[chat("assistant"), chat("user")]);
    let sets = [
        "data.field=messages",
        "data.loss_on=answers",
        "data.seq=64",
        "pipeline.micro_batches=1",
        "metrics.tensorboard=true",
    ];
    let said = place.run_with(&["train", "my.toml", "--steps", "2"], &sets).done().stdout();
    has(&said, &["; 1 of the 2 sequences for training have no target"]);
    has(&said, &["no loss: there is no target"]);
    let losses = numbers(&place, "loss");
    assert_eq!(losses.iter().filter(|loss| loss.is_null()).count(), 1, "{losses:?}");
    // The run goes on from such a line, and its page is made.
    place.run_with(&["train", "my.toml", "--resume", "--steps", "4"], &sets).done();
    assert_eq!(numbers(&place, "loss").iter().filter(|loss| loss.is_null()).count(), 2);
    place.run(&["report", "runs/small"]).done();
}

#[test]
fn a_validation_without_a_target_is_refused_and_part_of_one_is_told() {
    let chat = |role: &str| serde_json::json!({"messages": [{"role": role, "content": "Hi"}]});
    let place = place(&[chat("assistant"), chat("assistant"), chat("user"), chat("user")]);
    let with = |validation: &str, more: &[&str]| {
        let sets = [
            "data.field=messages",
            "data.loss_on=answers",
            "data.seq=64",
            "train.validate_every=1",
            validation,
        ];
        place.run_with(&[&["train", "my.toml", "--steps", "1"], more].concat(), &sets)
    };
    has(&with("data.validation=2", &[]).refused(), &["no token is a target"]);
    let said = with("data.validation=3", &[]).done().stdout();
    has(&said, &["; 2 of the 3 sequences for validation have no target"]);
    // Only the last ones are validated on, so there is no loss, and no best checkpoint.
    let lines = [chat("user"), chat("assistant")].map(|line| format!("{line}\n")).concat();
    place.write("held.jsonl", lines);
    let more = ["--run-dir", "runs/none", "--set", "train.validation_micro_batches=1"];
    let said = with("data.validation_path=held.jsonl", &more).done().stdout();
    has(&said, &["validation after 1 step: no loss: there is no target"]);
    let mark = place.text("runs/none/run.json");
    assert!(!mark.contains("validation_loss"), "{mark}");
    let args = ["evaluate", "runs/none", "--format", "json"];
    let printed: serde_json::Value = serde_json::from_str(&place.run(&args).done().stdout()).unwrap();
    assert!(printed["loss"].is_null() && printed.get("perplexity").is_none(), "{printed}");
}

#[test]
fn what_tokenize_makes_trains_without_a_setting_of_its_type() {
    let place = twelve();
    let tokenize =
        |input: &str, out: &str| place.run(&["tokenize", input, "--tokenizer", TOKENIZER, "--out", out]);
    fs::copy(place.path("train.jsonl"), place.path("train.json")).unwrap();
    has(&tokenize("train.json", "a.bin").done().stdout(), &["of 12 documents"]);
    let said = place
        .run(&["tokenize", "train.json", "text.txt", "--tokenizer", TOKENIZER, "--out", "b.bin"])
        .refused();
    has(&said, &["train.json` is JSON lines and `text.txt` is text"]);
    // The same tokens in four bytes each, and nothing beside them.
    let narrow = fs::read(place.path("a.bin")).unwrap();
    let wide: Vec<u8> = narrow.chunks(2).flat_map(|token| [token[0], token[1], 0, 0]).collect();
    place.write("wide.bin", wide);
    let train = |path: &str, vocab: &str, more: &[&str]| {
        let sets = ["data.kind=tokens", "data.seq=4", "pipeline.micro_batches=1", path, vocab];
        let args = ["train", "my.toml", "--steps", "1", "--run-dir", "runs/t"];
        place.run_with(&args, &[&sets, more].concat())
    };
    let count = narrow.len() / 2;
    let said = train("data.path=wide.bin", "model.vocab=512", &[]).refused();
    has(&said, &["wide.bin` has a 0 in every second place when it is read as u16"]);
    let said = train("data.path=wide.bin", "model.vocab=70000", &["data.dtype=u16"]).refused();
    has(&said, &["data.dtype = \"u16\" holds tokens up to 65,535, and model.vocab is 70000"]);
    let said = train("data.path=wide.bin", "model.vocab=70000", &[]).done().stdout();
    has(&said, &[&format!("`wide.bin`: 1 documents of {count} tokens")]);
    fs::remove_dir_all(place.path("runs/t")).unwrap();
    let said = train("data.path=a.bin", "model.vocab=70000", &[]).done().stdout();
    has(&said, &[&format!("`a.bin`: 1 documents of {count} tokens")]);
}

#[test]
fn tokens_of_two_tokenizers_are_neither_trained_together_nor_validated_on() {
    let place = twelve();
    let same = fs::read_to_string(Path::new(TOKENIZER).join("tokenizer.json")).unwrap();
    place.write("other.json", same + " ");
    for (tokenizer, out) in [(TOKENIZER, "a.bin"), ("other.json", "b.bin")] {
        place.run(&["tokenize", "train.jsonl", "--tokenizer", tokenizer, "--out", out]).done();
    }
    for keys in [&["data.path=[\"a.bin\",\"b.bin\"]"][..], &["data.path=a.bin", "data.validation_path=b.bin"]]
    {
        let sets = ["data.kind=tokens", "model.vocab=512"];
        let said = place.run_with(&["train", "my.toml"], &[&sets, keys].concat()).refused();
        let expected = "error: `a.bin` and `b.bin` were made with two tokenizers: write both with one";
        has(&said, &[expected]);
    }
}

#[test]
fn text_that_was_meant_in_another_way_is_warned_of() {
    let place = twelve();
    place.write("a.csv", "Hear\r\nme\r\n".repeat(100));
    place.write("my.toml", place.text("my.toml").replace("packing = false\n", ""));
    let sets = ["data.kind=text", "data.path=a.csv", "data.validation=0.5", "model.vocab=512"];
    let run = place.run_with(&["train", "my.toml", "--steps", "1"], &sets).done();
    let said = run.stderr();
    has(&said, &["warning: `a.csv` seems to be a table, and is read as plain text"]);
    has(&said, &["warning: `a.csv` has carriage returns"]);
    has(&place.run(&["evaluate", "runs/small"]).done().stderr(), &["warning: `a.csv` has carriage returns"]);
    let said = place.run(&["tokenize", "a.csv", "--tokenizer", TOKENIZER, "--out", "a.bin"]).done().stderr();
    has(&said, &["warning: `a.csv` seems to be a table"]);
}
