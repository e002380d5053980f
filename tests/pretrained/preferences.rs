//! A training on pairs of answers has TRL's losses, gradients and weights. `scripts/preference_golden.py`
//! makes `tests/golden/preferences`.

use pipewright::checkpoint::Checkpoint;
use pipewright::data::{Documents, Form, Pairs, Recipe, Reference};
use pipewright::run::{Event, Run};
use pipewright::stages::loss::{AnyLoss, PairwiseReward, Preference};
use pipewright::stages::optimizer::Sgd;
use pipewright::tokenizer::Tokenizer;

use super::*;

/// A file or a folder that the script has made.
fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/preferences").join(name)
}

/// The pairs, six in one step: three micro-batches of two.
fn pairs(scratch: &Path, has_reference: bool) -> (Arc<Reference>, Arc<Pairs>) {
    let tokenizer = Tokenizer::read(&golden("../tokenizer/tokenizer.json")).expect("it is kept");
    let recipe = Recipe { pairs: true, ..Recipe::new(Form::Jsonl) };
    let paths = [golden("pairs.jsonl")];
    let documents = Documents::encode(&paths, &tokenizer, &recipe, scratch, &mut |_| ()).expect("pairs");
    assert_eq!(documents.count(), 12);
    let make = if has_reference { Reference::new } else { Reference::none };
    let reference = Arc::new(make(Arc::new(documents), 64).expect("they are pairs"));
    let pairs = Pairs::shuffled(Arc::clone(&reference), 0..6, 4, 3, 1).expect("six pairs");
    assert_eq!((pairs.count(), pairs.left_out()), (6, 0));
    (reference, Arc::new(pairs))
}

/// Trains as TRL did, from the model of this folder: in `ranks` stages of `shards` shards.
fn compare(kind: &str, model: &str, loss: AnyLoss, rate: f64, [ranks, shards]: [u32; 2]) {
    let what = format!("{kind} in {ranks} stages of {shards} shards");
    let scratch = tempfile::tempdir().expect("a folder");
    let (reference, data) = pairs(scratch.path(), kind != "reward");
    let (architecture, stages) = stages(&golden(model), ranks, shards);
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::named("1f1b", ranks, 3).expect("it fits"))
        .stages(stages)
        .shards(shards)
        .loss(loss)
        .data(data)
        .optimizer(Sgd::default())
        .learning_rate(LearningRate::Constant(rate))
        .pin(false)
        .launch()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let text = fs::read(golden("losses.json")).expect("it is kept");
    let steps: Value = serde_json::from_slice(&text).expect("JSON");
    let steps = steps[kind].as_array().expect("steps").clone();
    let told: Arc<Mutex<Vec<[f64; 2]>>> = Arc::default();
    let tell = Arc::clone(&told);
    let run = Run::new(scratch.path().join("run")).steps(steps.len() as u64).reference(reference);
    let run = run.on(move |event| {
        if let Event::Step(report) = event {
            tell.lock().expect("no panic").push([report.loss, report.grad_norm]);
        }
    });
    let outcome = run.train(&mut pipeline).unwrap_or_else(|error| panic!("{what}: {error}"));
    let told = told.lock().expect("no panic");
    for (step, ([loss, norm], expected)) in told.iter().zip(&steps).enumerate() {
        for (name, got) in [("loss", loss), ("grad_norm", norm)] {
            let expected = expected[name].as_f64().expect("a number");
            let off = (got / expected - 1.0).abs();
            assert!(off < 2e-4, "{what}: {name} of step {step} is {got}, not {expected}");
        }
    }
    assert_eq!(told.len(), steps.len());
    let trained = fs::read(golden(&format!("{kind}.safetensors"))).expect("it is kept");
    let trained = SafeTensors::deserialize(&trained).expect("whole");
    let checkpoint = Checkpoint::open(&outcome.checkpoint).expect("saved");
    let (_, mut whole) = super::stages(&golden(model), 1, shards);
    let mut whole = whole.remove(0).build().expect("its weights are read");
    checkpoint.read_weights(whole.parameters()).expect("saved");
    for mapped in architecture.table() {
        let got = whole.parameters().into_iter().find(|one| one.name() == mapped.name).expect("it has it");
        let mut rest = &got.value[..];
        for part in mapped.parts {
            let (got, after) = rest.split_at(part.count());
            let theirs = crate::batches::floats(trained.tensor(&part.name).expect("trained").data());
            assert_near(got, &theirs, 1e-4, &format!("{what}: {}", part.name));
            rest = after;
        }
    }
}

#[test]
fn preferences_are_learnt_as_in_trl() {
    for layout in [[1, 1], [3, 1], [2, 2]] {
        let of_shards =
            |loss: Preference| AnyLoss::new(loss.with_shard_groups(layout[1]).expect("a power of two"));
        compare("sigmoid", "model", of_shards(Preference::dpo(0.1).expect("above 0")), 2.0, layout);
        compare("ipo", "model", of_shards(Preference::ipo(0.1).expect("above 0")), 0.01, layout);
    }
}

#[test]
fn a_reward_model_learns_as_in_trl() {
    for layout in [[1, 1], [3, 1]] {
        compare("reward", "reward_model", AnyLoss::new(PairwiseReward::default()), 0.05, layout);
    }
}
