use std::collections::BTreeMap;
use std::sync::Arc;

use pipewright::data::{Course, DataSource, IGNORED, Longer, Packing, Sequences};
use pipewright::id::MicroBatch;

use super::*;

const SEQ: usize = 8;

/// Documents of these texts.
pub(super) fn documents(texts: &[String]) -> Arc<Documents> {
    let lines = texts.iter().map(|text| serde_json::json!({ "text": text }).to_string());
    of_lines(&lines.collect::<Vec<_>>(), &Recipe::new(Form::Jsonl))
}

fn of_lines(lines: &[String], recipe: &Recipe) -> Arc<Documents> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.jsonl");
    fs::write(&path, lines.join("\n")).unwrap();
    let cache = folder.path().join("cache");
    // The token file stays open when its folder is removed.
    Arc::new(Documents::encode(&[path], &small(), recipe, &cache, &mut |_| ()).unwrap())
}

/// Texts of different lengths.
pub(super) fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number} ").repeat(1 + number % 7)).collect()
}

/// The tokens of all documents, one after the other.
fn stream(texts: &[String]) -> Vec<u32> {
    texts.iter().flat_map(|text| [small().encode(text).unwrap(), vec![0]].concat()).collect()
}

/// The rows of a step of `micro_batches` micro-batches: input and target.
fn rows(source: &Sequences, step: u64, micro_batches: u32) -> Vec<(Vec<u32>, Vec<u32>)> {
    let each = |micro_batch| {
        let (input, target) = source.micro_batch(step, MicroBatch(micro_batch)).unwrap();
        let rows = input.ids().chunks(SEQ).map(<[u32]>::to_vec);
        rows.zip(target.ids().chunks(SEQ).map(<[u32]>::to_vec)).collect::<Vec<_>>()
    };
    (0..micro_batches).flat_map(each).collect()
}

#[test]
fn packed_documents_follow_each_other_and_each_token_is_a_target_once() {
    let texts = texts(40);
    let all = stream(&texts);
    let source = Sequences::in_order(documents(&texts), 0..40, Packing::Joined, (3, SEQ)).unwrap();
    assert_eq!(source.count() as usize, (all.len() - 1).div_ceil(SEQ));
    let read = rows(&source, 5, source.count() as u32);
    let targets: Vec<u32> = read.iter().flat_map(|(_, target)| target.clone()).collect();
    let counted: Vec<u32> = targets.into_iter().filter(|&token| token != IGNORED).collect();
    assert_eq!(counted, all[1..]);
    assert_eq!(read[1].0, all[SEQ..2 * SEQ]);
    assert_eq!(read[1].1, all[SEQ + 1..=2 * SEQ]);
}

#[test]
fn an_epoch_has_every_sequence_once_and_the_next_one_in_another_order() {
    let texts = texts(60);
    let documents = documents(&texts);
    let order = Sequences::in_order(Arc::clone(&documents), 0..60, Packing::Joined, (1, SEQ)).unwrap();
    let count = order.count();
    let in_order = rows(&order, 0, count as u32);
    // One row a step, so that an epoch is `count` steps.
    let shuffled = |seed| {
        Sequences::shuffled(Arc::clone(&documents), 0..60, Packing::Joined, (1, SEQ), 1, seed).unwrap()
    };
    let epoch = |source: &Sequences, number: u64| -> Vec<_> {
        (number * count..(number + 1) * count).flat_map(|step| rows(source, step, 1)).collect()
    };
    let (first, second) = (epoch(&shuffled(1), 0), epoch(&shuffled(1), 1));
    let counted = |rows: &[(Vec<u32>, Vec<u32>)]| {
        let mut counts = BTreeMap::new();
        for row in rows {
            *counts.entry(row.clone()).or_insert(0) += 1;
        }
        counts
    };
    assert_eq!(counted(&first), counted(&in_order));
    assert_eq!(counted(&second), counted(&in_order));
    assert!(first != second && first != in_order && first != epoch(&shuffled(2), 0));
    assert_eq!(first, epoch(&shuffled(1), 0), "a new source gives the same");
}

