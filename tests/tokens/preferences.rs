//! Records with a preferred answer and a rejected one.

use std::sync::Arc;

use pipewright::data::{DataSource, Encoded, IGNORED, Pairs, Reference};
use pipewright::id::MicroBatch;

use super::*;

fn recipe() -> Recipe {
    Recipe { pairs: true, ..Recipe::new(Form::Jsonl) }
}

fn documents(lines: &[Value], recipe: &Recipe) -> pipewright::Result<Documents> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("pairs.jsonl");
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&path, lines).unwrap();
    Documents::encode(&[path], &small(), recipe, &folder.path().join("cache"), &mut |_: Encoded| ())
}

/// Pairs of at most `seq` tokens a row, in order, and without a reference.
fn pairs(lines: &[Value], seq: usize, rows: usize) -> pipewright::Result<Pairs> {
    let documents = Arc::new(documents(lines, &recipe())?);
    let reference = Arc::new(Reference::none(documents, seq)?);
    let all = 0..reference.pairs();
    Pairs::in_order(reference, all, rows)
}

/// The text of each row, and what of it counts.
fn read(pairs: &Pairs, micro_batch: u32) -> Vec<[String; 2]> {
    let (input, target) = pairs.micro_batch(0, MicroBatch(micro_batch)).unwrap();
    let (time, width) = (input.shape().last(), target.shape().last());
    assert_eq!(width, time + 2);
    assert_eq!(pairs.shapes_of(0, MicroBatch(micro_batch)), (*input.shape(), *target.shape()));
    let rows = input.ids().chunks(time).zip(target.ids().chunks(width));
    let rows = rows.map(|(input, target)| {
        assert_eq!(target[time..], [0, 0], "no reference");
        let counts: Vec<u32> = target[..time].iter().copied().filter(|&label| label != IGNORED).collect();
        // Padding is token 0, and so is the token that ends a text.
        [input, &counts].map(|tokens| {
            let text: Vec<u32> = tokens.iter().copied().filter(|&token| token != 0).collect();
            small().decode(&text).unwrap()
        })
    });
    rows.collect()
}

fn both(chosen: [&str; 2], rejected: [&str; 2]) -> Vec<[String; 2]> {
    [chosen, rejected].map(|row| row.map(str::to_owned)).to_vec()
}

#[test]
fn an_answer_counts_and_what_stands_before_it_does_not() {
    let texts = json!({"prompt": "Hear me", "chosen": " speak.", "rejected": " go", "id": 7});
    assert_eq!(
        read(&pairs(&[texts], 64, 2).unwrap(), 0),
        both(["Hear me speak.", " speak."], ["Hear me go", " go"])
    );
    // Without a prompt, it is what both have in common.
    let texts = json!({"chosen": "Hear me speak.", "rejected": "Hear me go"});
    let with_null = json!({"prompt": null, "chosen": "Hear me speak.", "rejected": "Hear me go"});
    for texts in [texts, with_null] {
        assert_eq!(
            read(&pairs(&[texts], 64, 2).unwrap(), 0),
            both(["Hear me speak.", " speak."], ["Hear me go", " go"])
        );
    }
}

