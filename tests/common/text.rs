//! Models that write, and the scores of a text in calls of several lengths.

use std::sync::Arc;

use pipewright::Pipeline;
use pipewright::stages::layers::{Heads, Rope, RopeLayout, RopeScaling, Routing};
use pipewright::stages::models::Llama;
use pipewright::stages::{Sequential, Stage, Tensor};

use crate::common::*;

pub(crate) const TEXT: [u32; 8] = [3, 1, 4, 1, 5, 9, 2, 6];

/// Where the calls end: a prompt, then one token at a time; all at once; several at a time.
const CUTS: [&[usize]; 3] = [&[5, 6, 7, 8], &[8], &[1, 4, 8]];

pub(crate) fn gpt() -> Recipe {
    recipe(3, true, 4)
}

/// With rotary embedding, heads that share keys and values, and a window.
pub(crate) fn llama() -> Recipe {
    recipe_with(None)
}

/// The same with experts.
pub(crate) fn mixtral() -> Recipe {
    recipe_with(Some(Routing { experts: 4, chosen: 2, auxiliary: 0.0 }))
}

fn recipe_with(experts: Option<Routing>) -> Recipe {
    let llama = llama_with(experts);
    let data = RandomTokens { rows: 2, seq: 8, vocab: 17 };
    recipe_of(move || llama.model(), Arc::new(data), 4)
}

pub(crate) fn llama_with(experts: Option<Routing>) -> Llama {
    let heads = Heads { query: 4, key_value: 2, width: 4 };
    Llama {
        experts,
        vocab: 17,
        dim: 16,
        layers: 3,
        heads,
        ffn: 24,
        context: 8,
        rope: Rope { theta: 1e4, scaling: RopeScaling::None, layout: RopeLayout::Halves },
        epsilon: 1e-5,
        tied: true,
        bias: false,
        head_norms: true,
        padding: None,
        window: Some(3),
        seed: 7,
    }
}

/// The scores after each call, for all ways to cut the text.
fn scores(mut next: impl FnMut(usize, &[u32]) -> Vec<f32>) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    for cuts in CUTS {
        let mut past = 0;
        for &end in cuts {
            all.push(next(past, &TEXT[past..end]));
            past = end;
        }
    }
    all
}

pub(crate) fn of_one_stage(recipe: &Recipe) -> Vec<Vec<f32>> {
    let mut model = (recipe.model)().whole().expect("it is built");
    scores(|past, tokens| {
        let ids = Tensor::from_ids(&[1, tokens.len()], tokens.to_vec()).expect("it fits");
        model.next_scores(past, ids).expect("it computes")
    })
}

pub(crate) fn of_pipeline(pipeline: &mut Pipeline<Sequential>) -> Vec<Vec<f32>> {
    scores(|past, tokens| pipeline.next_scores(past, tokens).expect("it computes"))
}
