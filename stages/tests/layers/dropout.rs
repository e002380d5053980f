//! Dropout gives the same mask whenever step and micro-batch are the same.

use pipewright_stages::layers::Dropout;

use super::*;

fn ones(count: usize) -> Tensor {
    Tensor::from_vec(&[count], vec![1.0; count]).unwrap()
}

fn mask(name: &str, seed: u64, at: ForwardContext) -> Vec<f32> {
    let mut layer = Dropout::new(name, 0.3, seed).unwrap();
    layer.forward(at, ones(1003)).unwrap().0.f32().to_vec()
}

#[test]
fn backward_draws_the_mask_of_forward() {
    let mut layer = Dropout::new("dropout", 0.3, 1).unwrap();
    let (output, saved) = layer.forward(train(2), ones(1003)).unwrap();
    layer.forward(train(3), ones(1003)).unwrap();
    let (grad, _) = layer.backward_input(saved, ones(1003)).unwrap();
    assert_eq!(output.f32(), grad.unwrap().f32());
}

#[test]
fn the_mask_is_a_function_of_seed_name_step_and_micro_batch() {
    let at = train(2);
    assert_eq!(mask("a", 1, at), mask("a", 1, at));
    assert_ne!(mask("a", 1, at), mask("b", 1, at));
    assert_ne!(mask("a", 1, at), mask("a", 2, at));
    assert_ne!(mask("a", 1, at), mask("a", 1, train(3)));
    assert_ne!(mask("a", 1, at), mask("a", 1, ForwardContext { step: 4, ..at }));
}

#[test]
fn a_probe_draws_the_mask_of_training() {
    assert_eq!(mask("a", 1, train(2)), mask("a", 1, ForwardContext { mode: Mode::Probe, ..train(2) }));
}

#[test]
fn survivors_are_scaled_and_their_share_is_right() {
    let mut layer = Dropout::new("dropout", 0.3, 1).unwrap();
    let output = layer.forward(train(0), ones(100_000)).unwrap().0;
    assert!(output.f32().iter().all(|&x| x == 0.0 || x == 1.0 / (1.0 - 0.3)));
    let zeros = output.f32().iter().filter(|&&x| x == 0.0).count();
    assert!((29_000..31_000).contains(&zeros), "{zeros} of 100000");
}

#[test]
fn evaluation_lets_everything_through() {
    let mut layer = Dropout::new("dropout", 0.9, 1).unwrap();
    let input = tensor("x", &[100]);
    let output = layer.forward(ForwardContext { mode: Mode::Evaluate, ..train(0) }, input.clone()).unwrap().0;
    assert_eq!(output, input);
}

#[test]
fn a_shared_input_is_not_written_to() {
    let mut layer = Dropout::new("dropout", 0.5, 1).unwrap();
    let input = ones(64);
    layer.forward(train(0), input.clone()).unwrap();
    assert_eq!(input, ones(64));
}

#[test]
fn a_rate_of_one_is_refused() {
    let error = Dropout::new("h.0.attn.dropout", 1.0, 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "h.0.attn.dropout: dropout 1 is not a probability below 1: choose one in 0..1, such as 0.1"
    );
}
