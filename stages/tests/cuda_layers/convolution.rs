//! A convolution on a GPU whose windows do not fit into memory all at once.

use pipewright_stages::layers::Conv2d;

use super::*;

/// Five images whose windows are 96 MB: three of them go at a time, and then two. No image begins at a
/// multiple of 256 bytes.
const INPUT: [usize; 4] = [5, 181, 181, 3];
const KERNEL: usize = 7;
const OUTPUTS: usize = 3;

/// Output, input gradient, and the gradients of weights and bias after two micro-batches.
fn numbers(place: Place) -> Vec<Vec<f32>> {
    let mut layer = Conv2d::new("conv", [INPUT[3], OUTPUTS], KERNEL, Init::Uniform(0.5), 1)
        .with_padding(KERNEL / 2)
        .with_bias(Init::Uniform(0.5));
    layer.visit_parameters(&mut |parameter| parameter.move_to(place).unwrap());
    let there = |tensor: Tensor| tensor.to(place).unwrap();
    let input = there(tensor("input", &INPUT));
    let grad = there(tensor("grad", &[INPUT[0], INPUT[1], INPUT[2], OUTPUTS]));
    let mut found = Vec::new();
    for _ in 0..2 {
        let (output, input_grad) = pass(&mut layer, &input, &grad);
        found = vec![here(output), here(input_grad.expect("images have a gradient"))];
    }
    for parameter in layer.parameters() {
        parameter.fetch(Part::Gradient).unwrap();
        found.push(parameter.grad.to_vec());
    }
    found
}

#[test]
fn images_whose_windows_do_not_fit_go_a_few_at_a_time() {
    if emulator::start().is_none() {
        return;
    }
    assert_near(&numbers(gpu(DType::F32)), &numbers(Place::default()), 1e-4, "the convolution");
}
