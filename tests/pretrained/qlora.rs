//! Adapters over a base in 4 bits train as PEFT's over a base of `bitsandbytes`.
//! `scripts/qlora_golden.py` makes `tests/golden/qlora`.

use pipewright::checkpoint::Checkpoint;
use pipewright::stages::Quantisation;
use pipewright_cli::compose;

use super::*;

/// How far losses may be from the recorded ones, as a share of them: rounding of `f32`, in 50 steps. Without
/// rounding to 4 bits they are 2e-2 from them.
const LOSSES: f32 = 1e-5;

/// The same of the trained adapters, as a share of the largest number of each.
const ADAPTERS: f32 = 1e-4;

/// A folder that the script has made.
fn golden(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/qlora").join(name)
}

/// A config with the base in 4 bits, and these adapters.
fn config(adapters: &str) -> Config {
    let [model, adapters] = ["model", adapters].map(golden);
    let text = format!(
        "[model]\npath = {model:?}\nbase = 'q4'\n[lora]\npath = {adapters:?}\n[data]\n\
         path = 'builtin:shakespeare'\nseq = 16\n"
    );
    Config::parse("test.toml", &text, &[], &[]).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn adapters_over_a_base_in_4_bits_train_as_with_bitsandbytes() {
    let recorded = Golden::read_in(&golden(""));
    let expected = recorded.numbers("losses");
    assert_eq!(expected.len(), 50);
    let start = config("start");
    for stages in [1, 3] {
        let counts = compose::model(&start).unwrap().balanced(stages).unwrap();
        let mut pipeline = Pipeline::builder()
            .schedule(Schedule::named("1f1b", stages, 4).unwrap())
            .stages(compose::stages(&start, &counts).unwrap())
            .loss(CrossEntropy::default())
            .data(recorded.batches() as Arc<dyn DataSource>)
            .optimizer(Recorder::default())
            .learning_rate(LearningRate::Constant(1e-2))
            .pin(false)
            .launch()
            .unwrap_or_else(|error| panic!("{error}"));
        let mut most = 0.0_f32;
        for (step, &expected) in expected.iter().enumerate() {
            let got = pipeline.step().unwrap().loss as f32;
            let off = (got / expected - 1.0).abs();
            assert!(off < LOSSES, "the loss of step {step} in {stages} stages is {got}, not {expected}");
            most = most.max(off);
        }
        println!("{stages} stages: losses are off by {most:.1e} at most");
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path().join("step-00000050");
        pipeline.save(&place).unwrap();
        compare(&Checkpoint::open(&place).unwrap());
    }
}

/// Compares adapters with those that PEFT has trained.
fn compare(checkpoint: &Checkpoint) {
    let [mut got, mut expected] = ["start", "trained"].map(|adapters| {
        let config = config(adapters);
        let count = compose::model(&config).unwrap().names().len();
        compose::stages(&config, &[count]).unwrap().remove(0).build().unwrap()
    });
    let is_adapter = |parameter: &&mut Parameter| parameter.name().contains(".lora_");
    let base = expected.parameters();
    let base: Vec<_> = base.iter().filter_map(|parameter| parameter.quantisation()).collect();
    // One matrix makes queries, keys and values, and one what is gated.
    assert_eq!(base, [Quantisation::Nf4; 2 * 4]);
    checkpoint.read_weights(got.parameters()).unwrap();
    let [got, expected] =
        [&mut got, &mut expected].map(|model| model.parameters().into_iter().filter(is_adapter));
    let pairs: Vec<_> = got.zip(expected).collect();
    assert_eq!(pairs.len(), 2 * 2 * 7);
    for (got, expected) in pairs {
        let largest = expected.value.iter().fold(0.0_f32, |most, number| most.max(number.abs()));
        let off = got.value.iter().zip(&expected.value).map(|(got, expected)| (got - expected).abs());
        println!("{}: off by {:.1e} of its largest", got.name(), off.fold(0.0_f32, f32::max) / largest);
        assert_near(&got.value, &expected.value, ADAPTERS, got.name());
    }
}