#[test]
fn any_division_of_a_batch_into_micro_batches_has_the_same_rows() {
    let texts = texts(60);
    let documents = documents(&texts);
    let of = |rows, micro_batches| {
        let size = (rows, SEQ);
        Sequences::shuffled(Arc::clone(&documents), 0..60, Packing::Joined, size, micro_batches, 7).unwrap()
    };
    for step in [0, 3, 1000] {
        let whole = rows(&of(12, 1), step, 1);
        assert_eq!(rows(&of(3, 4), step, 4), whole);
        assert_eq!(rows(&of(1, 12), step, 12), whole);
    }
}

#[test]
fn without_packing_a_sequence_is_the_beginning_of_one_document() {
    let texts = texts(20);
    let source = Sequences::in_order(documents(&texts), 5..20, Packing::Single, (4, SEQ)).unwrap();
    assert_eq!(source.count(), 15);
    let read = rows(&source, 0, 4);
    let mut cut = 0;
    for (text, (input, target)) in texts[5..].iter().zip(&read) {
        let all = stream(std::slice::from_ref(text));
        cut += u64::from(all.len() > SEQ + 1);
        let count = (all.len() - 1).min(SEQ);
        assert_eq!((&input[..count], &target[..count]), (&all[..count], &all[1..=count]));
        assert!(target[count..].iter().all(|&target| target == IGNORED));
    }
    assert!(cut > 0 && source.longer() == cut);
    assert!(read[15].1.iter().all(|&target| target == IGNORED), "rows after the last document");
}

#[test]
fn only_answers_are_targets_and_tokens_are_as_the_model_knows_them() {
    let line = r#"{"messages": [
        {"role": "user", "content": "one two"}, {"role": "assistant", "content": "three"}]}"#;
    let line = line.replace('\n', " ");
    let recipe = |loss_on| Recipe { field: "messages".to_owned(), loss_on, ..Recipe::new(Form::Jsonl) };
    let lines = vec![line; 3];
    let documents = of_lines(&lines, &recipe(LossOn::Answers));
    let source = Sequences::in_order(documents, 0..3, Packing::Single, (3, 64)).unwrap();
    let (input, target) = source.micro_batch(0, MicroBatch(0)).unwrap();
    assert!(input.ids().iter().all(|&token| token < 512));
    let counted: Vec<u32> = target.ids().iter().copied().filter(|&token| token != IGNORED).collect();
    let answer = [small().encode("three").unwrap(), vec![2]].concat();
    assert_eq!(counted, [&answer[..], &answer, &answer].concat());
}

#[test]
fn data_without_a_target_or_without_a_document_is_refused() {
    let line = r#"{"messages": [{"role": "user", "content": "a long question, longer than eight tokens"},
        {"role": "assistant", "content": "no"}]}"#;
    let recipe =
        Recipe { field: "messages".to_owned(), loss_on: LossOn::Answers, ..Recipe::new(Form::Jsonl) };
    let documents = of_lines(&[line.replace('\n', " ")], &recipe);
    let said = message(Sequences::shuffled(Arc::clone(&documents), 0..1, Packing::Single, (1, SEQ), 1, 1));
    has(&said, &["no token is a target", "data.seq = 8"]);
    let said = message(Sequences::in_order(Arc::clone(&documents), 1..1, Packing::Joined, (1, SEQ)));
    has(&said, &["none of its 1 documents is for validation"]);
    has(
        &message(Sequences::in_order(documents, 0..2, Packing::Joined, (1, SEQ))),
        &["0..2 is not a part of"],
    );
}

