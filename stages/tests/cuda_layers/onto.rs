//! What a layer adds while it computes on a GPU: the bits, and that no kernel runs only to add.

use half::bf16;
use pipewright_stages::Lora;
use pipewright_stages::layers::{Block, LayerNorm, Layout, Linear, Recomputed, RmsNorm};

use super::*;

const ROWS: usize = 19;
/// Rows of each form of the norms' kernels: of a warp with one to four times eight numbers a thread, of some
/// warps with one or two times eight, and of a block.
const WIDTHS: [usize; 11] = [8, 264, 768, 1024, 100, 1032, 4096, 4100, 5120, 8196, 8200];

/// `a + b`, in this format.
fn sum(a: &[f32], b: &[f32], dtype: DType) -> Vec<f32> {
    let store = |number: f32| match dtype {
        DType::F32 => number,
        DType::Bf16 => bf16::from_f32(number).to_f32(),
    };
    a.iter().zip(b).map(|(a, b)| store(a + b)).collect()
}

fn linear(inputs: usize, outputs: usize) -> Linear {
    Linear::new("fc", [inputs, outputs], Init::Normal(0.3), 1).with_layout(Layout::InOut)
}

/// The input gradient with something added, apart and at once, and then the gradients of the parameters. Both
/// must have the same bits.
fn check(make: &dyn Fn() -> Box<dyn Layer>, [width, outputs]: [usize; 2], dtype: DType) {
    let place = gpu(dtype);
    let on_gpu = |name: &str, width| tensor(name, &[ROWS, width]).to(place).unwrap();
    let run = |at_once: bool| {
        let mut layer = make();
        common::shuffle(layer.as_mut());
        layer.visit_parameters(&mut |parameter| parameter.move_to(place).unwrap());
        let (_, kept) = layer.forward(train(0), on_gpu("x", width)).unwrap();
        let (grad, onto) = (on_gpu("dy", outputs), on_gpu("onto", width));
        let (input_grad, pending) = match at_once {
            true => layer.backward_input_onto(kept, grad, onto).unwrap(),
            false => {
                let (input_grad, pending) = layer.backward_input(kept, grad).unwrap();
                let apart = sum(&here(input_grad.unwrap()), &here(onto), dtype);
                (Tensor::from_vec(&[ROWS, width], apart).unwrap(), pending)
            }
        };
        layer.backward_weight(pending).unwrap();
        let mut all = vec![bits(&here(input_grad))];
        layer.visit_gradients(&mut |parameter| {
            parameter.fetch(Part::Gradient).unwrap();
            all.push(bits(&parameter.grad));
        });
        all
    };
    assert_eq!(run(true), run(false), "{:?}, {width} wide, {dtype:?}", make());
}

#[test]
fn a_gradient_added_by_a_norm_gives_the_bits_of_a_sum_apart() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for width in WIDTHS {
            let plain = [width, width];
            check(&|| Box::new(LayerNorm::new("norm", width)), plain, dtype);
            check(&|| Box::new(RmsNorm::new("norm", width, 1e-5)), plain, dtype);
        }
        let recomputed = || Recomputed::new(LayerNorm::new("norm", 72), linear(72, 24));
        check(&|| Box::new(recomputed()), [72, 24], dtype);
    }
}

#[test]
fn no_kernel_only_adds_in_a_residual_that_begins_with_a_norm_and_ends_with_a_product() {
    if emulator::start().is_none() {
        return;
    }
    let layers = || {
        let norm = LayerNorm::new("norm", 16);
        chain![Recomputed::new(norm, linear(16, 48)), linear(48, 16)]
    };
    let launched = |block: Block| {
        let mut stage = Sequential::new(chain![block]);
        stage.move_to(gpu(DType::Bf16)).unwrap();
        let input = stage.load(tensor("x", &[8, 16])).unwrap();
        launches(|| {
            let (output, kept) = stage.forward(train(0), input).unwrap();
            stage.backward(kept, output).unwrap();
        })
    };
    let (apart, residual) = (Block::chain("chain", layers()), Block::residual("residual", layers()));
    assert_eq!(launched(residual), launched(apart));
}

#[test]
fn an_adapter_of_some_columns_launches_no_kernel_of_its_own() {
    if emulator::start().is_none() {
        return;
    }
    let launched = |has_adapter: bool| {
        let parts = [("queries".to_owned(), 8), ("values".to_owned(), 16)];
        let mut linear = Linear::new("fc", [32, 24], Init::Normal(0.3), 1).without_bias().with_parts(parts);
        linear.visit_parameters(&mut |weight| {
            weight.train_by(Training { frozen: true, ..Training::default() });
        });
        let mut stage = Sequential::new(chain![linear]);
        let lora = Lora { rank: 8, alpha: 4.0, dropout: 0.0, seed: 1 };
        stage.adapt(&mut |part| (has_adapter && part == "values").then_some(lora)).unwrap();
        stage.move_to(gpu(DType::Bf16)).unwrap();
        let input = stage.load(tensor("x", &[8, 32])).unwrap();
        launches(|| {
            let (output, kept) = stage.forward(train(0), input).unwrap();
            stage.backward(kept, output).unwrap();
        })
    };
    assert_eq!(launched(true), launched(false));
}

#[test]
fn a_tensor_of_another_shape_is_not_added() {
    let places = [Some(Place::default()), (!emulator::start().is_none()).then(|| gpu(DType::F32))];
    for place in places.into_iter().flatten() {
        let there = |dims: &[usize]| tensor("x", dims).to(place).unwrap();
        let mut layer = linear(4, 3);
        layer.visit_parameters(&mut |parameter| parameter.move_to(place).unwrap());
        let error = layer.forward_onto(train(0), there(&[2, 4]), there(&[2, 4])).unwrap_err();
        assert!(error.to_string().starts_with("what is added must have one shape"), "{error}");
        let (_, kept) = layer.forward(train(0), there(&[2, 4])).unwrap();
        let error = layer.backward_input_onto(kept, there(&[2, 3]), there(&[2, 3])).unwrap_err();
        assert!(error.to_string().contains("must have one shape"), "{error}");
    }
}
