//! Frozen matrices on a GPU: it has them only in the number format of products.

use common::forward;
use pipewright_stages::devices::free_memory;
use pipewright_stages::layers::{Embedding, LayerNorm, Linear};
use pipewright_stages::{Device, Kind, Lora, Parameter};

use super::*;

const SIZE: usize = 2048;

/// Moves a layer's parameters to the GPU, all frozen or all trained.
fn moved(mut layer: Box<dyn Layer>, frozen: bool, dtype: DType) -> Box<dyn Layer> {
    layer.visit_parameters(&mut |parameter| {
        parameter.train_by(Training { frozen, ..Training::default() });
        parameter.move_to(gpu(dtype)).unwrap();
    });
    layer
}

fn layers() -> Vec<(Box<dyn Layer>, Tensor)> {
    let ids = Tensor::from_ids(&[2, 3], vec![0, 4, 2, 3, 1, 0]).unwrap();
    vec![
        (Box::new(Linear::new("fc", [24, 40], Init::Normal(0.3), 1)), tensor("x", &[5, 24])),
        (Box::new(LayerNorm::new("norm", 24)), tensor("x", &[5, 24])),
        (Box::new(Embedding::new("table", 5, 3, 24, 1)), ids),
    ]
}

#[test]
fn frozen_weights_give_the_bits_of_trained_ones() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for ((first, input), (second, _)) in layers().into_iter().zip(layers()) {
            let input = match input.shape().kind() {
                Kind::F32 => input.to(gpu(dtype)).unwrap(),
                _ => input,
            };
            let bits_of = |mut layer: Box<dyn Layer>| {
                let output = bits(&here(forward(layer.as_mut(), &input)));
                (layer, output)
            };
            let [(_, trained), (mut layer, frozen)] =
                [(first, false), (second, true)].map(|(layer, frozen)| bits_of(moved(layer, frozen, dtype)));
            assert_eq!(trained, frozen, "{}, {dtype:?}", layer.name());
            // The host keeps the exact numbers, and new ones are used.
            layer.visit_parameters(&mut |parameter| {
                let before = parameter.value.to_vec();
                parameter.fetch(Part::Value).unwrap();
                assert_eq!(bits(&before), bits(&parameter.value), "{}", parameter.name());
                parameter.value.iter_mut().for_each(|number| *number *= 2.0);
                parameter.store(Part::Value).unwrap();
            });
            let (_, doubled) = bits_of(layer);
            assert_ne!(doubled, frozen);
            assert_eq!(doubled.len(), frozen.len());
        }
    }
}

/// The gradients of an adapter's two matrices, if these are frozen.
fn gradients_of_adapter(frozen: [bool; 2]) -> [Vec<u32>; 2] {
    let mut layer = Linear::new("fc", [24, 40], Init::Normal(0.3), 1).without_bias();
    let lora = Lora { rank: 8, alpha: 4.0, dropout: 0.0, seed: 1 };
    layer.adapt(&mut |_| Some(lora)).unwrap();
    let mut all = [true, frozen[0], frozen[1]].into_iter();
    layer.visit_parameters(&mut |parameter| {
        let frozen = all.next().expect("the weights, and both of the adapter");
        parameter.train_by(Training { frozen, ..Training::default() });
        let values = numbers(parameter.name(), parameter.value.len());
        parameter.value.copy_from_slice(&values);
        parameter.move_to(gpu(DType::Bf16)).unwrap();
    });
    let on_gpu = |name: &str, width| tensor(name, &[16, width]).to(gpu(DType::Bf16)).unwrap();
    pass(&mut layer, &on_gpu("x", 24), &on_gpu("dy", 40));
    let mut gradients = Vec::new();
    layer.visit_gradients(&mut |parameter| {
        parameter.fetch(Part::Gradient).unwrap();
        gradients.push(bits(&parameter.grad));
    });
    [gradients[1].clone(), gradients[2].clone()]
}

#[test]
fn a_frozen_matrix_of_an_adapter_has_no_gradient() {
    if emulator::start().is_none() {
        return;
    }
    let [down, up] = gradients_of_adapter([false; 2]);
    assert_eq!(gradients_of_adapter([false, true]), [down, vec![]]);
    assert_eq!(gradients_of_adapter([true, false]), [vec![], up]);
}

/// Names the process in which nothing else takes memory.
const ALONE: &str = "PIPEWRIGHT_TEST_ALONE";

#[test]
fn a_frozen_matrix_takes_two_bytes_a_number_in_bf16() {
    let name = "frozen::a_frozen_matrix_takes_two_bytes_a_number_in_bf16";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    if emulator::start().is_none() {
        return;
    }
    let Device::Cuda(index) = gpu(DType::F32).device else { unreachable!("a GPU") };
    let mut first = Parameter::new("first", &[1, 1], Init::Zeros, 1);
    first.move_to(gpu(DType::Bf16)).unwrap();
    // They stay, so that no memory is used again.
    let mut all = Vec::new();
    let mut bytes_of = |frozen: bool, dims: &[usize], dtype: DType| {
        let mut parameter = Parameter::new("w", dims, Init::Normal(1.0), 1);
        parameter.train_by(Training { frozen, ..Training::default() });
        let before = free_memory(index).unwrap();
        parameter.move_to(gpu(dtype)).unwrap();
        let taken = before - free_memory(index).unwrap();
        all.push(parameter);
        taken as f64 / (SIZE * SIZE) as f64
    };
    let matrix = [SIZE, SIZE];
    for (frozen, dims, dtype, expected) in [
        (false, &matrix[..], DType::F32, 8.0),
        (false, &matrix, DType::Bf16, 10.0),
        (true, &matrix, DType::F32, 4.0),
        (true, &matrix, DType::Bf16, 2.0),
        (true, &[SIZE * SIZE], DType::Bf16, 6.0),
    ] {
        let taken = bytes_of(frozen, dims, dtype);
        let case = format!("frozen {frozen}, {dims:?}, {dtype:?}: {taken} bytes a number");
        // A copy from the host has memory of its own, which the shelf keeps.
        assert!(taken >= expected && taken < expected + 1.1, "{case}");
    }
}