#[test]
fn the_fingerprint_differs_for_other_texts_and_for_other_targets_only() {
    let lines: Vec<String> = encoded()["chats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chat| serde_json::json!({ "messages": chat["messages"] }).to_string())
        .collect();
    let of = |lines: &[String], loss_on, seq| {
        let recipe = Recipe { field: "messages".to_owned(), loss_on, ..Recipe::new(Form::Jsonl) };
        let count = lines.len() as u64;
        let source =
            Sequences::in_order(of_lines(lines, &recipe), 0..count, Packing::Joined, (1, seq)).unwrap();
        source.fingerprint().unwrap()
    };
    let plain = of(&lines, LossOn::All, SEQ);
    assert!(plain.same_batches(&of(&lines, LossOn::All, SEQ)));
    assert!(!plain.same_contents(&of(&lines[1..], LossOn::All, SEQ)));
    assert!(!plain.same_contents(&of(&lines, LossOn::Answers, SEQ)));
    let longer = of(&lines, LossOn::All, 9);
    assert!(plain.same_contents(&longer) && !plain.same_batches(&longer));
}

/// The documents of each row of a step: for each, its input and its targets.
fn apart(source: &Sequences, step: u64, micro_batches: u32) -> Vec<Vec<(Vec<u32>, Vec<u32>)>> {
    let mut all = Vec::new();
    for micro_batch in (0..micro_batches).map(MicroBatch) {
        let (input, target) = source.micro_batch(step, micro_batch).unwrap();
        let starts = source.documents(step, micro_batch).unwrap().unwrap();
        let length = input.shape().last();
        let [inputs, targets, starts] = [&input, &target, &starts].map(|tensor| tensor.ids().chunks(length));
        for ((input, target), starts) in inputs.zip(targets).zip(starts) {
            let mut documents = Vec::new();
            let mut place = 0;
            for starts in starts.chunk_by(|a, b| a == b) {
                assert_eq!(starts[0] as usize, place, "a document begins with its first token");
                let own = place..place + starts.len();
                documents.push((input[own.clone()].to_vec(), target[own].to_vec()));
                place += starts.len();
            }
            all.push(documents);
        }
    }
    all
}

/// The share of the places of all sequences in which no token stands.
fn padding(source: &Sequences, seq: usize) -> f64 {
    let targets = (0..source.count() as u32).map(|micro_batch| {
        let (_, target) = source.micro_batch(0, MicroBatch(micro_batch)).unwrap();
        target.ids().iter().filter(|target| **target != IGNORED).count()
    });
    1.0 - targets.sum::<usize>() as f64 / (source.count() as f64 * seq as f64)
}

#[test]
fn documents_are_kept_apart_and_each_token_is_a_target_once() {
    let texts = texts(60);
    let documents = documents(&texts);
    for (longer, seq) in [(Longer::Cut, SEQ), (Longer::LeaveOut, SEQ)] {
        let source =
            Sequences::in_order(Arc::clone(&documents), 0..60, Packing::Apart(longer), (3, seq)).unwrap();
        let micro_batches = source.count().div_ceil(3) as u32;
        let mut got: Vec<(Vec<u32>, Vec<u32>)> =
            apart(&source, 4, micro_batches).into_iter().flatten().collect();
        // What is left over at the end of a row has no target.
        got.retain(|(_, target)| target.iter().any(|token| *token != IGNORED));
        let mut expected = Vec::new();
        for text in &texts {
            let tokens = [small().encode(text).unwrap(), vec![0]].concat();
            if longer == Longer::LeaveOut && tokens.len() > seq + 1 {
                continue;
            }
            let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
            expected
                .extend(inputs.chunks(seq).zip(targets.chunks(seq)).map(|(a, b)| (a.to_vec(), b.to_vec())));
        }
        let sorted = |mut all: Vec<(Vec<u32>, Vec<u32>)>| {
            all.sort();
            all
        };
        assert_eq!(sorted(got), sorted(expected), "{longer:?}");
        assert!(source.longer() > 0);
    }
}

#[test]
fn best_fit_leaves_few_places_empty() {
    let documents = documents(&texts(400));
    let empty = |packing| {
        let source = Sequences::in_order(Arc::clone(&documents), 0..400, packing, (1, 64)).unwrap();
        assert_eq!(source.longer(), 0);
        padding(&source, 64)
    };
    let [apart, single] = [Packing::Apart(Longer::Cut), Packing::Single].map(empty);
    assert!(apart < 0.01 && single > 0.5, "{apart} and {single} of all places are empty");
}

#[test]
fn a_document_that_is_too_long_is_refused_where_it_may_not_be_cut() {
    let documents = documents(&texts(9));
    let packing = Packing::Apart(Longer::Refuse);
    has(
        &message(Sequences::in_order(Arc::clone(&documents), 0..9, packing, (1, SEQ))),
        &["document ", " tokens, and a sequence has at most 9", "data.longer = \"cut\" or \"leave-out\""],
    );
    let longest = Sequences::in_order(Arc::clone(&documents), 0..9, packing, (1, 64)).unwrap();
    assert_eq!(longest.longer(), 0);
    let none = message(Sequences::in_order(documents, 4..5, Packing::Apart(Longer::LeaveOut), (1, 2)));
    has(&none, &["none of its 9 documents is for validation"]);
}

#[test]
fn how_documents_are_packed_does_not_depend_on_who_asks() {
    let documents = documents(&texts(60));
    let of = |rows, micro_batches| {
        let packing = Packing::Apart(Longer::Cut);
        let size = (rows, SEQ);
        Sequences::shuffled(Arc::clone(&documents), 0..60, packing, size, micro_batches, 7).unwrap()
    };
    // A batch of six sequences, in any micro-batches.
    let whole = apart(&of(6, 1), 3, 1);
    for (rows, micro_batches) in [(1, 6), (2, 3), (3, 2)] {
        assert_eq!(apart(&of(rows, micro_batches), 3, micro_batches), whole);
    }
    let [joined, cut, left_out] =
        [Packing::Joined, Packing::Apart(Longer::Cut), Packing::Apart(Longer::LeaveOut)].map(|packing| {
            Sequences::in_order(Arc::clone(&documents), 0..60, packing, (1, SEQ))
                .unwrap()
                .fingerprint()
                .unwrap()
        });
    assert!(joined.same_contents(&cut) && !joined.same_batches(&cut) && !cut.same_batches(&left_out));
    let plain = Sequences::in_order(documents, 0..60, Packing::Joined, (1, SEQ)).unwrap();
    assert!(plain.documents(0, MicroBatch(0)).unwrap().is_none());
}

#[test]
fn sequences_without_a_target_are_counted() {
    let chat = |answer: bool| {
        let role = if answer { "assistant" } else { "user" };
        let chat = serde_json::json!({"messages": [{"role": role, "content": "one two"}]});
        chat.to_string()
    };
    let lines: Vec<String> = [true, false, true, false, false].map(chat).into();
    let recipe = |loss_on| Recipe { field: "messages".to_owned(), loss_on, ..Recipe::new(Form::Jsonl) };
    let of = |loss_on, packed, seq| {
        let documents = of_lines(&lines, &recipe(loss_on));
        let order = Sequences::in_order(Arc::clone(&documents), 0..5, packed, (1, seq)).unwrap();
        let shuffled = Sequences::shuffled(documents, 0..5, packed, (1, seq), 1, 1).unwrap();
        assert_eq!(shuffled.without_target(), order.without_target());
        (order.without_target(), order.count())
    };
    assert_eq!(of(LossOn::Answers, Packing::Single, 64), (3, 5));
    assert_eq!(of(LossOn::All, Packing::Single, 64), (0, 5));
    assert_eq!(of(LossOn::All, Packing::Joined, 8).0, 0);
    // Packed, the last three chats are one sequence or more without an answer.
    let (without, all) = of(LossOn::Answers, Packing::Joined, 8);
    assert!(without >= 2 && without < all, "{without} of {all}");
    let documents = documents(&["".to_owned(), "one".to_owned()]);
    let of_empty = Sequences::in_order(documents, 0..2, Packing::Single, (1, 8)).unwrap();
    assert_eq!(of_empty.without_target(), 1, "an empty document has only the token at its end");
}

#[test]
fn validation_without_any_target_is_refused() {
    let line = r#"{"messages": [{"role": "user", "content": "one two"}]}"#.to_owned();
    let recipe =
        Recipe { field: "messages".to_owned(), loss_on: LossOn::Answers, ..Recipe::new(Form::Jsonl) };
    let said = message(Sequences::in_order(of_lines(&[line], &recipe), 0..1, Packing::Single, (1, 8)));
    has(&said, &["no token is a target"]);
}

#[test]
fn a_training_that_goes_on_with_another_batch_reads_each_sequence_of_an_epoch_once() {
    let texts = texts(60);
    let documents = documents(&texts);
    let of = |rows, micro_batches, course| {
        let size = (rows, SEQ);
        let source =
            Sequences::shuffled(Arc::clone(&documents), 0..60, Packing::Joined, size, micro_batches, 7);
        source.unwrap().on_course(course)
    };
    let whole = Course::new(1);
    let one_by_one = of(1, 1, whole);
    let mut expected = (0..).flat_map(|step| rows(&one_by_one, step, 1));
    // Steps of 12, 5, 6 and again 12 rows, each three steps long.
    let mut course = Course::new(12);
    for (part, (size, micro_batches)) in [(3, 4), (5, 1), (1, 6), (6, 2)].into_iter().enumerate() {
        let each = size as u64 * u64::from(micro_batches);
        course = course.go_on(3 * part as u64, each);
        assert_eq!(course, course.go_on(3 * part as u64 + 1, each), "the same batch changes nothing");
        let source = of(size, micro_batches, course);
        for step in 3 * part as u64..3 * part as u64 + 3 {
            let read = rows(&source, step, micro_batches);
            assert_eq!(read.len() as u64, each);
            read.into_iter().for_each(|row| assert_eq!(Some(row), expected.next()));
        }
    }
    assert_eq!(course.first(9), 3 * (12 + 5 + 6));
    assert_eq!(course.first(10), 3 * (12 + 5 + 6) + 12);
}

/// What each row of a source reads, without what fills it up, cut where documents begin.
fn read_apart(source: &Sequences) -> Vec<Vec<u32>> {
    let mut read = Vec::new();
    for micro_batch in 0..source.count() as u32 {
        let (input, target) = source.micro_batch(0, MicroBatch(micro_batch)).unwrap();
        let starts = source.documents(0, MicroBatch(micro_batch)).unwrap().expect("they are kept apart");
        let (input, target, starts) = (input.ids(), target.ids(), starts.ids());
        let mut own: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for at in 0..input.len() {
            if target[at] != IGNORED {
                let document = own.entry(starts[at]).or_insert_with(|| vec![input[at]]);
                document.push(target[at]);
            }
        }
        read.extend(own.into_values());
    }
    read.sort();
    read
}

#[test]
fn each_file_of_text_is_a_document() {
    let folder = TempDir::new().unwrap();
    let texts = ["one", "sixteen", "five5"];
    for (text, name) in texts.iter().zip(["a.txt", "b.txt", "c.txt"]) {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let documents = Arc::new(Documents::of(Corpus::text(&[folder.path().to_owned()]).unwrap()).unwrap());
    assert_eq!(documents.count(), 3);
    let apart = Packing::Apart(Longer::Refuse);
    let source = Sequences::in_order(Arc::clone(&documents), 0..3, apart, (1, SEQ)).unwrap();
    let mut expected: Vec<Vec<u32>> =
        texts.iter().map(|text| text.bytes().map(u32::from).collect()).collect();
    expected.sort();
    assert_eq!(read_apart(&source), expected);
    // Other borders are other data.
    fs::write(folder.path().join("a.txt"), "onesix").unwrap();
    fs::write(folder.path().join("b.txt"), "teen").unwrap();
    let other = Documents::of(Corpus::text(&[folder.path().to_owned()]).unwrap()).unwrap();
    let other = Sequences::in_order(Arc::new(other), 0..3, apart, (1, SEQ)).unwrap();
    let [one, other] = [&source, &other].map(|source| source.fingerprint().unwrap());
    assert_ne!(one.contents, other.contents);
}

#[test]
fn the_index_of_a_token_file_says_where_documents_end() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("all.bin");
    let documents: [&[u32]; 3] = [&[1, 2, 3], &[4, 5], &[6, 7, 8, 9]];
    let mut writer = TokenWriter::create(&path, Width::U16).unwrap();
    for tokens in documents {
        writer.add(tokens).unwrap();
        writer.end_document();
    }
    writer.finish(true).unwrap();
    let apart = Packing::Apart(Longer::Refuse);
    let read = |paths: &[PathBuf]| {
        let corpus = Corpus::tokens(paths, Width::U16).unwrap();
        let documents = Arc::new(Documents::of(corpus).unwrap());
        let all = 0..documents.count();
        read_apart(&Sequences::in_order(documents, all, apart, (1, SEQ)).unwrap())
    };
    let mut expected = documents.map(<[u32]>::to_vec).to_vec();
    assert_eq!(read(std::slice::from_ref(&path)), expected);
    // A file without an index is one document.
    let plain = folder.path().join("plain.bin");
    fs::write(&plain, [11_u16, 12, 13].map(u16::to_le_bytes).concat()).unwrap();
    expected.push(vec![11, 12, 13]);
    assert_eq!(read(&[path, plain]), expected);
}
