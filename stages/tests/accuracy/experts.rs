//! A mixture of experts. The formula multiplies every token with every chosen expert's matrices.

use pipewright_stages::layers::{Experts, Routing};
use pipewright_stages::{Init, Layer};
use proptest::prelude::*;
use proptest::sample::select;

use super::approx::{Approx, assert_within, stored};
use super::gated::silu;
use super::inputs::{Kind, draw, exact, pass, set, tensor};

/// Two products, an activation and a sum. Largest measured: 1.8.
const OUTPUT: f64 = 4.0;
/// Products, activations and a softmax, each of numbers that are sums themselves. Largest measured: 2.1.
const GRADIENT: f64 = 5.0;

/// Scores that are nearer than this may be ordered in another way in `bf16`.
const APART: f64 = 0.1;

type Rows = Vec<Vec<Approx>>;

/// The sizes of a layer.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    dim: usize,
    ffn: usize,
    routing: Routing,
}

/// The weights in the layer's order: router, then gate and up, and down, of each expert.
fn weights(sizes: Sizes) -> Vec<Vec<f32>> {
    let Sizes { dim, ffn, routing } = sizes;
    let mut all = vec![draw(Kind::Signed, "router", routing.experts * dim)];
    for expert in 0..routing.experts {
        all.push(draw(Kind::Signed, &format!("{expert}, gate and up"), 2 * ffn * dim));
        all.push(draw(Kind::Signed, &format!("{expert}, down"), dim * ffn));
    }
    all
}

/// The products of a row with the rows of a matrix.
fn times(row: &[Approx], matrix: &[Approx]) -> Vec<Approx> {
    let lines = matrix.chunks(row.len());
    lines
        .map(|line| Approx::dot(row.iter().copied().zip(line.iter().copied())).by_library().stored())
        .collect()
}

/// The products of a row with the columns of a matrix, not yet stored.
fn turned(row: &[Approx], matrix: &[Approx]) -> Vec<Approx> {
    let columns = matrix.len() / row.len();
    (0..columns)
        .map(|column| Approx::dot(row.iter().copied().zip(matrix[column..].iter().step_by(columns).copied())))
        .map(Approx::by_library)
        .collect()
}

fn each_stored(numbers: Vec<Approx>) -> Vec<Approx> {
    numbers.into_iter().map(Approx::stored).collect()
}

/// `sum + column row`, in the place of a matrix.
fn add_outer(sum: &mut [Approx], column: &[Approx], row: &[Approx]) {
    for (line, &factor) in sum.chunks_mut(row.len()).zip(column) {
        for (sum, &number) in line.iter_mut().zip(row) {
            *sum = factor.times_plus(number, *sum);
        }
    }
}

/// The softmax of some scores.
fn softmax(scores: &[Approx]) -> Vec<Approx> {
    let top = scores.iter().fold(scores[0], |top, &score| match score.value > top.value {
        true => score,
        false => top,
    });
    let terms: Vec<Approx> = scores.iter().map(|&score| (score - top).exp()).collect();
    let total = Approx::sum(terms.iter().copied());
    terms.into_iter().map(|term| term / total).collect()
}

/// The gradient of a softmax, from its values and their slopes.
fn softmax_grad(values: &[Approx], slopes: &[Approx]) -> Vec<Approx> {
    let mean = Approx::dot(values.iter().copied().zip(slopes.iter().copied()));
    values.iter().zip(slopes).map(|(&value, &slope)| value * (slope - mean)).collect()
}

/// The experts with the largest scores, and how far their last score is from the next.
fn chosen(scores: &[Approx], routing: Routing) -> (Vec<usize>, f64) {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].value.total_cmp(&scores[a].value));
    let gap = match order.get(routing.chosen) {
        Some(&next) => scores[order[routing.chosen - 1]].value - scores[next].value,
        None => f64::INFINITY,
    };
    order.truncate(routing.chosen);
    (order, gap)
}

/// What the layer gives for tokens: outputs, input gradients, and gradients of all weights.
struct Formula {
    weights: Rows,
    grads: Rows,
    outputs: Vec<Approx>,
    input_grads: Vec<Approx>,
}

