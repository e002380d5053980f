//! Blocks on a GPU compute what they compute on the CPU, and have the same bits when their interior is
//! recomputed.

use pipewright_stages::layers::{Block, Dropout, Gelu, GeluForm, Linear, Reshape, Sigmoid};
use pipewright_stages::{ForwardContext, Kept, Recompute, Result, Shape};

use super::*;

const ROWS: usize = 7;

fn linear(name: &str, inputs: usize, outputs: usize) -> Linear {
    Linear::new(name, [inputs, outputs], Init::Normal(0.3), 1).with_bias(Init::Uniform(0.3))
}

/// Every form of a block: `[rows, 24]` to `[rows, 13]`.
fn stage() -> Sequential {
    let factors =
        [chain![linear("gate", 9, 9), Sigmoid::new("sigmoid")], chain![], chain![linear("up", 9, 9)]];
    let dropout = Dropout::new("dropout", 0.2, 1).expect("a rate");
    let shared = chain![linear("shared", 15, 15), Gelu::new("gelu", GeluForm::Tanh), dropout];
    let parts =
        [chain![Block::product("gated", factors)], chain![Block::residual("shared", shared).repeated(3)]];
    let wide = [chain![linear("a", 24, 5)], chain![], chain![linear("b", 24, 10)]];
    let terms = [chain![], chain![linear("c", 13, 13)], chain![Reshape::new("r", &[13])]];
    Sequential::new(chain![
        Block::concat("parts", parts).of_columns(&[9, 15]),
        Block::concat("wide", wide),
        Block::sum("sum", terms).of_columns(&[13, 13, 13]),
    ])
}

/// The output, the input gradient and the weight gradients of two micro-batches, the second one in halves.
fn run(mut stage: Sequential, place: Place) -> Vec<Vec<f32>> {
    stage.move_to(place).unwrap();
    let input = stage.load(tensor("x", &[ROWS, 24])).unwrap();
    let grad = tensor("dy", &[ROWS, 13]).to(place).unwrap();
    let (first, kept) = stage.forward(train(0), input.clone()).unwrap();
    let first_grad = stage.backward(kept, grad.clone()).unwrap().unwrap();
    let (second, kept) = stage.forward(train(1), input).unwrap();
    let (second_grad, pending) = stage.backward_input(kept, grad).unwrap();
    stage.backward_weight(pending).unwrap();
    let mut all = [first, first_grad, second, second_grad.unwrap()].map(here).to_vec();
    stage.visit_gradients(&mut |parameter| {
        parameter.fetch(Part::Gradient).unwrap();
        all.push(parameter.grad.to_vec());
    });
    all
}

#[test]
fn a_gpu_computes_the_numbers_of_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let expected = run(stage(), Place::default());
    for (dtype, bound) in [(DType::F32, 1e-5), (DType::Bf16, 0.05)] {
        assert_near(&run(stage(), gpu(dtype)), &expected, bound, &format!("{dtype:?}"));
    }
}

#[test]
fn recomputing_changes_no_bit_on_a_gpu() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for how in [Recompute::None, Recompute::Selective] {
            let mut recomputing = stage();
            recomputing.recompute(how);
            assert_eq!(run(recomputing, gpu(dtype)), run(stage(), gpu(dtype)), "{dtype:?}, {how:?}");
        }
    }
}

/// A layer whose output does not depend on its input, as far as backward knows.
#[derive(Debug)]
struct Constant;

impl Layer for Constant {
    fn name(&self) -> &str {
        "constant"
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> Result<(Tensor, Kept)> {
        Ok((input, Kept::new(ctx, [])))
    }

    fn backward_input(&mut self, saved: Kept, _grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((None, saved))
    }
}

/// Only one of the branches has something to say of its columns.
#[test]
fn columns_without_a_gradient_get_zeros() {
    let places = [Some(Place::default()), (!emulator::start().is_none()).then(|| gpu(DType::F32))];
    for place in places.into_iter().flatten() {
        let block = Block::concat("block", [chain![Constant], chain![]]).of_columns(&[2, 3]);
        let mut stage = Sequential::new(chain![block]);
        stage.move_to(place).unwrap();
        let input = tensor("x", &[1, 5]).to(place).unwrap();
        let grad = Tensor::from_vec(&[1, 5], vec![1.0; 5]).unwrap().to(place).unwrap();
        let (_, kept) = stage.forward(train(0), input).unwrap();
        let input_grad = stage.backward(kept, grad).unwrap().unwrap();
        assert_eq!(input_grad.to(Place::default()).unwrap().f32(), [0.0, 0.0, 1.0, 1.0, 1.0]);
    }
}
