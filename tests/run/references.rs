//! What a model gives answers before it is trained is found out once, in parts.

use std::sync::Mutex;

use pipewright::data::{Documents, Form, Pairs, Recipe, Reference};
use pipewright::run::Interrupt;
use pipewright::stages::loss::Preference;
use pipewright::stages::models::Gpt;
use pipewright::tokenizer::Tokenizer;

use super::*;

/// More pairs than are evaluated at first: 8.
const PAIRS: u64 = 100;

fn documents(folder: &Path) -> Arc<Documents> {
    let file = folder.join("pairs.jsonl");
    let line =
        |number: u64| format!("{{\"prompt\": \"{number}\", \"chosen\": \" a\", \"rejected\": \" b\"}}\n");
    fs::write(&file, (0..PAIRS).map(line).collect::<String>()).expect("written");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizer/tokenizer.json");
    let tokenizer = Tokenizer::read(&path).expect("it is kept");
    let recipe = Recipe { pairs: true, ..Recipe::new(Form::Jsonl) };
    Arc::new(Documents::encode(&[file], &tokenizer, &recipe, folder, &mut |_| ()).expect("pairs"))
}

/// A reference that is kept in a folder, and a pipeline with its pairs. `begun` hears which pairs are
/// evaluated.
fn parts(
    folder: &Path,
    begun: impl Fn(u64) + Send + Sync + 'static,
) -> (Arc<Reference>, Pipeline<Sequential>) {
    let reference = Reference::new(documents(folder), 16).expect("they are pairs");
    let reference = Arc::new(reference.kept_in(folder.to_owned(), "a GPT".to_owned()));
    reference.on_progress(move |pair, all| {
        assert_eq!(all, PAIRS);
        begun(pair);
    });
    let pairs = Pairs::shuffled(Arc::clone(&reference), 0..PAIRS, 4, 2, 1).expect("even");
    let gpt =
        Gpt { vocab: 512, dim: 8, layers: 1, heads: 2, context: 16, dropout: 0.0, tied: false, seed: 1 };
    let pipeline = Pipeline::builder()
        .schedule(Schedule::one_f_one_b(2, 2).expect("two ranks"))
        .stages(gpt.model().and_then(|model| model.split(2)).expect("two stages"))
        .loss(Preference::dpo(0.1).expect("above 0"))
        .data(Arc::new(pairs))
        .pin(false)
        .launch();
    (reference, pipeline.expect("the parts fit"))
}

#[test]
fn a_run_that_is_asked_to_end_keeps_what_it_knows_and_the_next_one_goes_on_from_there() {
    let place = Place::new();
    let interrupt = Interrupt::default();
    let (asked, folder) = (interrupt.clone(), place.0.path());
    let (reference, mut pipeline) = parts(folder, move |pair| {
        if pair == 3 {
            asked.request();
        }
    });
    let run = place.run().steps(3).interrupt(interrupt).reference(reference);
    let error = run.train(&mut pipeline).expect_err("it is asked to end").to_string();
    has(
        &error,
        &[
            "the run was asked to end when 8 of 100 pairs were evaluated",
            "nothing was trained, and the next run goes on from there",
        ],
    );
    assert!(!place.path().exists(), "no run was begun");
    drop(pipeline);

    let first: Arc<Mutex<Vec<u64>>> = Arc::default();
    let begun = Arc::clone(&first);
    let (reference, mut pipeline) = parts(folder, move |pair| begun.lock().expect("no panic").push(pair));
    place.run().steps(3).reference(reference).train(&mut pipeline).expect("it trains");
    let begun = first.lock().expect("no panic");
    assert_eq!((begun.iter().min(), begun.iter().max()), (Some(&9), Some(&PAIRS)));
    let hash = pipeline.weights_hash().expect("the pipeline runs");

    // The same as in a run that found out all of it.
    let other = Place::new();
    let (reference, mut pipeline) = parts(other.0.path(), |_| ());
    other.run().steps(3).reference(reference).train(&mut pipeline).expect("it trains");
    assert_eq!(pipeline.weights_hash().expect("the pipeline runs"), hash);
}