impl Formula {
    /// Adds a token. `counts`: how many tokens chose each expert, and how many there are.
    fn token(&mut self, sizes: Sizes, x: &[Approx], dy: &[Approx], (counts, tokens): (&[usize], usize)) {
        let Sizes { dim, ffn, routing } = sizes;
        let scores = times(x, &self.weights[0]);
        let (experts, _) = chosen(&scores, routing);
        let shares = softmax(&experts.iter().map(|&expert| scores[expert]).collect::<Vec<_>>());
        let mut output = vec![Approx::exact(0.0); dim];
        let mut through = vec![Approx::exact(0.0); dim];
        let mut slopes = Vec::new();
        for (&expert, &share) in experts.iter().zip(&shares) {
            let [first, second] = [1 + 2 * expert, 2 + 2 * expert];
            let inner = times(x, &self.weights[first]);
            let (gates, ups) = inner.split_at(ffn);
            let activations: Vec<[Approx; 2]> = gates.iter().map(|&gate| silu(gate)).collect();
            let values: Vec<Approx> =
                activations.iter().zip(ups).map(|(value, &up)| (value[0] * up).stored()).collect();
            let part = times(&values, &self.weights[second]);
            output.iter_mut().zip(part).for_each(|(sum, part)| *sum = *sum + share * part);
            let value_grads = each_stored(turned(dy, &self.weights[second]));
            slopes.push(Approx::dot(value_grads.iter().copied().zip(values.iter().copied())));
            let weighed: Vec<Approx> = values.iter().map(|&value| (share * value).stored()).collect();
            add_outer(&mut self.grads[second], dy, &weighed);
            let of_values: Vec<Approx> = value_grads.iter().map(|&grad| (share * grad).stored()).collect();
            let both = || of_values.iter().zip(&activations).zip(ups);
            let gate_grads = both().map(|((&grad, value), &up)| (grad * up * value[1]).stored());
            let up_grads = both().map(|((&grad, value), _)| (grad * value[0]).stored());
            let inner_grads: Vec<Approx> = gate_grads.chain(up_grads).collect();
            add_outer(&mut self.grads[first], &inner_grads, x);
            let part = each_stored(turned(&inner_grads, &self.weights[first]));
            through.iter_mut().zip(part).for_each(|(sum, part)| *sum = *sum + part);
        }
        let mut scores_grad = vec![Approx::exact(0.0); routing.experts];
        for (&expert, grad) in experts.iter().zip(softmax_grad(&shares, &slopes)) {
            scores_grad[expert] = grad;
        }
        let factor = f64::from(routing.auxiliary) * routing.experts as f64 / tokens as f64;
        let slopes: Vec<Approx> =
            counts.iter().map(|&count| Approx::rounded(factor * count as f64)).collect();
        let auxiliary = softmax_grad(&softmax(&scores), &slopes);
        let scores_grad: Vec<Approx> =
            scores_grad.iter().zip(auxiliary).map(|(&grad, more)| (grad + more).stored()).collect();
        add_outer(&mut self.grads[0], &scores_grad, x);
        let by_router = each_stored(turned(&scores_grad, &self.weights[0]));
        self.outputs.extend(each_stored(output));
        self.input_grads.extend(by_router.iter().zip(through).map(|(&a, b)| (a + b).stored()));
    }
}

/// Tokens whose choice does not hang on a rounding, and how many of them chose each expert.
fn tokens(sizes: Sizes, count: usize, router: &[f32]) -> (Vec<f32>, Vec<usize>) {
    let mut counts = vec![0; sizes.routing.experts];
    let mut all = Vec::new();
    for token in draw(Kind::Signed, "x", count * sizes.dim).chunks(sizes.dim) {
        let (experts, gap) = chosen(&times(&exact(token), &exact(router)), sizes.routing);
        if gap > APART {
            experts.iter().for_each(|&expert| counts[expert] += 1);
            all.extend_from_slice(token);
        }
    }
    (all, counts)
}

fn check(sizes: Sizes, count: usize) {
    let Sizes { dim, ffn, routing } = sizes;
    let weights = weights(sizes);
    let (x, counts) = tokens(sizes, count, &weights[0]);
    let count = x.len() / dim;
    if count == 0 {
        return;
    }
    let dy = draw(Kind::Signed, "dy", x.len());
    let mut layer = Experts::new("experts", [dim, ffn], routing, Init::Zeros, 1).unwrap();
    for (which, numbers) in weights.iter().enumerate() {
        set(&mut layer, which, numbers.clone());
    }
    let dims = [count, dim];
    let [output, input_grad] = pass(&mut layer, &tensor(&dims, x.clone()), &tensor(&dims, dy.clone()));
    let mut formula = Formula {
        grads: weights.iter().map(|numbers| vec![Approx::exact(0.0); numbers.len()]).collect(),
        weights: weights
            .iter()
            .map(|numbers| numbers.iter().map(|&number| exact(&[stored(number)])[0]).collect())
            .collect(),
        outputs: Vec::new(),
        input_grads: Vec::new(),
    };
    for (x, dy) in exact(&x).chunks(dim).zip(exact(&dy).chunks(dim)) {
        formula.token(sizes, x, dy, (&counts, count));
    }
    assert_within(OUTPUT, "experts: output", &output, &formula.outputs);
    assert_within(GRADIENT, "experts: input gradient", &input_grad, &formula.input_grads);
    for (parameter, grad) in layer.parameters().iter().zip(&formula.grads) {
        assert_within(GRADIENT, parameter.name(), &parameter.grad, grad);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn tokens_go_to_the_experts_with_the_largest_scores(
        count in 1_usize..40,
        dim in 1_usize..40,
        ffn in 1_usize..40,
        (experts, chosen) in select(vec![(1, 1), (2, 1), (3, 3), (4, 2), (8, 2), (8, 1), (5, 3)]),
        auxiliary in select(vec![0.0, 0.01, 2.0]),
    ) {
        let routing = Routing { experts, chosen, auxiliary };
        check(Sizes { dim, ffn, routing }, count);
    }
}

/// More tokens than a block of the depth has, and rows that are wider than one.
#[test]
fn many_tokens_and_wide_rows() {
    let routing = Routing { experts: 3, chosen: 2, auxiliary: 0.1 };
    check(Sizes { dim: 33, ffn: 17, routing }, 1100);
    check(Sizes { dim: 600, ffn: 270, routing }, 9);
}
