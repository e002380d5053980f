//! A mixture of experts on a GPU: what it does beside its formula, which `cuda_kernels` tests.

use pipewright_stages::layers::{Experts, Routing};

use super::*;

/// How a layer is made, and how many tokens it gets.
#[derive(Clone, Copy, Debug)]
struct Case {
    tokens: usize,
    sizes: [usize; 2],
    experts: usize,
    chosen: usize,
}

impl Case {
    fn layer(self) -> Experts {
        let routing = Routing { experts: self.experts, chosen: self.chosen, auxiliary: 0.1 };
        Experts::new("experts", self.sizes, routing, Init::Normal(0.5), 1).unwrap()
    }

    fn dims(self) -> [usize; 2] {
        [self.tokens, self.sizes[0]]
    }

    fn input(self) -> Tensor {
        tensor("x", &self.dims())
    }

    fn grad(self) -> Tensor {
        tensor("dy", &self.dims())
    }
}

const CASES: [Case; 6] = [
    case(1, [6, 5], 4, 2),
    case(23, [33, 17], 5, 1),
    case(23, [7, 1], 3, 3),
    case(9, [64, 128], 4, 2),
    case(40, [1, 9], 8, 3),
    case(3, [8, 300], 32, 2),
];

const fn case(tokens: usize, sizes: [usize; 2], experts: usize, chosen: usize) -> Case {
    Case { tokens, sizes, experts, chosen }
}

fn move_to(layer: &mut Experts, place: Place) {
    layer.visit_parameters(&mut |parameter| parameter.move_to(place).unwrap());
}

/// The output, the input gradient, and the gradients of all weights, of two micro-batches. The second is
/// backwards and adds to the sums of the first. With `again`, what forward kept is computed again.
fn pass(layer: &mut Experts, case: Case, place: Place, again: bool) -> Vec<Vec<f32>> {
    move_to(layer, place);
    layer.visit_parameters(&mut |parameter| {
        parameter.grad.fill(f32::NAN);
        parameter.store(Part::Gradient).unwrap();
        Together::now(|together| parameter.start_sum(together)).unwrap();
    });
    let mut found = Vec::new();
    for is_second in [false, true] {
        let there = |mut tensor: Tensor| {
            if is_second {
                tensor.f32_mut().reverse();
            }
            tensor.to(place).unwrap()
        };
        let input = there(case.input());
        let (output, mut saved) = layer.forward(train(0), input.clone()).unwrap();
        if again {
            saved = layer.forward_again(train(0), input).unwrap();
        }
        let (input_grad, pending) = layer.backward_input(saved, there(case.grad())).unwrap();
        layer.backward_weight(pending).unwrap();
        found.extend([here(output), here(input_grad.unwrap())]);
    }
    layer.visit_parameters(&mut |parameter| {
        if !parameter.is_frozen() {
            parameter.fetch(Part::Gradient).unwrap();
            found.push(parameter.grad.to_vec());
        }
    });
    found
}

#[test]
fn a_gpu_computes_what_the_cpu_computes() {
    if emulator::start().is_none() {
        return;
    }
    for case in CASES {
        let expected = pass(&mut case.layer(), case, Place::default(), false);
        let got = pass(&mut case.layer(), case, gpu(DType::F32), false);
        assert_near(&got, &expected, 1e-5, &format!("{case:?}"));
    }
}

#[test]
fn a_gpu_gives_the_same_bits_again_and_recomputed() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for case in CASES {
            let first = pass(&mut case.layer(), case, gpu(dtype), false);
            assert_eq!(pass(&mut case.layer(), case, gpu(dtype), false), first, "{case:?}");
            assert_eq!(pass(&mut case.layer(), case, gpu(dtype), true), first, "{case:?}, recomputed");
        }
    }
}

