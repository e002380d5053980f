//! Clipping bounds what a sample changes. The weights are those that opacus trains.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use super::batches::{Batches, Recorded, floats};
use super::*;
use pipewright::data::DataSource;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::Mlp;
use pipewright::stages::optimizer::{LearningRate, Optimizer, Sgd, StateTensor, Update};
use pipewright::stages::{Parameter, StageBuilder, Together};
use proptest::prelude::*;
use safetensors::SafeTensors;

type Numbers = BTreeMap<String, Vec<f32>>;

/// An optimizer that keeps the sums of gradients, and then updates as another one.
#[derive(Debug)]
struct Keeping<O>(O, Arc<Mutex<Numbers>>);

impl<O: Optimizer> Optimizer for Keeping<O> {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.0.states(name, dims)
    }

    fn update(
        &self,
        parameter: &mut Parameter,
        update: Update,
        together: &mut Together,
    ) -> pipewright::stages::Result<()> {
        let mut kept = self.1.lock().expect("no panic");
        kept.insert(format!("sum of {}", parameter.name()), parameter.grad.to_vec());
        self.0.update(parameter, update, together)?;
        kept.insert(parameter.name().to_owned(), parameter.value.to_vec());
        Ok(())
    }
}

/// The sum of the gradients of the first step.
fn sum(recipe: &Recipe, privacy: Privacy) -> Vec<f64> {
    let kept = Arc::default();
    let keeping = Keeping(Sgd::default(), Arc::clone(&kept));
    let builder = recipe.builder(named("1f1b", 2, recipe.micro_batches)).privacy(privacy);
    train(&mut builder.optimizer(keeping).launch().expect("it starts"), 1);
    let kept = kept.lock().expect("no panic");
    let sums = kept.iter().filter(|(name, _)| name.starts_with("sum of"));
    sums.flat_map(|(_, sum)| sum.iter().map(|number| f64::from(*number))).collect()
}

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|number| number * number).sum::<f64>().sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Another sample in the place of one changes the sum by at most twice the largest norm, and no sample
    /// there by at most that norm.
    #[test]
    fn a_sample_changes_the_sum_by_a_bounded_amount(
        clip in 1e-4_f64..3.0,
        replaced in 0_u32..4,
        scale in prop::sample::select(vec![0_u32, 1, 5]),
    ) {
        let recipe = small(1, 4);
        let privacy = Privacy { clip, noise: 0.0, seed: 0 };
        let with = |change: Option<u32>| {
            let mut recipe = small(1, 4);
            recipe.data = changed(Arc::clone(&recipe.data), move |data, step, micro_batch| {
                match change {
                    Some(other) if micro_batch.0 == replaced => {
                        data.micro_batch(step + 7 + u64::from(other), micro_batch)
                    }
                    _ => data.micro_batch(step, micro_batch),
                }
            });
            sum(&recipe, privacy)
        };
        let (before, after) = (sum(&recipe, privacy), with(Some(scale)));
        let changed = norm(before.iter().zip(&after).map(|(before, after)| before - after));
        prop_assert!(changed > 0.0);
        prop_assert!(changed <= 2.0 * clip * (1.0 + 1e-5), "{changed}, clip {clip}");
        prop_assert!(norm(before.into_iter()) <= 4.0 * clip * (1.0 + 1e-5));
    }
}

#[test]
fn a_sample_alone_has_the_largest_norm_if_its_gradient_is_larger() {
    let recipe = small(1, 1);
    let of = |clip| norm(sum(&recipe, Privacy { clip, noise: 0.0, seed: 0 }).into_iter());
    let own = of(1e9);
    assert!(own > 0.5, "{own}");
    assert!((of(0.5) / 0.5 - 1.0).abs() < 1e-5);
    assert!((of(2.0 * own) - own).abs() < 1e-9, "it is not scaled up");
}

