//! Tensor parallelism: the same bits for any number of shards.

use pipewright::stages::layers::{Heads, Rope, RopeLayout, RopeScaling};
use pipewright::stages::models::Llama;

use super::*;

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

/// A GPT whose sizes no number of shards divides.
fn gpt(tied: bool, groups: u32) -> Recipe {
    let gpt = Gpt { vocab: 37, dim: 40, layers: 2, heads: 5, context: 7, dropout: 0.1, tied, seed: 3 };
    Recipe { shard_groups: groups, ..gpt_recipe(gpt, 3, 4) }
}

/// A Llama with grouped heads, biases, norms of heads and a window.
fn llama(groups: u32) -> Recipe {
    let llama = Llama {
        vocab: 41,
        dim: 36,
        layers: 2,
        heads: Heads { query: 10, key_value: 5, width: 6 },
        ffn: 50,
        context: 9,
        rope: Rope { theta: 10_000.0, scaling: RopeScaling::None, layout: RopeLayout::Halves },
        epsilon: 1e-5,
        tied: true,
        padding: Some(3),
        bias: true,
        head_norms: true,
        window: Some(5),
        experts: None,
        seed: 4,
    };
    let data = RandomTokens { rows: 2, seq: 9, vocab: 41 };
    Recipe { shard_groups: groups, ..recipe_of(move || llama.model(), Arc::new(data), 4) }
}

/// The losses and norms of some steps, and the hash of the weights after them.
fn run(recipe: &Recipe, stages: u32, schedule: &str, steps: u64) -> (Vec<[f64; 2]>, String) {
    let mut pipeline = recipe.pipeline(stages, schedule);
    let step = |_| {
        let report = pipeline.step().expect("the step succeeds");
        [report.loss, report.grad_norm]
    };
    let numbers = (0..steps).map(step).collect();
    (numbers, pipeline.weights_hash().expect("the pipeline runs"))
}

#[test]
fn numbers_are_equal_for_any_shards_stages_and_schedule() {
    let recipes: [fn() -> Recipe; 3] = [|| gpt(true, 4), || gpt(false, 4), || llama(4)];
    for place in [Place::default(), HALF] {
        for make in recipes {
            let mut recipe = Recipe { place, ..make() };
            let mut plain = recipe.plain();
            let step = |step| {
                let (loss, norm) = plain.step(recipe.data.as_ref(), step, 4, &mut recipe.loss());
                [loss, norm]
            };
            let expected = ((0..3).map(step).collect::<Vec<_>>(), plain.hash());
            for shards in [1, 2, 4] {
                recipe.shards = shards;
                for (stages, schedule) in [(1, "1f1b"), (2, "gpipe"), (2, "zb-h1"), (3, "1f1b")] {
                    let got = run(&recipe, stages, schedule, 3);
                    assert_eq!(
                        got, expected,
                        "{shards} shards, {stages} stages, {schedule}, {}",
                        place.dtype
                    );
                }
            }
        }
    }
}