#[test]
fn of_chats_only_the_answers_count_that_differ() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let said = |text: &str| json!({"role": "assistant", "content": text});
    let ask = user("one");
    let parts = json!({"prompt": [ask], "chosen": [said("yes")], "rejected": [said("no")]});
    let whole = json!({"chosen": [ask, said("yes")], "rejected": [ask, said("no")]});
    let repeated = json!({"prompt": "one", "chosen": [ask, said("yes")], "rejected": [ask, said("no")]});
    let expected = read(&pairs(&[parts], 64, 2).unwrap(), 0);
    assert_eq!(
        expected.iter().map(|[_, counts]| &counts[..]).collect::<Vec<_>>(),
        ["yes", "no"].map(|word| { format!("{word}{}", small().decode(&[2]).unwrap()) })
    );
    for line in [whole, repeated] {
        assert_eq!(read(&pairs(std::slice::from_ref(&line), 64, 2).unwrap(), 0), expected, "{line}");
    }
    let twice = json!({"prompt": [ask], "chosen": [ask, said("yes")], "rejected": [ask, said("no")]});
    assert_eq!(read(&pairs(&[twice], 64, 2).unwrap(), 0), expected, "the prompt is not written twice");
    // An earlier answer that both have counts in neither.
    let before = [ask.clone(), said("first"), user("two")];
    let [chosen, rejected] = ["yes", "no"].map(|word| [&before[..], &[said(word)]].concat());
    let longer = json!({"chosen": chosen, "rejected": rejected});
    let counts: Vec<String> =
        read(&pairs(&[longer], 64, 2).unwrap(), 0).into_iter().map(|[_, counts]| counts).collect();
    assert_eq!(counts, expected.into_iter().map(|[_, counts]| counts).collect::<Vec<_>>());
}

#[test]
fn pairs_stay_together_in_every_order_and_each_is_used_once_an_epoch() {
    let line = |number: u32| {
        let (prompt, chosen) = (format!("{number}:"), format!(" good {number}"));
        json!({"prompt": prompt, "chosen": chosen, "rejected": " bad"})
    };
    let lines: Vec<Value> = (0..7).map(line).collect();
    let documents = Arc::new(documents(&lines, &recipe()).unwrap());
    for (rows, micro_batches) in [(2, 1), (4, 3), (6, 2), (14, 1)] {
        let reference = Reference::none(Arc::clone(&documents), 32).unwrap().with_whole_rows();
        let reference = Arc::new(reference);
        let pairs = Pairs::shuffled(reference, 0..7, rows, micro_batches, 5).unwrap();
        let mut seen = Vec::new();
        for step in 0..7 {
            for micro_batch in 0..micro_batches {
                let (input, _) = pairs.micro_batch(step, MicroBatch(micro_batch)).unwrap();
                for pair in input.ids().chunks(2 * 32) {
                    let texts: Vec<String> =
                        pair.chunks(32).map(|row| small().decode(row).unwrap()).collect();
                    let number = texts[0].split(':').next().unwrap().to_owned();
                    assert!(texts[0].contains(&format!(": good {number}")), "{texts:?}");
                    assert!(texts[1].contains(&format!("{number}: bad")), "{texts:?}");
                    seen.push(number);
                }
            }
        }
        for epoch in seen.chunks_exact(7) {
            let mut epoch = epoch.to_vec();
            epoch.sort();
            assert_eq!(epoch, ["0", "1", "2", "3", "4", "5", "6"], "{rows} rows, {micro_batches}");
        }
    }
}

#[test]
fn pairs_that_teach_nothing_are_left_out() {
    let lines = [
        json!({"prompt": "a", "chosen": " b", "rejected": " c"}),
        json!({"prompt": "a", "chosen": " equal", "rejected": " equal"}),
        json!({"prompt": "more than sixteen tokens, so no answer is left: ", "chosen": "b", "rejected": "c"}),
        json!({"prompt": "d", "chosen": " e", "rejected": " f"}),
    ];
    let pairs = pairs(&lines, 16, 2).unwrap();
    assert_eq!((pairs.count(), pairs.left_out()), (2, 2));
    assert_eq!(read(&pairs, 1), both(["d e", " e"], ["d f", " f"]));
    // After the last one, nothing counts.
    assert_eq!(read(&pairs, 2), both(["", ""], ["", ""]));
    let said = message(super::preferences::pairs(&lines[1..3], 16, 2));
    has(
        &said,
        &["pairs.jsonl`: none of its 2 pairs is used: of the pairs 0..2, each has two equal answers, or an \
             answer that begins after data.seq = 16 tokens: take a larger one, or shorter prompts"],
    );
}

