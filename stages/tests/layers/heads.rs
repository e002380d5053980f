//! Layers of attention with grouped heads: the same bits for any number of threads, the same when they are
//! recomputed, and what they refuse.

use std::thread;

use common::numbers;
use pipewright_stages::layers::{Attention, Heads, Rope, RopeLayout, RopeScaling, Rotary};
use pipewright_stages::{DType, Device, Place, threads};

use super::*;

const HEADS: Heads = Heads { query: 9, key_value: 3, width: 64 };

const ROPE: Rope = Rope { theta: 1e5, scaling: RopeScaling::None, layout: RopeLayout::Halves };

/// The bytes of output and input gradient of a layer, with `count` threads.
fn bytes(make: fn() -> Box<dyn Layer>, count: usize, dtype: DType) -> [Vec<u8>; 2] {
    let run = move || {
        let _threads = threads::start(count, |_| ()).unwrap();
        let place = Place { device: Device::Cpu, dtype };
        let mut layer = make();
        let input = tensor("x", &[2, 131, HEADS.row()]);
        let shape = layer.output_shape(input.shape()).unwrap();
        let grad = tensor("dy", shape.dims());
        let [input, grad] = [input, grad].map(|tensor| tensor.to(place).unwrap());
        let (output, input_grad) = pass(layer.as_mut(), &input, &grad);
        [output, input_grad.unwrap()].map(|tensor| tensor.as_bytes().to_vec())
    };
    thread::spawn(run).join().unwrap()
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    let layers: [fn() -> Box<dyn Layer>; 3] = [
        || Box::new(Attention::grouped("attention", HEADS, None).unwrap()),
        || Box::new(Attention::grouped("attention", HEADS, Some(50)).unwrap()),
        || Box::new(Rotary::new("rope", HEADS, ROPE).unwrap()),
    ];
    for dtype in [DType::F32, DType::Bf16] {
        for (which, &make) in layers.iter().enumerate() {
            let alone = bytes(make, 1, dtype);
            for count in [2, 3, 5] {
                assert!(bytes(make, count, dtype) == alone, "layer {which}, {count} threads, {dtype}");
            }
        }
    }
}

#[test]
fn rotary_works_in_place_and_keeps_nothing() {
    let mut layer = Rotary::new("rope", HEADS, ROPE).unwrap();
    let input = tensor("x", &[1, 5, HEADS.row()]);
    let memory = input.memory();
    let (output, kept) = layer.forward(common::train(0), input).unwrap();
    assert_eq!((output.memory(), kept.bytes()), (memory, 0));
    let (grad, _) = layer.backward_input(kept, output).unwrap();
    assert_eq!(grad.unwrap().memory(), memory);
    let shared = tensor("x", &[1, 5, HEADS.row()]);
    layer.forward(common::train(0), shared.clone()).unwrap();
    assert_eq!(shared.f32(), numbers("x", 5 * HEADS.row()), "a shared tensor stays as it is");
}

/// The first position turns by 0, and the products of queries and keys depend on their distance only.
#[test]
fn rotary_products_depend_on_the_distance() {
    let heads = Heads { query: 1, key_value: 1, width: 32 };
    let row = numbers("x", heads.row());
    let input = Tensor::from_vec(&[1, 40, heads.row()], row.repeat(40)).unwrap();
    let mut layer = Rotary::new("rope", heads, ROPE).unwrap();
    let output = common::forward(&mut layer, &input);
    let at = |position: usize, head: usize| &output.f32()[(3 * position + head) * 32..][..32];
    assert_eq!(at(0, 0), &row[..32]);
    let product = |query, key| -> f32 { at(query, 0).iter().zip(at(key, 1)).map(|(a, b)| a * b).sum() };
    for distance in 0..10 {
        let near = product(distance, 0);
        assert!((product(distance + 29, 29) - near).abs() < 1e-5, "{distance} apart");
    }
    assert!((product(9, 0) - product(0, 0)).abs() > 1e-3);
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn heads_that_do_not_fit_are_refused() {
    let heads = |query, key_value, width| Heads { query, key_value, width };
    assert_eq!(
        refusal(Attention::grouped("h.0.attn", heads(9, 4, 64), None)),
        "h.0.attn: 9 query heads cannot share 4 key/value heads evenly: choose query heads that are a \
         multiple of the key/value heads"
    );
    assert_eq!(
        refusal(Attention::grouped("h.0.attn", heads(9, 0, 64), None)),
        "h.0.attn: the number of key/value heads is 0: it must be at least 1"
    );
    assert_eq!(
        refusal(Attention::grouped("h.0.attn", HEADS, Some(0))),
        "h.0.attn: the window is 0: it must be at least 1"
    );
    assert_eq!(
        refusal(Rotary::new("h.0.rope", heads(2, 1, 17), ROPE)),
        "h.0.rope: heads of 17 numbers cannot be turned, since a rotary embedding turns pairs: choose an \
         even width"
    );
}

#[test]
fn angles_out_of_range_are_refused() {
    let refused = |theta, scaling| {
        let rope = Rope { theta, scaling, ..ROPE };
        refusal(Rotary::new("rope", HEADS, rope))
    };
    assert_eq!(
        refused(0.0, RopeScaling::None),
        "rope: the rotary embedding's theta is 0: it must be a finite number above 0"
    );
    assert_eq!(
        refused(1e4, RopeScaling::Linear { factor: f64::NAN }),
        "rope: the rotary embedding's factor is NaN: it must be a finite number above 0"
    );
    let llama3 = RopeScaling::Llama3 { factor: 8.0, low: 4.0, high: 1.0, original: 8192 };
    assert_eq!(
        refused(1e4, llama3),
        "rope: the rotary embedding's high frequency factor is 1: it must be above the low frequency factor"
    );
}

#[test]
fn inputs_of_another_width_are_refused() {
    let layers: [Box<dyn Layer>; 2] = [
        Box::new(Attention::grouped("attention", HEADS, None).unwrap()),
        Box::new(Rotary::new("rope", HEADS, ROPE).unwrap()),
    ];
    for layer in layers {
        for dims in [&[2, 5, 3 * 9 * 64][..], &[5, 960]] {
            let said = refusal(layer.output_shape(&Shape::f32(dims)));
            assert!(said.contains("f32[batch, time, 960]"), "{said}");
        }
    }
}