#[test]
fn noise_has_the_deviation_of_the_clip_times_the_noise() {
    let recipe = large(false, 2);
    let of = |noise| sum(&recipe, Privacy { clip: 0.7, noise, seed: 9 });
    let (exact, noisy) = (of(0.0), of(3.0));
    let noise: Vec<f64> = noisy.iter().zip(&exact).map(|(noisy, exact)| noisy - exact).collect();
    let count = noise.len() as f64;
    let deviation = norm(noise.iter().copied()) / count.sqrt();
    assert!((deviation / 2.1 - 1.0).abs() < 5.0 / (2.0 * count).sqrt(), "{deviation} over {count}");
    let mean = noise.iter().sum::<f64>() / count;
    assert!(mean.abs() < 5.0 * 2.1 / count.sqrt(), "{mean}");
}

#[test]
fn another_secret_gives_other_noise_and_no_noise_none() {
    let recipe = small(1, 2);
    let of = |noise, seed| sum(&recipe, Privacy { clip: 1.0, noise, seed });
    assert_ne!(of(1.0, 1), of(1.0, 2));
    assert_eq!(of(0.0, 1), of(0.0, 2));
}

#[test]
fn weights_are_those_of_opacus() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/privacy/mlp.safetensors");
    let bytes = std::fs::read(path).expect("it is there");
    let tensors = SafeTensors::deserialize(&bytes).expect("it is whole");
    let numbers = |name: &str| floats(tensors.tensor(name).expect("it has all tensors").data());
    let recorded = |name: &str| Recorded::read(&tensors.tensor(name).expect("it has all tensors"));
    let y = tensors.tensor("y").expect("it has all tensors");
    let [steps, micro_batches] = [y.shape()[0] as u64, y.shape()[1] as u64];
    let data = Batches {
        rows: 1,
        micro_batches: micro_batches as usize,
        input: recorded("x"),
        target: recorded("y"),
    };
    let data: Arc<dyn DataSource> = Arc::new(data);
    let privacy = Privacy { clip: f64::from(numbers("clip")[0]), noise: 0.0, seed: 0 };
    for stages in [1, 2, 3] {
        let model = Mlp { sizes: vec![6, 10, 4], dropout: 0.0, seed: 0 }.model().expect("sizes");
        let start = |build: StageBuilder<Sequential>| -> StageBuilder<Sequential> {
            let names = ["fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"];
            let init: Numbers = names.map(|name| (name.to_owned(), numbers(&format!("init.{name}")))).into();
            Box::new(move || {
                let mut stage = build.build()?;
                for parameter in pipewright::stages::Stage::parameters(&mut stage) {
                    let start = &init[parameter.name()];
                    parameter.value.copy_from_slice(start);
                }
                Ok(stage)
            })
        };
        let kept = Arc::default();
        let mut pipeline = Pipeline::builder()
            .schedule(named("1f1b", stages, micro_batches as u32))
            .stages(model.split(stages).expect("it can be cut").into_iter().map(start).collect())
            .loss(CrossEntropy::default())
            .data(Arc::clone(&data))
            .optimizer(Keeping(Sgd::default(), Arc::clone(&kept)))
            .learning_rate(LearningRate::Constant(f64::from(numbers("rate")[0])))
            .privacy(privacy)
            .pin(false)
            .launch()
            .expect("it starts");
        train(&mut pipeline, steps);
        let kept: Numbers = kept.lock().expect("no panic").clone();
        for (name, found) in kept.iter().filter(|(name, _)| !name.starts_with("sum of")) {
            let expected = numbers(&format!("final.{name}"));
            let off = found.iter().zip(&expected).map(|(found, expected)| (found - expected).abs());
            let off = off.fold(0.0, f32::max);
            assert!(off < 2e-6, "{stages} stages, {name}: off by {off}");
        }
    }
}

#[test]
fn a_number_that_is_not_finite_is_no_update() {
    let privacy = Privacy { clip: 1.0, noise: 1e300, seed: 0 };
    let recipe = small(1, 3);
    let mut pipeline = recipe.builder(named("1f1b", 2, 3)).privacy(privacy).launch().expect("it starts");
    let before = pipeline.weights_hash().expect("it runs");
    let error = pipeline.step().expect_err("such noise is no f32").to_string();
    assert!(error.contains("gradient"), "{error}");
    assert_eq!(pipeline.weights_hash().expect("it runs"), before);
}
