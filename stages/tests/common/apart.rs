//! Documents in rows, and layers in which they have the bits that each has alone.

use std::ops::Range;

use pipewright_stages::layers::{Attention, Heads, Rope, RopeLayout, RopeScaling, Rotary};
use pipewright_stages::{Borders, Layer, Place, Tensor};

use crate::common::{bits, here, tensor, train};

/// The tokens of a row, and the lengths of its documents.
pub(crate) const TIME: usize = 75;
pub(crate) const ROWS: [&[usize]; 3] = [&[20, 1, 37, 17], &[75], &[16, 32, 27]];

/// The starts of the documents in all rows.
pub(crate) fn starts() -> Tensor {
    let of_row = |lengths: &&[usize]| {
        let mut place = 0;
        let starts = lengths.iter().flat_map(|length| {
            place += length;
            vec![(place - length) as u32; *length]
        });
        starts.collect::<Vec<u32>>()
    };
    let starts: Vec<u32> = ROWS.iter().flat_map(of_row).collect();
    Tensor::from_ids(&[ROWS.len(), TIME], starts).expect("they fill the rows")
}

/// The tokens of each document, numbered through all rows.
pub(crate) fn documents() -> Vec<Range<usize>> {
    let mut place = 0;
    let lengths = ROWS.iter().flat_map(|row| row.iter());
    lengths
        .map(|length| {
            place += length;
            place - length..place
        })
        .collect()
}

/// Some tokens of a tensor `[rows, time, width]`, as a micro-batch of their own.
pub(crate) fn part(tensor: &Tensor, tokens: &Range<usize>) -> Tensor {
    let width = tensor.shape().last();
    let own = tokens.start * width..tokens.end * width;
    let numbers = here(tensor.clone())[own].to_vec();
    let part = Tensor::from_vec(&[1, tokens.len(), width], numbers).expect("they fill it");
    part.to(tensor.place()).expect("it takes them")
}

/// The output and the input gradient of a layer.
fn passes(layer: &mut dyn Layer, input: Tensor, grad: Tensor) -> [Tensor; 2] {
    let (output, kept) = layer.forward(train(0), input).expect("forward");
    let (input_grad, _) = layer.backward_input(kept, grad).expect("backward");
    [output, input_grad.expect("it has one")]
}

/// The layers in which tokens know of each other, or of their positions.
fn layers(heads: Heads) -> Vec<Box<dyn Layer>> {
    let attention = |window| Box::new(Attention::grouped("attention", heads, window).expect("they fit")) as _;
    let rotary = |layout| {
        let rope = Rope { theta: 100.0, scaling: RopeScaling::None, layout };
        Box::new(Rotary::new("rotary", heads, rope).expect("they fit")) as _
    };
    let mut all: Vec<Box<dyn Layer>> = [None, Some(1), Some(19)].map(attention).into();
    all.extend([RopeLayout::Halves, RopeLayout::Pairs].map(rotary));
    all
}

/// Checks that documents have the bits in these layers that each has alone.
pub(crate) fn check_layers(place: Place, heads: Heads) {
    let put = |tensor: Tensor| tensor.to(place).expect("it takes them");
    let input = put(tensor("input", &[ROWS.len(), TIME, heads.row()]));
    for (index, mut layer) in layers(heads).into_iter().enumerate() {
        let output = layer.output_shape(input.shape()).expect("it fits");
        let grad = put(tensor("grad", output.dims()));
        let borders = Borders::default();
        layer.keep_apart(&borders).expect("it can");
        borders.set(train(0), starts()).expect("they are right");
        let all = passes(layer.as_mut(), input.clone(), grad.clone());
        for tokens in documents() {
            let mut alone = layers(heads).swap_remove(index);
            let expected = passes(alone.as_mut(), part(&input, &tokens), part(&grad, &tokens));
            for (all, expected) in all.iter().zip(expected) {
                let how = format!("layer {index}, {place:?}, {heads:?}, tokens {tokens:?}");
                assert_eq!(bits(&here(part(all, &tokens))), bits(&here(expected)), "{how}");
            }
        }
    }
}
