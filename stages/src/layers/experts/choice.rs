//! Which experts the tokens of a micro-batch have, and with which weights.

use std::ops::Range;

use super::Routing;
use crate::cpu::math::exp;
use crate::cpu::real::Real;
use crate::error::Result;
use crate::tensor::Tensor;

/// The experts of a micro-batch's tokens. Rows are sorted by expert, and the rows of an expert by token. The
/// lists are used again for the next micro-batch.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// The experts of each token, the likeliest first.
    pub(super) chosen: Vec<u32>,
    /// In this order, the rows.
    pub(super) places: Vec<u32>,
    /// The token of each row.
    pub(super) tokens: Vec<u32>,
    /// The weight of each row.
    pub(super) weights: Vec<f32>,
    /// The number of each expert's rows.
    counts: Vec<usize>,
    /// Room for numbers of one token, an expert each.
    room: Vec<f32>,
    /// Room for all lists.
    table: Vec<u32>,
}

impl Choice {
    /// Chooses the experts with the largest scores, of equal ones the first. The weights of a token's experts
    /// are the softmax of their scores alone, which equals the softmax over all experts divided by the sum
    /// over the chosen.
    pub(super) fn choose<N: Real>(&mut self, scores: &[N], routing: Routing) {
        self.chosen.clear();
        for scores in scores.chunks_exact(routing.experts) {
            let first = self.chosen.len();
            for _ in 0..routing.chosen {
                let best = largest(scores, &self.chosen[first..]);
                self.chosen.push(best as u32);
            }
        }
        self.group(routing);
        self.weights.resize(self.chosen.len(), 0.0);
        let of_tokens =
            self.chosen.chunks_exact(routing.chosen).zip(self.places.chunks_exact(routing.chosen));
        for ((experts, places), scores) in of_tokens.zip(scores.chunks_exact(routing.experts)) {
            let top = scores[experts[0] as usize].wide();
            let terms = || experts.iter().map(|&expert| exp(scores[expert as usize].wide() - top));
            let total: f32 = terms().sum();
            for (&place, term) in places.iter().zip(terms()) {
                self.weights[place as usize] = term / total;
            }
        }
    }

    /// What a later pass needs of the choice: of each token its experts, and the weights of the rows.
    pub(super) fn keep(&self) -> Result<[Tensor; 2]> {
        let mut chosen = Tensor::scratch_ids(&[self.chosen.len()]);
        chosen.ids_mut().copy_from_slice(&self.chosen);
        let mut weights = Tensor::on_host(&[self.weights.len()])?;
        weights.f32_mut().copy_from_slice(&self.weights);
        Ok([chosen, weights])
    }

    /// Makes the choice again from what was kept of it.
    pub(super) fn restore(&mut self, [chosen, weights]: &[Tensor; 2], routing: Routing) {
        self.chosen.clear();
        self.chosen.extend_from_slice(chosen.ids());
        self.weights.clear();
        self.weights.extend_from_slice(weights.f32());
        self.group(routing);
    }

    /// Makes this the choice of some of the tokens of another.
    pub(super) fn take_part(&mut self, all: &Self, tokens: Range<usize>, routing: Routing) {
        let part = tokens.start * routing.chosen..tokens.end * routing.chosen;
        self.chosen.clear();
        self.chosen.extend_from_slice(&all.chosen[part.clone()]);
        self.group(routing);
        self.weights.resize(self.chosen.len(), 0.0);
        for (&here, &there) in self.places.iter().zip(&all.places[part]) {
            self.weights[here as usize] = all.weights[there as usize];
        }
    }

    /// All lists, one after the other: experts and places of tokens, tokens and weights of rows, and how many
    /// rows each expert has.
    pub(super) fn table(&mut self) -> &[u32] {
        self.table.clear();
        for list in [&self.chosen, &self.places, &self.tokens] {
            self.table.extend_from_slice(list);
        }
        self.table.extend_from_slice(bytemuck::cast_slice(&self.weights));
        self.table.extend(self.counts.iter().map(|&count| count as u32));
        &self.table
    }

