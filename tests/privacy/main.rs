//! Differential privacy: the gradients of micro-batches are clipped over the whole model, noise is added, and
//! the bits are the same for any layout.

mod accountant;
#[path = "../common/batches.rs"]
mod batches;
mod by_hand;
mod clipping;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/failing.rs"]
mod failing;
#[path = "../common/has.rs"]
mod has;
mod layouts;
#[path = "../common/mixtral.rs"]
mod mixtral;
mod refusals;
#[path = "../common/worlds.rs"]
mod worlds;

use std::sync::Arc;

use common::*;
use pipewright::privacy::Privacy;
use pipewright::schedule::Schedule;
use pipewright::stages::Sequential;
use pipewright::stages::models::Gpt;
use pipewright::{Pipeline, PipelineBuilder};

const STEPS: u64 = 3;

/// Clips about half of the micro-batches of [`small`].
const PRIVACY: Privacy = Privacy { clip: 1.2, noise: 0.3, seed: 11 };

/// A small GPT whose micro-batches have one row.
fn small(layers: usize, micro_batches: u32) -> Recipe {
    let gpt = Gpt { vocab: 17, dim: 16, layers, heads: 4, context: 8, dropout: 0.1, tied: false, seed: 3 };
    gpt_recipe(gpt, 1, micro_batches)
}

fn builder(recipe: &Recipe, schedule: Schedule) -> PipelineBuilder<Sequential> {
    recipe.builder(schedule).privacy(PRIVACY)
}

/// The weights of a private training on this schedule.
fn hash(recipe: &Recipe, schedule: Schedule) -> String {
    trained(&mut builder(recipe, schedule).launch().expect("it starts"), STEPS)
}
