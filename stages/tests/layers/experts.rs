//! What a mixture of experts does beside its formula, which `accuracy/` and `gradients.rs` test.

use common::numbers;
use pipewright_stages::layers::{Experts, Routing};
use pipewright_stages::{Together, Training};

use super::*;

const DIM: usize = 6;

fn experts(experts: usize, chosen: usize, auxiliary: f32) -> Experts {
    let routing = Routing { experts, chosen, auxiliary };
    Experts::new("experts", [DIM, 5], routing, Init::Normal(0.5), 1).unwrap()
}

/// The loss that [`Routing::auxiliary`] documents, for tokens that chose as `counts` says.
fn auxiliary_loss(router: &[f32], x: &[f32], counts: &[usize], auxiliary: f64) -> f64 {
    let (tokens, experts) = (x.len() / DIM, counts.len());
    let mut means = vec![0.0; experts];
    for x in x.chunks(DIM) {
        let score =
            |row: &[f32]| -> f64 { row.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum() };
        let terms: Vec<f64> = router.chunks(DIM).map(|row| score(row).exp()).collect();
        let total: f64 = terms.iter().sum();
        means.iter_mut().zip(terms).for_each(|(mean, term)| *mean += term / total / tokens as f64);
    }
    let pairs = counts.iter().zip(means);
    let sum: f64 = pairs.map(|(&count, mean)| count as f64 / tokens as f64 * mean).sum();
    tokens as f64 * auxiliary * experts as f64 * sum
}

/// How many tokens chose each of the experts, the two with the largest scores.
fn counts(router: &[f32], x: &[f32]) -> Vec<usize> {
    let mut counts = vec![0; router.len() / DIM];
    for x in x.chunks(DIM) {
        let score = |row: &[f32]| -> f32 { row.iter().zip(x).map(|(w, x)| w * x).sum() };
        let scores: Vec<f32> = router.chunks(DIM).map(score).collect();
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        order[..2].iter().for_each(|&expert| counts[expert] += 1);
    }
    counts
}

#[test]
fn backward_adds_the_slopes_of_the_auxiliary_loss() {
    let (input, zeros) = (tensor("x", &[7, DIM]), tensor("x", &[7, DIM]));
    let mut zeros = zeros;
    zeros.f32_mut().fill(0.0);
    let mut layer = experts(4, 2, 0.3);
    let router = layer.parameters()[0].value.to_vec();
    let counts = counts(&router, input.f32());
    let slope = |from: &[f32], at: usize, loss: &dyn Fn(&[f32]) -> f64| {
        let moved = |by: f32| {
            let mut moved = from.to_vec();
            moved[at] += by;
            loss(&moved)
        };
        (moved(1e-2) - moved(-1e-2)) / 2e-2
    };
    let (_, input_grad) = pass(&mut layer, &input, &zeros);
    let input_grad = input_grad.unwrap();
    for (at, &got) in input_grad.f32().iter().enumerate() {
        let expected = slope(input.f32(), at, &|x| auxiliary_loss(&router, x, &counts, 0.3));
        assert!((f64::from(got) - expected).abs() < 1e-4, "input, {at}: {got}, not {expected}");
    }
    for (at, &got) in layer.parameters()[0].grad.iter().enumerate() {
        let expected = slope(&router, at, &|router| auxiliary_loss(router, input.f32(), &counts, 0.3));
        assert!((f64::from(got) - expected).abs() < 1e-4, "router, {at}: {got}, not {expected}");
    }
    assert!(layer.parameters()[0].grad.iter().any(|grad| grad.abs() > 1e-3), "it has a slope");
}

#[test]
fn an_expert_without_tokens_has_no_gradient_and_keeps_the_sum_of_others() {
    let mut layer = experts(3, 1, 0.0);
    // Every token has positive numbers, so every token goes to the second expert.
    let mut input = tensor("x", &[4, DIM]);
    input.f32_mut().iter_mut().for_each(|x| *x = x.abs());
    let router = &mut layer.parameters()[0].value;
    router.fill(-1.0);
    router[DIM..2 * DIM].fill(1.0);
    for parameter in layer.parameters() {
        parameter.grad.fill(f32::NAN);
        Together::now(|together| parameter.start_sum(together)).unwrap();
    }
    pass(&mut layer, &input, &tensor("dy", &[4, DIM]));
    let of = |layer: &mut Experts, which: &str| -> Vec<f32> {
        let parameters = layer.parameters();
        let found = parameters.into_iter().find(|parameter| parameter.name().contains(which));
        found.unwrap().grad.to_vec()
    };
    for idle in ["experts.0.gate_up", "experts.0.down", "experts.2.gate_up", "experts.2.down"] {
        assert!(of(&mut layer, idle).iter().all(|&grad| grad == 0.0), "{idle}");
    }
    let once = of(&mut layer, "experts.1.down");
    assert!(once.iter().all(|grad| grad.is_finite()) && once.iter().any(|&grad| grad != 0.0));
    // Another micro-batch that goes elsewhere adds nothing there.
    layer.parameters()[0].value.iter_mut().for_each(|weight| *weight = -*weight);
    pass(&mut layer, &input, &tensor("dy", &[4, DIM]));
    assert_eq!(of(&mut layer, "experts.1.down"), once);
}

