//! Frozen matrices in few bits under adapters, on GPUs.

use pipewright::stages::layers::{Heads, Routing};
use pipewright::stages::models::{Gpt, Llama, Rules};
use pipewright::stages::{Lora, Quantisation, Training};

use super::*;
use crate::text::llama_with;

/// A frozen base in blocks, also its table, under adapters.
fn base_in_blocks() -> Rules {
    let lora = Lora { rank: 4, alpha: 8.0, dropout: 0.0, seed: 9 };
    Rules::default()
        .with_lora(move |target| (!target.starts_with("lm_head")).then_some(lora))
        .with_training(|name| Training { frozen: !Lora::is_adapter(name), ..Training::default() })
        .with_quantisation(|name| match name {
            "wte.weight" => Some(Quantisation::Q8_0),
            "wpe.weight" => None,
            _ => Some(Quantisation::Nf4),
        })
}

/// A GPT with such a base.
pub(crate) fn quantised() -> Recipe {
    let rules = base_in_blocks();
    let gpt = Gpt { vocab: 17, dim: 64, layers: 2, heads: 2, context: 8, dropout: 0.1, tied: true, seed: 3 };
    let model = move || gpt.model().map(|model| model.with_rules(rules.clone()));
    let model = Box::new(move || model().expect("the settings fit"));
    Recipe { model, ..gpt_recipe(gpt, 2, 4) }
}

/// The same of a Llama, whose matrices have a row for each output.
pub(crate) fn quantised_llama(experts: Option<Routing>) -> Recipe {
    let rules = base_in_blocks();
    let heads = Heads { query: 4, key_value: 2, width: 16 };
    let llama = Llama { dim: 64, heads, ffn: 128, bias: true, ..llama_with(experts) };
    let data = RandomTokens { rows: 2, seq: 8, vocab: 17 };
    let model = move || llama.model().map(|model| model.with_rules(rules.clone()));
    recipe_of(model, Arc::new(data), 4)
}

#[test]
fn a_base_in_blocks_trains_on_a_gpu_as_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let (expected, _) = train(&quantised(), named("1f1b", 2, 4), vec![]);
    let (got, _) = train(&quantised(), named("1f1b", 2, 4), vec![on(GPU, DType::F32)]);
    assert_close(&got, &expected, 1e-5);
}

#[test]
fn a_base_in_blocks_has_the_same_bits_for_any_cut() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let place = vec![on(GPU, dtype)];
        let (_, expected) = train(&quantised(), named("gpipe", 1, 4), place.clone());
        for (schedule, stages) in [("1f1b", 2), ("zb-h1", 3)] {
            let (_, hash) = train(&quantised(), named(schedule, stages, 4), place.clone());
            assert_eq!(hash, expected, "{schedule}, {stages} stages, {dtype}");
        }
        let recipe = Recipe { replicas: 2, sharded: true, ..quantised() };
        let (_, hash) = train(&recipe, named("1f1b", 2, 4), place.clone());
        assert_eq!(hash, expected, "replicas, {dtype}");
    }
}