/// All tokens go to the second expert, and then all to the first.
#[test]
fn experts_without_tokens_have_gradients_of_zero_or_keep_their_sums() {
    if emulator::start().is_none() {
        return;
    }
    let case = case(7, [9, 5], 3, 1);
    for dtype in [DType::F32, DType::Bf16] {
        let mut layer = case.layer();
        let router = &mut layer.parameters()[0].value;
        router.fill(-1.0);
        router[9..18].fill(1.0);
        move_to(&mut layer, gpu(dtype));
        let mut gradients_after = |input: Vec<f32>| -> Vec<Vec<f32>> {
            let there = |numbers| Tensor::from_vec(&case.dims(), numbers).unwrap().to(gpu(dtype));
            let (_, saved) = layer.forward(train(0), there(input).unwrap()).unwrap();
            let grad = there(numbers("dy", 7 * 9)).unwrap();
            let (_, pending) = layer.backward_input(saved, grad).unwrap();
            layer.backward_weight(pending).unwrap();
            let fetched = layer.parameters().into_iter().map(|parameter| {
                parameter.fetch(Part::Gradient).unwrap();
                parameter.grad.to_vec()
            });
            fetched.skip(1).collect()
        };
        let positive: Vec<f32> = numbers("x", 7 * 9).iter().map(|x| x.abs() + 0.1).collect();
        let negative = positive.iter().map(|x| -x).collect();
        let first = gradients_after(positive);
        let is_zero = |grads: &[f32]| grads.iter().all(|&grad| grad == 0.0);
        let zero: Vec<bool> = first.iter().map(|grads| is_zero(grads)).collect();
        assert_eq!(zero, [true, true, false, false, true, true]);
        let second = gradients_after(negative);
        assert_eq!(second[2..4], first[2..4], "the first of equal scores is chosen");
        assert!(!is_zero(&second[0]) && !is_zero(&second[1]) && is_zero(&second[4]));
    }
}

#[test]
fn a_frozen_layer_has_the_same_input_gradient() {
    if emulator::start().is_none() {
        return;
    }
    let case = CASES[3];
    let trained = pass(&mut case.layer(), case, gpu(DType::F32), false);
    let mut layer = case.layer();
    layer.visit_parameters(&mut |parameter| {
        parameter.train_by(Training { frozen: true, ..Training::default() });
    });
    let frozen = pass(&mut layer, case, gpu(DType::F32), false);
    assert_eq!(frozen, trained[..4]);
}

#[test]
fn tokens_that_follow_others_have_the_outputs_of_all_tokens() {
    if emulator::start().is_none() {
        return;
    }
    let case = case(9, [24, 40], 4, 2);
    for (dtype, within) in [(DType::F32, 1e-5), (DType::Bf16, 2e-2)] {
        let mut layer = case.layer();
        move_to(&mut layer, gpu(dtype));
        let (all, _) = layer.forward(train(0), case.input().to(gpu(dtype)).unwrap()).unwrap();
        let (input, mut past, mut got) = (case.input(), 0, Vec::new());
        for count in [4, 1, 1, 3] {
            let part = input.f32()[past * 24..][..count * 24].to_vec();
            let part = Tensor::from_vec(&[1, count, 24], part).unwrap();
            got.extend(here(layer.forward_next(past, part.to(gpu(dtype)).unwrap()).unwrap()));
            past += count;
        }
        assert_near(&[got], &[here(all)], within, &format!("{case:?}"));
    }
}

#[test]
fn a_score_that_is_no_number_ends_nothing() {
    if emulator::start().is_none() {
        return;
    }
    let case = case(4, [6, 5], 3, 2);
    let mut layer = case.layer();
    let place = gpu(DType::F32);
    move_to(&mut layer, place);
    let mut input = case.input();
    input.f32_mut()[6] = f32::NAN;
    let (output, saved) = layer.forward(train(0), input.to(place).unwrap()).unwrap();
    let (_, pending) = layer.backward_input(saved, case.grad().to(place).unwrap()).unwrap();
    layer.backward_weight(pending).unwrap();
    let is_nan: Vec<bool> = here(output).chunks(6).map(|row| row[0].is_nan()).collect();
    assert_eq!(is_nan, [false, true, false, false]);
}

/// More numbers of rows than plans of products are kept.
#[test]
fn any_number_of_tokens_is_computed() {
    if emulator::start().is_none() {
        return;
    }
    let (mut on_cpu, mut on_gpu) = (case(1, [2, 1], 1, 1).layer(), case(1, [2, 1], 1, 1).layer());
    move_to(&mut on_gpu, gpu(DType::F32));
    for tokens in 1..600 {
        let case = case(tokens, [2, 1], 1, 1);
        let (expected, _) = on_cpu.forward(train(0), case.input()).unwrap();
        let input = case.input().to(gpu(DType::F32)).unwrap();
        let (got, _) = on_gpu.forward(train(0), input).unwrap();
        assert_near(&[here(got)], &[expected.f32().to_vec()], 1e-5, &format!("{case:?}"));
    }
}
