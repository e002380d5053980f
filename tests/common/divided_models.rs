//! Models whose layers can be divided among shards. No number of shards divides their sizes.

use std::sync::Arc;

use pipewright::stages::layers::{Heads, Rope, RopeLayout, RopeScaling};
use pipewright::stages::models::{Gpt, Llama, Mlp};

use super::common::*;
use super::mixtral::recipe_of_mixtral;

/// A GPT whose sizes no number of shards divides.
pub(crate) fn gpt(tied: bool, groups: u32) -> Recipe {
    let gpt = Gpt { vocab: 37, dim: 40, layers: 2, heads: 5, context: 7, dropout: 0.1, tied, seed: 3 };
    Recipe { shard_groups: groups, ..gpt_recipe(gpt, 3, 4) }
}

pub(crate) fn gpt_tied(groups: u32) -> Recipe {
    gpt(true, groups)
}

pub(crate) fn gpt_untied(groups: u32) -> Recipe {
    gpt(false, groups)
}

/// A Llama with grouped heads, biases, norms of heads and a window.
pub(crate) fn llama(groups: u32) -> Recipe {
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

/// A Mixtral with five experts.
pub(crate) fn mixtral(groups: u32) -> Recipe {
    Recipe { shard_groups: groups, ..recipe_of_mixtral(2, 4) }
}

pub(crate) fn mlp(groups: u32) -> Recipe {
    let mlp = Mlp { sizes: vec![21, 13, 9, 7], dropout: 0.2, seed: 5 };
    let data = Arc::new(RandomRows { rows: 9, width: 21, classes: 7 });
    Recipe { shard_groups: groups, ..recipe_of(move || mlp.model(), data, 4) }
}