    fn group(&mut self, routing: Routing) {
        self.counts.clear();
        self.counts.resize(routing.experts, 0);
        for &expert in &self.chosen {
            self.counts[expert as usize] += 1;
        }
        self.places.resize(self.chosen.len(), 0);
        self.tokens.resize(self.chosen.len(), 0);
        let mut row = 0;
        for wanted in 0..routing.experts as u32 {
            for (index, &expert) in self.chosen.iter().enumerate() {
                if expert == wanted {
                    self.places[index] = row;
                    self.tokens[row as usize] = (index / routing.chosen) as u32;
                    row += 1;
                }
            }
        }
    }

    /// The rows of consecutive experts.
    pub(super) fn rows_of(&self, experts: Range<usize>) -> Range<usize> {
        let before = |expert: usize| self.counts[..expert].iter().sum();
        before(experts.start)..before(experts.end)
    }

    /// The rows of each expert.
    pub(super) fn rows(&self) -> impl Iterator<Item = Range<usize>> {
        let mut end = 0;
        self.counts.iter().map(move |count| {
            end += count;
            end - count..end
        })
    }

    /// The gradient of the scores, from the slope of each row's weight: the gradient of the softmax over the
    /// chosen experts, plus the gradient of the auxiliary loss.
    pub(super) fn scores_grad<N: Real>(
        &mut self,
        out: &mut [N],
        scores: &[N],
        slopes: &[f32],
        routing: Routing,
    ) {
        let tokens = out.len() / routing.experts;
        let share = routing.share(tokens);
        self.room.resize(routing.experts, 0.0);
        let scores = scores.chunks_exact(routing.experts);
        for (token, (out, scores)) in out.chunks_exact_mut(routing.experts).zip(scores).enumerate() {
            let grads = &mut self.room;
            grads.fill(0.0);
            if routing.auxiliary > 0.0 {
                let slope = |expert: usize| share * self.counts[expert] as f32;
                auxiliary_grad(grads, scores, slope);
            }
            let of_token = token * routing.chosen..(token + 1) * routing.chosen;
            let places = self.places[of_token.clone()].iter().map(|&place| place as usize);
            let mean: f32 = places.clone().map(|place| self.weights[place] * slopes[place]).sum();
            for (&expert, place) in self.chosen[of_token].iter().zip(places) {
                grads[expert as usize] += self.weights[place] * (slopes[place] - mean);
            }
            out.iter_mut().zip(&*grads).for_each(|(out, &grad)| *out = N::narrow(grad));
        }
    }
}

/// The expert with the largest score that is not taken yet.
fn largest<N: Real>(scores: &[N], taken: &[u32]) -> usize {
    let free = (0..scores.len()).filter(|&expert| !taken.contains(&(expert as u32)));
    // Not by a total order: a score that is no number must not end the program.
    let better = |best: usize, next: usize| match scores[next].wide() > scores[best].wide() {
        true => next,
        false => best,
    };
    free.reduce(better).expect("fewer are chosen than there are")
}

/// The gradient of one token's scores, from the slope of each expert's probability.
fn auxiliary_grad<N: Real>(grads: &mut [f32], scores: &[N], slope: impl Fn(usize) -> f32) {
    let top = scores.iter().fold(f32::NEG_INFINITY, |top, score| top.max(score.wide()));
    for (grad, score) in grads.iter_mut().zip(scores) {
        *grad = exp(score.wide() - top);
    }
    let total: f32 = grads.iter().sum();
    let mean: f32 = grads.iter().enumerate().map(|(expert, term)| term / total * slope(expert)).sum();
    for (expert, grad) in grads.iter_mut().enumerate() {
        *grad = *grad / total * (slope(expert) - mean);
    }
}