#[test]
fn records_that_are_no_pairs_are_refused_with_their_line() {
    let user = json!([{"role": "user", "content": "one"}]);
    for (line, expected) in [
        (json!({"prompt": "a", "chosen": "b"}), "line 1 has no field \"rejected\""),
        (json!({"rejected": "b"}), "line 1 has no field \"chosen\""),
        (json!({"text": "b"}), "line 1 has no field \"chosen\""),
        (
            json!({"chosen": "b", "rejected": user}),
            "line 1 has a text in \"chosen\" and a list in \"rejected\", where two texts or two lists",
        ),
        (
            json!({"prompt": "one", "chosen": user, "rejected": "c"}),
            "line 1 has a list in \"chosen\" and a text in \"rejected\", where two texts or two lists",
        ),
        (
            json!({"question": "a", "chosen": "b", "rejected": "c"}),
            "line 1 has no \"prompt\", and \"question\" would be left out: write what stands before both",
        ),
        (
            json!({"system": "a", "chosen": user, "rejected": user}),
            "line 1 has no \"prompt\", and \"system\" would be left out",
        ),
        (
            json!({"chosen": user, "rejected": user}),
            "line 1 has no answer in \"chosen\": one of its messages has to be of the role \"assistant\"",
        ),
        (
            json!({"chosen": 1, "rejected": 2}),
            "line 1 has a number in \"chosen\" and a number in \"rejected\"",
        ),
        (
            json!({"prompt": user, "chosen": "b", "rejected": "c"}),
            "line 1 has a list in \"prompt\" and a text in \"chosen\"",
        ),
        (
            json!({"prompt": "gone", "chosen": user, "rejected": user}),
            "line 1 has a text in \"prompt\" that is no message of \"chosen\"",
        ),
    ] {
        let said = message(documents(std::slice::from_ref(&line), &recipe()));
        assert!(said.contains(expected), "{line}: {said}");
    }
}

#[test]
fn a_file_without_a_record_is_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("pairs.jsonl");
    for (text, expected) in [("", "pairs.jsonl` is empty"), ("\n\n", "pairs.jsonl` has no document")] {
        fs::write(&path, text).unwrap();
        for recipe in [recipe(), Recipe::new(Form::Jsonl)] {
            let paths = std::slice::from_ref(&path);
            let cache = folder.path().join("cache");
            has(&message(Documents::encode(paths, &small(), &recipe, &cache, &mut |_| ())), &[expected]);
        }
    }
}

#[test]
fn what_cannot_be_a_micro_batch_of_pairs_is_refused() {
    let line = json!({"prompt": "a", "chosen": " b", "rejected": " c"});
    let said = message(pairs(std::slice::from_ref(&line), 16, 3));
    has(&said, &["has 3 rows, and the two answers of a pair have to be in one micro-batch"]);
    let said = message(pairs(std::slice::from_ref(&line), 16, 0));
    has(&said, &["needs at least one row"]);
    let texts = Arc::new(documents(&[json!({"text": "no pair"})], &Recipe::new(Form::Jsonl)).unwrap());
    let said = message(Reference::new(texts, 16));
    let late =
        json!({"prompt": "more than sixteen tokens before an answer: ", "chosen": "b", "rejected": "c"});
    has(&message(pairs(&[late], 8, 2)), &["an answer that begins after data.seq = 8 tokens"]);
    has(&message(pairs(std::slice::from_ref(&line), 0, 2)), &["needs at least one token of a row"]);
    has(&said, &["are documents and no pairs of answers: encode them with `Recipe::pairs`"]);
    let documents = Arc::new(documents(&[line], &recipe()).unwrap());
    let reference = Arc::new(Reference::new(documents, 16).unwrap());
    let pairs = Pairs::in_order(Arc::clone(&reference), 0..1, 2).unwrap();
    has(&message(pairs.micro_batch(0, MicroBatch(0))), &["is not known yet: a run finds it out"]);
    has(&message(Pairs::in_order(reference, 0..2, 2)), &["0..2 is not a part of"]);
}