#[test]
fn tokens_that_follow_others_have_the_outputs_of_all_tokens() {
    let mut layer = experts(4, 2, 0.0);
    let input = tensor("x", &[1, 9, DIM]);
    let all = common::forward(&mut layer, &input);
    let mut past = 0;
    for count in [4, 1, 1, 3] {
        let part = numbers("x", 9 * DIM)[past * DIM..][..count * DIM].to_vec();
        let part = pipewright_stages::Tensor::from_vec(&[1, count, DIM], part).unwrap();
        let output = layer.forward_next(past, part).unwrap();
        let expected = &all.f32()[past * DIM..][..count * DIM];
        for (got, expected) in output.f32().iter().zip(expected) {
            assert!((got - expected).abs() < 1e-5, "{got}, not {expected}");
        }
        past += count;
    }
}

#[test]
fn a_frozen_layer_keeps_less_and_has_the_same_input_gradient() {
    let (input, grad) = (tensor("x", &[5, DIM]), tensor("dy", &[5, DIM]));
    let (mut trained, mut frozen) = (experts(4, 2, 0.1), experts(4, 2, 0.1));
    for parameter in frozen.parameters() {
        parameter.train_by(Training { frozen: true, ..Training::default() });
    }
    let (_, saved) = frozen.forward(common::train(0), input.clone()).unwrap();
    let (_, more) = trained.forward(common::train(0), input.clone()).unwrap();
    assert_eq!(more.bytes() - saved.bytes(), input.bytes());
    let (input_grad, pending) = frozen.backward_input(saved, grad.clone()).unwrap();
    assert_eq!(pending.bytes(), 0);
    frozen.backward_weight(pending).unwrap();
    assert_eq!(input_grad, pass(&mut trained, &input, &grad).1);
}

#[test]
fn a_score_that_is_no_number_ends_nothing() {
    let mut layer = experts(3, 2, 0.1);
    let mut input = tensor("x", &[4, DIM]);
    input.f32_mut()[DIM] = f32::NAN;
    let (output, _) = pass(&mut layer, &input, &tensor("dy", &[4, DIM]));
    let is_nan: Vec<bool> = output.f32().chunks(DIM).map(|row| row[0].is_nan()).collect();
    assert_eq!(is_nan, [false, true, false, false]);
}

#[test]
fn parameters_are_named_by_expert() {
    let mut layer = experts(2, 1, 0.0);
    let named: Vec<(String, Vec<usize>)> = layer
        .parameters()
        .into_iter()
        .map(|parameter: &mut Parameter| (parameter.name().to_owned(), parameter.dims().to_vec()))
        .collect();
    let expected = [
        ("experts.router.weight", [2, 6]),
        ("experts.experts.0.gate_up.weight", [10, 6]),
        ("experts.experts.0.down.weight", [6, 5]),
        ("experts.experts.1.gate_up.weight", [10, 6]),
        ("experts.experts.1.down.weight", [6, 5]),
    ];
    assert_eq!(named, expected.map(|(name, dims)| (name.to_owned(), dims.to_vec())));
}

#[test]
fn impossible_routings_are_refused() {
    let refused = |experts, chosen, auxiliary| {
        let routing = Routing { experts, chosen, auxiliary };
        Experts::new("h.0.mlp", [4, 4], routing, Init::Zeros, 1).unwrap_err().to_string()
    };
    assert_eq!(refused(0, 1, 0.0), "h.0.mlp: the number of experts is 0: it must be at least 1");
    assert_eq!(refused(4, 5, 0.0), "h.0.mlp: a token cannot choose 5 of 4 experts: it must be 1 to 4");
    assert_eq!(
        refused(4, 2, -1.0),
        "h.0.mlp: the auxiliary loss's coefficient is -1: it must be 0 or more, such as 0.01"
    );
}
