//! Layers whose weights are held in 16 bits compute as they do with the same weights in 32 bits.

use pipewright_stages::layers::{Embedding, Layout, Linear};
use pipewright_stages::{rng, threads};

use super::*;

/// Rounds to 16 bits, toward zero.
fn round(parameter: &mut Parameter) {
    let bits = |number: f32| f32::from_bits(number.to_bits() & 0xffff_0000);
    parameter.value.iter_mut().for_each(|number| *number = bits(*number));
}

/// The outputs of a layer before and after its weights are held in 16 bits.
fn both(mut layer: impl Layer, input: &Tensor) -> [Vec<u32>; 2] {
    layer.parameters().into_iter().for_each(round);
    [false, true].map(|held| {
        if held {
            layer.hold_in_bf16();
        }
        let output = layer.forward_next(0, input.clone()).expect("it computes");
        output.f32().iter().map(|number| number.to_bits()).collect()
    })
}

fn linear([inputs, outputs]: [usize; 2], layout: Layout) -> Linear {
    Linear::new("fc", [inputs, outputs], Init::Normal(0.1), 3)
        .with_layout(layout)
        .with_bias(Init::Normal(0.1))
}

fn rows(count: usize, width: usize) -> Tensor {
    let mut numbers = vec![0.0; count * width];
    rng::fill_normal([5, 7], 1.0, &mut numbers);
    Tensor::from_vec(&[1, count, width], numbers).expect("it fits")
}

#[test]
fn products_have_the_same_bits_for_one_row_and_for_many() {
    let _threads = threads::start(2, |_| {}).expect("two threads");
    for sizes in [[64, 96], [1100, 37], [203, 1301]] {
        for layout in [Layout::OutIn, Layout::InOut] {
            for count in [1, 2, 33, 150] {
                let [wide, held] = both(linear(sizes, layout), &rows(count, sizes[0]));
                assert_eq!(wide, held, "{count} rows by {sizes:?}, {layout:?}");
            }
        }
    }
}

#[test]
fn vectors_of_tokens_and_positions_have_the_same_bits() {
    let ids = Tensor::from_ids(&[1, 5], vec![3, 0, 10, 3, 7]).expect("it fits");
    let [wide, held] = both(Embedding::new("embed", 11, 8, 37, 1), &ids);
    assert_eq!(wide, held);
    let tokens = Embedding::of_tokens("embed", "wte.weight", 11, 37, Init::Normal(0.1), 1);
    let [wide, held] = both(tokens, &ids);
    assert_eq!(wide, held);
}

#[test]
fn text_that_is_written_has_the_products_of_training() {
    for layout in [Layout::OutIn, Layout::InOut] {
        let mut layer = linear([203, 1301], layout);
        let input = rows(33, 203);
        let ctx = pipewright_stages::ForwardContext {
            step: 0,
            micro_batch: 0,
            mode: pipewright_stages::Mode::Evaluate,
        };
        let (trained, _) = layer.forward(ctx, input.clone()).expect("it computes");
        let written = layer.forward_next(0, input).expect("it computes");
        assert_eq!(trained.f32(), written.f32(), "{layout:?}");
    }
}
