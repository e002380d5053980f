//! How large what processes send each other may be, as the pipeline knows it from its shapes.

use super::*;
use crate::common::*;

/// What the training sees: shorter texts than the model can have.
const TOKENS: RandomTokens = RandomTokens { rows: 1, seq: 4, vocab: 17 };

fn small() -> Recipe {
    let gpt = Gpt { vocab: 17, dim: 16, layers: 3, heads: 2, context: 8, dropout: 0.1, tied: true, seed: 3 };
    recipe_of(move || gpt.model(), Arc::new(TOKENS), 4)
}

/// The loss of an evaluation, the scores after some tokens, and the loss of a step after both.
fn told(mut pipeline: Pipeline<Sequential>) -> (f64, Vec<f32>, f64) {
    let scores = pipeline.next_scores(0, &[1, 2, 3, 4, 5, 6, 7]);
    let scores = scores.expect("a text that is longer than those of the training");
    let many = RandomTokens { rows: 64, ..TOKENS };
    let evaluated = pipeline.evaluate(Arc::new(many), 3).expect("more rows than those of the training");
    (evaluated.loss, scores, pipeline.step().expect("a step").loss)
}

#[test]
fn larger_wires_than_those_of_the_training_go_between_processes_when_a_call_needs_them() {
    let schedule = || Schedule::one_f_one_b(2, 4).expect("two ranks");
    let alone = told(small().launch(schedule()).expect("it starts"));
    let all = in_processes(2, |world| {
        let builder = small().builder(schedule());
        told(builder.world(world).launch().expect("it starts"))
    });
    assert!(all.iter().all(|told| *told == alone), "{all:?}, {alone:?}");
}
