//! Batch and group norm: gradients, threads, running means, and what they refuse.

use std::thread;

use pipewright_stages::layers::{BatchNorm, GroupNorm};
use pipewright_stages::optimizer::{Sgd, Update, update};
use pipewright_stages::{Together, Training, threads};

use super::*;

#[test]
fn gradients_are_slopes() {
    let input = tensor("x", &[2, 3, 2, 6]);
    check_gradients(BatchNorm::new("norm", 6, 1e-5), &input).unwrap();
    for groups in [1, 2, 6] {
        check_gradients(GroupNorm::new("norm", groups, 6, 1e-5).unwrap(), &input).unwrap();
    }
    check_gradients(BatchNorm::new("norm", 3, 1e-2), &tensor("rows", &[5, 3])).unwrap();
}

#[test]
fn threads_change_no_bit() {
    let passes = |layer: &mut dyn Layer| {
        shuffle(layer);
        let dims = [7, 30, 31, 36];
        let (output, input_grad) = pass(layer, &tensor("x", &dims), &tensor("grad", &dims));
        let grads = layer.parameters().into_iter().map(|parameter| parameter.grad.to_vec());
        let grads: Vec<Vec<f32>> = grads.collect();
        (output.f32().to_vec(), input_grad.unwrap().f32().to_vec(), grads)
    };
    let by = |count| {
        // A thread gets helpers only once.
        let run = || {
            let _helpers = threads::start(count, |_| {}).unwrap();
            let batch = passes(&mut BatchNorm::new("norm", 36, 1e-5));
            (batch, passes(&mut GroupNorm::new("norm", 4, 36, 1e-5).unwrap()))
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap())
    };
    let alone = by(1);
    for count in [2, 3] {
        assert!(by(count) == alone, "{count} threads");
    }
}

/// Numbers far from zero: their squares lose what their distances keep.
fn far() -> Tensor {
    let mut input = tensor("x", &[400, 3]);
    input.f32_mut().iter_mut().for_each(|x| *x += 1000.0);
    input
}

fn mean_and_variance(input: &Tensor, channel: usize) -> [f64; 2] {
    let numbers: Vec<f64> = input.f32().iter().skip(channel).step_by(3).map(|&x| f64::from(x)).collect();
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|x| (x - mean) * (x - mean)).sum();
    [mean, squares / (count - 1.0)]
}

#[test]
fn running_means_take_a_tenth_of_the_mean_over_micro_batches() {
    let mut norm = BatchNorm::new("norm", 3, 1e-5);
    let inputs = [far(), tensor("other", &[400, 3])];
    for input in &inputs {
        pass(&mut norm, input, &tensor("grad", &[400, 3]));
    }
    // Neither the rate nor the scale of gradients is theirs.
    let by = Update { step: 1, learning_rate: 7.0, scale: 0.3, micro_batches: 2 };
    for parameter in norm.parameters() {
        Together::now(|together| update(&Sgd::default(), parameter, by, together)).unwrap();
    }
    let parameters = norm.parameters();
    for channel in 0..3 {
        let seen = inputs.each_ref().map(|input| mean_and_variance(input, channel));
        for (which, start) in [(0, 0.0), (1, 1.0)] {
            let expected = 0.9 * start + 0.1 * (seen[0][which] + seen[1][which]) / 2.0;
            let got = f64::from(parameters[2 + which].value[channel]);
            assert!((got - expected).abs() < 1e-4 * expected.abs(), "{which}: {got} and {expected}");
        }
    }
}

#[test]
fn an_evaluation_takes_the_running_means_and_changes_nothing() {
    let mut norm = BatchNorm::new("norm", 3, 0.0);
    for (index, parameter) in norm.parameters().into_iter().enumerate() {
        parameter.value.copy_from_slice(&[[2.0; 3], [5.0; 3], [1.0, 2.0, 3.0], [4.0; 3]][index]);
    }
    let ctx = ForwardContext { mode: Mode::Evaluate, ..train(0) };
    let input = Tensor::from_vec(&[1, 3], vec![3.0, 3.0, 3.0]).unwrap();
    let (output, _) = norm.forward(ctx, input).unwrap();
    assert_eq!(output.f32(), [7.0, 6.0, 5.0]);
    assert!(norm.parameters().iter().all(|one| one.grad.iter().all(|&x| x == 0.0)));
}

#[test]
fn running_means_have_no_norm_and_no_state_and_can_be_frozen() {
    let mut norm = BatchNorm::new("norm", 3, 1e-5);
    pass(&mut norm, &far(), &tensor("grad", &[400, 3]));
    let sgd = Sgd { momentum: 0.9, ..Sgd::default() };
    let by = Update { step: 1, learning_rate: 0.1, scale: 1.0, micro_batches: 1 };
    let mut parameters = norm.parameters();
    let squares: Vec<f64> = parameters.iter().flat_map(|one| one.all_grad_squares()).collect();
    assert!(squares[0] > 0.0 && squares[1] > 0.0);
    assert_eq!(squares[2..], [0.0, 0.0]);
    for parameter in &mut parameters {
        Together::now(|together| update(&sgd, parameter, by, together)).unwrap();
    }
    let states: Vec<usize> = parameters.iter().map(|one| one.state.len()).collect();
    assert_eq!(states, [1, 1, 0, 0]);
    parameters[2].grad[1] = f32::INFINITY;
    assert!(parameters[2].all_grad_squares()[0].is_nan());
    for parameter in &mut parameters {
        parameter.train_by(Training { frozen: true, ..Training::default() });
    }
    let before = parameters[2].value.to_vec();
    Together::now(|together| update(&sgd, parameters[2], by, together)).unwrap();
    assert_eq!(parameters[2].value[..], before);
    pass(&mut norm, &far(), &tensor("grad", &[400, 3]));
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let refused = GroupNorm::new("norm", 4, 6, 1e-5).unwrap_err().to_string();
    assert_eq!(refused, "6 channels cannot be divided into 4 groups: choose groups that divide the channels");
    let mut norm = BatchNorm::new("norm", 3, 1e-5);
    let refused = norm.forward(train(0), Tensor::zeros(&[1, 3])).unwrap_err().to_string();
    assert_eq!(
        refused,
        "expected an input of at least 2 rows or pixels, which batch norm needs to train, got f32[1, 3]"
    );
}
