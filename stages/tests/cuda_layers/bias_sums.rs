//! On a GPU, the backward of a GPT's activation makes the sums for the bias before it: with the bits of sums
//! that read the gradient again, and only if they are used.

use pipewright_stages::layers::{Block, Gelu, GeluForm, LayerNorm, Layout, Linear, Recomputed};
use pipewright_stages::models::Gpt;
use pipewright_stages::{Division, Recompute, Shard, Sharding};

use super::*;

/// A GPT's MLP of this width.
fn of_gpt(dim: usize, sharding: Sharding) -> Sequential {
    let gpt = Gpt { vocab: 9, dim, layers: 1, heads: 1, context: 4, dropout: 0.0, tied: false, seed: 1 };
    let units = gpt.model().unwrap().into_units();
    let mlp = units.iter().find(|unit| unit.name == "h.0.mlp").expect("the unit of an MLP");
    Sequential::new(mlp.build(sharding).unwrap())
}

/// The same layers, but the activation does not know the layer before it.
fn of_layers(dim: usize, sharding: Sharding) -> Sequential {
    let linear = |name: &str, sizes| {
        Linear::new(&format!("h.0.mlp.{name}"), sizes, Init::Zeros, 1).with_layout(Layout::InOut)
    };
    let hidden = Division::new(sharding, 4 * dim, &[1]).unwrap();
    let wide = linear("c_fc", [dim, 4 * dim]).with_divided_outputs(&hidden);
    let out = linear("c_proj", [4 * dim, dim]).with_divided_inputs(&hidden);
    let norm = LayerNorm::new("h.0.ln_2", dim).divided(sharding);
    let gelu = Gelu::new("gelu", GeluForm::Tanh);
    let layers = chain![Recomputed::new(norm, wide), Recomputed::new(gelu, out)];
    Sequential::new(chain![Block::residual("mlp", layers)])
}

/// The input gradients, and the gradients of all parameters after two micro-batches, the second in halves.
/// Also how many kernels the first one launches.
fn run(mut stage: Sequential, rows: usize, how: Recompute, dtype: DType) -> (Vec<Vec<u32>>, Option<u64>) {
    stage.recompute(how);
    stage.visit_parameters(&mut |parameter| {
        let draws = numbers(parameter.name(), parameter.value.len());
        parameter.value.copy_from_slice(&draws);
    });
    stage.move_to(gpu(dtype)).unwrap();
    let dim = stage.parameters()[0].dims()[0];
    let input = stage.load(tensor("x", &[rows, dim])).unwrap();
    let grad = tensor("dy", &[rows, dim]).to(gpu(dtype)).unwrap();
    let mut all = Vec::new();
    let launched = launches(|| {
        let (_, kept) = stage.forward(train(0), input.clone()).unwrap();
        let input_grad = stage.backward(kept, grad.clone()).unwrap().unwrap();
        all.push(bits(&here(input_grad)));
    });
    let (_, kept) = stage.forward(train(1), input).unwrap();
    let (input_grad, pending) = stage.backward_input(kept, grad).unwrap();
    stage.backward_weight(pending).unwrap();
    all.push(bits(&here(input_grad.unwrap())));
    stage.visit_gradients(&mut |parameter| {
        parameter.fetch(Part::Gradient).unwrap();
        all.push(bits(&parameter.grad));
    });
    (all, launched)
}

#[test]
fn an_activation_makes_the_sums_that_a_bias_would_find_itself() {
    if emulator::start().is_none() {
        return;
    }
    // One slice of the rows, and several, the last one shorter. Columns of a part of a block, of more than
    // one, and such that cannot be read by eight.
    for (rows, dim) in [(5, 16), (150, 16), (91, 72), (77, 3)] {
        for dtype in [DType::F32, DType::Bf16] {
            for how in [Recompute::None, Recompute::Cheap, Recompute::Selective] {
                let whole = Sharding::default();
                let (made, launched) = run(of_gpt(dim, whole), rows, how, dtype);
                let (found, more) = run(of_layers(dim, whole), rows, how, dtype);
                assert_eq!(made, found, "{rows} rows, {dim} wide, {how:?}, {dtype:?}");
                assert_eq!(
                    launched.map(|launched| launched + 1),
                    more,
                    "no kernel reads the gradient for it"
                );
            }
        }
    }
}

#[test]
fn no_sums_are_made_for_a_bias_that_is_frozen_or_whose_columns_are_cut() {
    if emulator::start().is_none() {
        return;
    }
    let [whole, cut] = [1, 2].map(|groups| Sharding::new(groups, Shard::WHOLE).unwrap());
    for (sharding, frozen) in [(whole, "h.0.mlp.c_fc.bias"), (cut, "none")] {
        let trained = |mut stage: Sequential| {
            stage.visit_parameters(&mut |parameter| {
                let frozen = parameter.name() == frozen;
                parameter.train_by(Training { frozen, ..Training::default() });
            });
            run(stage, 150, Recompute::Cheap, DType::Bf16)
        };
        let dim = 16;
        assert_eq!(trained(of_gpt(dim, sharding)), trained(of_layers(dim, sharding)), "{sharding:?}");
    }
}
