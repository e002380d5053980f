use super::*;

/// What `--set` needs to train on `path` with the small tokenizer.
fn with_tokenizer(kind: &str, path: &str) -> Vec<String> {
    let sets = [
        format!("data.kind={kind}"),
        format!("data.path={path}"),
        format!("data.tokenizer={TOKENIZER}"),
        "model.vocab=512".to_owned(),
    ];
    sets.into_iter().flat_map(|set| ["--set".to_owned(), set]).collect()
}

fn train(place: &Place, sets: &[String], more: &[&str]) -> Run {
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let cache = ["train", "my.toml", "--steps", "2"];
    place.run(&[&cache[..], &sets, more].concat()).done()
}

#[test]
fn a_model_reads_and_writes_text_through_its_tokenizer() {
    let place = Place::new();
    let mut sets = with_tokenizer("text", "text.txt");
    sets.extend(["--set".to_owned(), "data.cache=cache".to_owned()]);
    train(&place, &sets, &[]);
    let sample = |args: &[&str]| {
        let all = [&["sample", "runs/small", "--tokens", "5"], args].concat();
        place.run(&all).done().stdout()
    };
    let text = sample(&["--prompt", "the quick fox"]);
    assert!(text.starts_with("the quick fox") && text.ends_with('\n'), "{text}");
    assert!(sample(&[]).starts_with("<|endoftext|>"));
}

#[test]
fn what_tokenize_writes_trains_and_the_model_writes_text() {
    let place = Place::new();
    let args = ["tokenize", "text.txt", "--tokenizer", TOKENIZER, "--out", "train.bin"];
    has(&place.run(&[&args[..], &["--megatron"]].concat()).done().stdout(), &["tokens (u16) of 1 documents"]);
    assert!(place.path("train.idx").exists());
    train(&place, &with_tokenizer("tokens", "train"), &[]);
    let text = place.run(&["sample", "runs/small", "--prompt", "the", "--tokens", "3"]).done();
    assert!(text.stdout().starts_with("the"));
    has(&place.run(&args).refused(), &["--out train.bin: this file exists"]);
}

#[test]
fn tokenize_says_how_long_documents_are_and_how_they_fit_into_sequences() {
    let place = Place::new();
    let line = |count: usize| serde_json::json!({ "text": "a".repeat(count) }).to_string() + "\n";
    // With the token that ends each: 4, 5, 9, 13 and 21 tokens.
    place.write("short.jsonl", [3, 4, 8, 12, 20].map(line).concat());
    let args = ["tokenize", "short.jsonl", "--tokenizer", TOKENIZER];
    let said = place.run(&[&args[..], &["--out", "a.bin", "--seq", "16"]].concat()).done().stdout();
    has(
        &said,
        &[
            "52 tokens (u16) of 5 documents",
            "a document has 4 to 21 tokens, half of them at most 9",
            "in sequences of 16 (--seq), with data.packing = \"apart\": 3 sequences, 2.1 % of their places \
             empty, 1 document cut",
        ],
    );
    let said = place.run(&[&args[..], &["--out", "b.bin"]].concat()).done().stdout();
    has(
        &said,
        &["in sequences of 1024 (--seq)", ": 1 sequence, 95.4 % of their places empty, 0 documents cut"],
    );
}

#[test]
fn what_cannot_be_tokenized_is_refused() {
    let place = Place::new();
    let refused = |input: &str, tokenizer: &str, out: &str| {
        place.run(&["tokenize", input, "--tokenizer", tokenizer, "--out", out]).refused()
    };
    assert!(refused("text.txt", TOKENIZER, "x.txt").contains("a name that ends in `.bin`"));
    assert!(refused("text.txt", TOKENIZER, "none/x.bin").contains("there is no folder none"));
    assert!(refused("text.txt", "my.toml", "x.bin").contains("my.toml` is no tokenizer"));
    assert!(refused("none", TOKENIZER, "x.bin").contains("cannot read `none`"));
    let left: Vec<_> = fs::read_dir(place.path(".")).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing is written: {left:?}");
}

#[test]
fn a_tokenizer_that_does_not_fit_the_model_is_refused_by_name() {
    let place = Place::new();
    let tokenizer = format!("data.tokenizer={TOKENIZER}");
    let said = place.run(&["train", "my.toml", "--set", &tokenizer]).refused();
    has(&said, &["tokenizer.json` has 512 tokens, and model.vocab is 256: set model.vocab to 512"]);
}
