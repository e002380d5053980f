//! A private training written by hand: one stage, one micro-batch after the other.

use super::*;
use pipewright::groups::{GradientGroups, Node, Sums};
use pipewright::id::MicroBatch;
use pipewright::stages::loss::Loss;
use pipewright::stages::optimizer::{Optimizer, Update, clip_factor, update};
use pipewright::stages::{ForwardContext, Mode, Stage, Together, rng};

type Gradient = Vec<Vec<f32>>;

/// A loop over one stage.
pub(crate) struct ByHand<'a> {
    recipe: &'a Recipe,
    privacy: Privacy,
    plain: Plain,
}

impl<'a> ByHand<'a> {
    pub(crate) fn new(recipe: &'a Recipe, privacy: Privacy) -> Self {
        Self { recipe, privacy, plain: recipe.plain() }
    }

    /// The hash of the weights after some steps.
    pub(crate) fn hash(mut self, steps: u64) -> String {
        (0..steps).for_each(|step| self.step(step));
        self.plain.hash()
    }

    /// The gradient of the mean loss of a micro-batch, scaled down to the largest norm.
    fn clipped(&mut self, step: u64, micro_batch: u32) -> Gradient {
        let (input, target) = self.recipe.data.micro_batch(step, MicroBatch(micro_batch)).expect("data");
        let stage = &mut self.plain.stage;
        let at = ForwardContext { step, micro_batch, mode: Mode::Train };
        let input = stage.load(input).expect("load");
        let (output, saved) = stage.forward(at, input).expect("forward");
        let (score, grad) = self.recipe.loss().forward(output, target).expect("loss");
        let (_, pending) = stage.backward_input(saved, grad).expect("backward-input");
        stage.backward_weight(pending).expect("backward-weight");
        let mut parameters = stage.parameters();
        parameters.iter_mut().for_each(|parameter| parameter.end_group().expect("the CPU can"));
        let squares: f64 = parameters.iter().flat_map(|parameter| parameter.all_grad_squares()).sum();
        let (norm, weight) = (squares.sqrt(), score.weight);
        let factor = match weight > 0.0 {
            true => ((self.privacy.clip * weight / norm).min(1.0) / weight) as f32,
            false => 0.0,
        };
        let scaled = parameters.into_iter().map(|parameter| {
            let scaled = parameter.grad.iter().map(|number| factor * number).collect();
            parameter.zero_grad().expect("the CPU can");
            scaled
        });
        scaled.collect()
    }

    fn step(&mut self, step: u64) {
        let count = self.recipe.micro_batches;
        let groups = GradientGroups::new(count, self.recipe.gradient_groups);
        let mut sums = Sums::default();
        let mut group: Option<Gradient> = None;
        for micro_batch in 0..count {
            let next = self.clipped(step, micro_batch);
            group = Some(match group {
                Some(sum) => add(sum, next),
                None => next,
            });
            if groups.ends_with(micro_batch) {
                let sum = group.take().expect("it has one");
                sums.push(Node::of_group(groups.of(micro_batch)), sum, add);
            }
        }
        let total = sums.total(add).expect("there are groups");
        let Privacy { clip, noise, seed } = self.privacy;
        let mut parameters = self.plain.stage.parameters();
        for (parameter, total) in parameters.iter_mut().zip(total) {
            parameter.grad.copy_from_slice(&total);
            let key = rng::key(seed, format_args!("noise of {}", parameter.name()));
            parameter.add_noise(key, step, noise * clip);
        }
        let squares: f64 = parameters.iter().flat_map(|parameter| parameter.all_grad_squares()).sum();
        let norm = squares.sqrt() / f64::from(count);
        let limit = self.recipe.clip.map_or(1.0, |limit| clip_factor(norm, limit));
        let learning_rate = self.recipe.learning_rate.at(step);
        let by =
            Update { step: step + 1, learning_rate, scale: limit / f64::from(count), micro_batches: count };
        let optimizer: &dyn Optimizer = &self.recipe.optimizer;
        for parameter in parameters {
            if !parameter.is_frozen() {
                let update = |together: &mut Together| update(optimizer, parameter, by, together);
                Together::now(update).expect("the CPU can");
                parameter.grad.fill(0.0);
            }
        }
    }
}

fn add(mut sum: Gradient, more: Gradient) -> Gradient {
    let numbers = sum.iter_mut().flatten().zip(more.into_iter().flatten());
    numbers.for_each(|(number, more)| *number += more);
    sum
}
