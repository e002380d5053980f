//! A small mixture of experts.

use std::sync::Arc;

use pipewright::stages::layers::{Heads, Rope, RopeLayout, RopeScaling, Routing};
use pipewright::stages::models::Llama;

use crate::common::*;

/// The tokens of a sequence.
const SEQ: usize = 19;

/// A Mixtral whose sizes nothing divides, with the auxiliary loss.
fn mixtral() -> Llama {
    Llama {
        vocab: 43,
        dim: 40,
        layers: 2,
        heads: Heads { query: 10, key_value: 5, width: 4 },
        ffn: 27,
        context: 64,
        rope: Rope { theta: 10_000.0, scaling: RopeScaling::None, layout: RopeLayout::Halves },
        epsilon: 1e-5,
        tied: false,
        bias: false,
        head_norms: false,
        padding: None,
        window: Some(11),
        experts: Some(Routing { experts: 5, chosen: 2, auxiliary: 0.02 }),
        seed: 3,
    }
}

/// How it is trained, with `rows` sequences in a micro-batch.
pub(crate) fn recipe_of_mixtral(rows: usize, micro_batches: u32) -> Recipe {
    let model = mixtral();
    let data = RandomTokens { rows, seq: SEQ, vocab: model.vocab as u32 };
    recipe_of(move || model.model(), Arc::new(data), micro_batches)
}
