//! Optimizers, over several steps.

use pipewright_stages::optimizer::{AdamW, Decay, Lion, Optimizer, Sgd, Update};
use pipewright_stages::{Init, Parameter, Part, Together};
use proptest::prelude::*;

use super::approx::{Approx, assert_within};
use super::inputs::{Kind, draw, exact, kind, size};
use super::place;

/// A mean divided by a root, at every step. Largest measured: 2.9.
const ADAMW: f64 = 6.0;
/// The sum of two products, at every step. Largest measured: 2.0.
const SGD: f64 = 4.0;

const RATE: f64 = 1e-2;
const SCALE: f64 = 0.3;
const STEPS: u64 = 6;
const BETAS: (f64, f64) = (0.9, 0.95);

/// A weight and the optimizer's numbers for it.
type Entry = [Approx; 3];

/// Updates a parameter in the place of the kernels, and fetches the result.
fn update(optimizer: &dyn Optimizer, parameter: &mut Parameter, step: u64) {
    parameter.move_to(place()).unwrap();
    let by = Update { step, learning_rate: RATE, scale: SCALE, micro_batches: 1 };
    Together::now(|together| optimizer.update(parameter, by, together)).unwrap();
    for part in [Part::Value, Part::Gradient, Part::State] {
        parameter.fetch(part).unwrap();
    }
}

/// Compares an optimizer's updates with a formula of the entry, the gradient and the step.
fn check(
    optimizer: &dyn Optimizer,
    limit: f64,
    what: &str,
    [weights, grads]: [Kind; 2],
    dims: &[usize],
    formula: impl Fn(Entry, Approx, i32) -> Entry,
) {
    let zero = Approx::exact(0.0);
    let mut parameter = Parameter::new("p", dims, Init::Zeros, 1);
    let count = parameter.value.len();
    parameter.value.copy_from_slice(&draw(weights, "weights", count));
    let mut entries: Vec<Entry> =
        exact(&parameter.value).into_iter().map(|weight| [weight, zero, zero]).collect();
    for step in 1..=STEPS {
        parameter.grad.copy_from_slice(&draw(grads, &format!("grad {step}"), count));
        parameter.store(Part::Gradient).unwrap();
        for (entry, grad) in entries.iter_mut().zip(exact(&parameter.grad)) {
            *entry = formula(*entry, grad * Approx::rounded(SCALE), step as i32);
        }
        let before = parameter.grad.clone();
        update(optimizer, &mut parameter, step);
        assert_eq!(parameter.grad, before, "the gradient stays as it is");
    }
    let column = |which: usize| -> Vec<Approx> { entries.iter().map(|entry| entry[which]).collect() };
    assert_within(limit, &format!("{what}: weights"), &parameter.value, &column(0));
    let states = optimizer.states("p", dims);
    assert_eq!(parameter.state.len(), states.len());
    for (index, (tensor, state)) in states.iter().zip(&parameter.state).enumerate() {
        assert_within(limit, &format!("{what}: {}", tensor.name), state, &column(index + 1));
    }
}

fn check_adamw(kinds: [Kind; 2], dims: &[usize], eps: f64, decay: Decay) {
    let optimizer = AdamW { betas: BETAS, eps, weight_decay: 0.1, decay, ..AdamW::default() };
    let decayed = if decay == Decay::All || dims.len() > 1 { 0.1 } else { 0.0 };
    check(&optimizer, ADAMW, "adamw", kinds, dims, |[weight, mean, square], grad, step| {
        let [mean_step, keep, square_step, eps, shrink] =
            [1.0 - BETAS.0, BETAS.1, 1.0 - BETAS.1, eps, 1.0 - RATE * decayed].map(Approx::rounded);
        let mean = (grad - mean).times_plus(mean_step, mean);
        let square = (grad * square_step).times_plus(grad, square * keep);
        let root_scale = Approx::rounded(1.0 / (1.0 - BETAS.1.powi(step)).sqrt());
        let step_size = Approx::rounded(RATE / (1.0 - BETAS.0.powi(step)));
        let root = square.sqrt().times_plus(root_scale, eps);
        [(-step_size).times_plus(mean / root, weight * shrink), mean, square]
    });
}

fn check_sgd(kinds: [Kind; 2], dims: &[usize], momentum: f64, decay: Decay) {
    let optimizer = Sgd { momentum, weight_decay: 0.1, decay };
    let decayed = if decay == Decay::All || dims.len() > 1 { 0.1 } else { 0.0 };
    check(&optimizer, SGD, "sgd", kinds, dims, |[weight, sum, unused], grad, _| {
        let [momentum, decay, rate] = [momentum, decayed, RATE].map(Approx::rounded);
        let sum = sum.times_plus(momentum, weight.times_plus(decay, grad));
        [(-rate).times_plus(sum, weight), sum, unused]
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Matrices decay; biases and norms decay only with `Decay::All`.
    #[test]
    fn formulas_over_several_steps(
        rows in 1_usize..9, columns in size(), matrix: bool, all: bool, momentum: bool,
        weights in kind(), grads in kind(),
    ) {
        let dims = if matrix { vec![rows, columns] } else { vec![rows * columns] };
        let decay = if all { Decay::All } else { Decay::Matrices };
        check_adamw([weights, grads], &dims, 1e-8, decay);
        check_sgd([weights, grads], &dims, if momentum { 0.9 } else { 0.0 }, decay);
    }
}

/// Signs have no error, so Lion has the bits of a plain loop.
#[test]
fn lion_is_the_plain_loop() {
    let lion = Lion { weight_decay: 0.1, decay: Decay::All, ..Lion::default() };
    for (kind, count) in [(Kind::Signed, 1), (Kind::Wide, 7), (Kind::Signed, 1003), (Kind::Wide, 40_000)] {
        let mut parameter = Parameter::new("p", &[count], Init::Zeros, 1);
        parameter.value.copy_from_slice(&draw(kind, "weights", count));
        let mut weights = parameter.value.to_vec();
        let mut means = vec![0.0_f32; count];
        for step in 1..=STEPS {
            parameter.grad.copy_from_slice(&draw(kind, &format!("grad {step}"), count));
            parameter.grad[0] = 0.0;
            parameter.store(Part::Gradient).unwrap();
            for ((weight, mean), grad) in weights.iter_mut().zip(&mut means).zip(&parameter.grad) {
                let more = grad * SCALE as f32 - *mean;
                let direction = more.mul_add((1.0 - 0.9) as f32, *mean);
                *mean = more.mul_add((1.0 - 0.99) as f32, *mean);
                let sign = if direction == 0.0 { 0.0 } else { direction.signum() };
                *weight = (-RATE as f32).mul_add(sign, *weight * (1.0 - RATE * 0.1) as f32);
            }
            update(&lion, &mut parameter, step);
        }
        assert_eq!(parameter.value[..], weights[..]);
        assert_eq!(parameter.state[0][..], means[..]);
    }
}

/// The sum is in double precision, so its error is far below the error of single precision.
#[test]
fn squares_of_the_gradient_are_summed() {
    for count in [1, 7, 1003, 40_000, 200_003] {
        let mut parameter = Parameter::new("p", &[count], Init::Zeros, 1);
        parameter.grad.copy_from_slice(&draw(Kind::Wide, "grad", count));
        parameter.move_to(place()).unwrap();
        Together::now(|together| parameter.start_grad_squares(together)).unwrap();
        parameter.fetch(Part::Gradient).unwrap();
        // In parts, so that this sum itself is exact enough.
        let part = |part: &[f32]| -> f64 { part.iter().map(|&number| f64::from(number).powi(2)).sum() };
        let expected: f64 = parameter.grad.chunks(512).map(part).sum();
        let got: f64 = parameter.all_grad_squares().iter().sum();
        assert!((got - expected).abs() <= 1e-13 * expected, "{got} and {expected}");
    }
}

/// Without `eps`, only the gradients decide the root.
#[test]
fn adamw_without_eps() {
    check_adamw([Kind::Signed; 2], &[17, 33], 0.0, Decay::Matrices);
}

#[test]
fn nan_stays_nan() {
    for optimizer in [&AdamW::default() as &dyn Optimizer, &Lion::default(), &Sgd::default()] {
        let mut parameter = Parameter::new("p", &[20], Init::Ones, 1);
        parameter.grad[3] = f32::NAN;
        update(optimizer, &mut parameter, 1);
        let nan: Vec<usize> = (0..20).filter(|&at| parameter.value[at].is_nan()).collect();
        assert_eq!(nan, [3]);
    }
}
