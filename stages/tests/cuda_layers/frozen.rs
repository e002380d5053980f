//! Frozen matrices on a GPU: it has them only in the number format of products.

use common::forward;
use pipewright_stages::devices::free_memory;
use pipewright_stages::layers::{
    BatchNorm, Conv2d, Embedding, GroupNorm, HeadNorm, Heads, LayerNorm, Layout, Linear, RmsNorm,
};
use pipewright_stages::optimizer::{AdamW, Update, states_of, update};
use pipewright_stages::{Device, Kind, Lora, Parameter, Part, SharedWeights, Together};

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

/// A linear layer with an adapter of its first outputs.
fn adapted() -> Linear {
    let parts = [("first".to_owned(), 16), ("second".to_owned(), 24)];
    let mut layer = Linear::new("fc", [24, 40], Init::Normal(0.3), 1).with_parts(parts);
    let lora = Lora { rank: 8, alpha: 4.0, dropout: 0.0, seed: 1 };
    layer.adapt(&mut |part| (part == "first").then_some(lora)).unwrap();
    layer
}

/// Layers that train several parameters on a GPU, and their inputs.
fn trained_layers() -> Vec<(Box<dyn Layer>, Tensor)> {
    let heads = Heads { query: 2, key_value: 1, width: 8 };
    let images = || tensor("images", &[2, 5, 5, 4]);
    let mut all = layers();
    all.extend([
        (Box::new(adapted()) as Box<dyn Layer>, tensor("x", &[5, 24])),
        (Box::new(RmsNorm::new("rms", 24, 1e-5)), tensor("x", &[5, 24])),
        (Box::new(HeadNorm::new("heads", heads, 1e-5)), tensor("qkv", &[2, 3, heads.row()])),
        (Box::new(Conv2d::new("conv", [4, 8], 3, Init::Normal(0.3), 1)), images()),
        (Box::new(GroupNorm::new("groups", 2, 4, 1e-5).unwrap()), images()),
        (Box::new(BatchNorm::new("batch", 4, 1e-5)), images()),
    ]);
    all
}

/// The gradients of a layer, if its parameter number `frozen` is frozen.
fn gradients((mut layer, input): (Box<dyn Layer>, Tensor), frozen: Option<usize>) -> Vec<Vec<u32>> {
    let mut index = 0;
    layer.visit_parameters(&mut |parameter| {
        parameter.train_by(Training { frozen: frozen == Some(index), ..Training::default() });
        let values = numbers(parameter.name(), parameter.value.len());
        parameter.value.copy_from_slice(&values);
        parameter.move_to(gpu(DType::Bf16)).unwrap();
        index += 1;
    });
    let input = match input.shape().kind() {
        Kind::F32 => input.to(gpu(DType::Bf16)).unwrap(),
        _ => input,
    };
    let dims = forward(layer.as_mut(), &input).dims().to_vec();
    pass(layer.as_mut(), &input, &tensor("dy", &dims).to(gpu(DType::Bf16)).unwrap());
    let mut gradients = Vec::new();
    layer.visit_gradients(&mut |parameter| {
        parameter.fetch(Part::Gradient).unwrap();
        gradients.push(bits(&parameter.grad));
    });
    gradients
}

/// The emulator complains about a kernel or a product that writes a gradient that is not there.
#[test]
fn any_parameter_of_any_layer_may_be_frozen_alone() {
    if emulator::start().is_none() {
        return;
    }
    for place in 0..trained_layers().len() {
        let layer = || trained_layers().swap_remove(place);
        let name = layer().0.name().to_owned();
        let all = gradients(layer(), None);
        for frozen in 0..all.len() {
            let mut expected = all.clone();
            expected[frozen].clear();
            assert_eq!(gradients(layer(), Some(frozen)), expected, "{name}, without parameter {frozen}");
        }
    }
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

/// It reads the memory of the one that is updated, in both number formats.
#[test]
fn a_tied_copy_has_the_weights_of_the_parameter_that_is_updated() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let table = |init| Parameter::new("table", &[24, 16], init, 1);
        let head = Linear::new("head", [16, 24], Init::Zeros, 1).with_layout(Layout::OutIn);
        let mut head = head.with_weight(table(Init::Zeros).tied()).unwrap();
        let mut leader = table(Init::Normal(0.5));
        leader.move_to(gpu(dtype)).unwrap();
        head.visit_parameters(&mut |parameter| parameter.move_to(gpu(dtype)).unwrap());
        let shared = SharedWeights::take(&mut leader);
        head.parameters()[0].follow(&shared);
        shared.put_back(&mut leader);
        leader.grad.fill(1.0);
        leader.store(Part::Gradient).unwrap();
        let by = Update { step: 1, learning_rate: 0.1, scale: 1.0, micro_batches: 1 };
        let mut together = Together::default();
        for parameter in [&mut leader, &mut *head.parameters()[0]] {
            update(&AdamW::default(), parameter, by, &mut together).unwrap();
        }
        together.launch().unwrap();
        leader.fetch(Part::Value).unwrap();
        let expected = leader.value.to_vec();
        {
            let parameter = &mut head.parameters()[0];
            parameter.fetch(Part::Value).unwrap();
            assert_eq!(parameter.value[..], expected[..], "{dtype}");
            parameter.make_state(&states_of(&AdamW::default(), parameter));
            assert!(parameter.state.is_empty());
        }
        // Its products read the new weights too.
        let mut other = Linear::new("head", [16, 24], Init::Zeros, 1).with_layout(Layout::OutIn);
        other.visit_parameters(&mut |parameter| {
            if parameter.is_matrix() {
                parameter.value.copy_from_slice(&expected);
            }
            parameter.move_to(gpu(dtype)).unwrap();
        });
        let input = || tensor("x", &[5, 16]).to(gpu(dtype)).unwrap();
        let [got, wanted] = [&mut head, &mut other].map(|layer| here(forward(layer, &input())));
        assert_eq!(got, wanted, "{dtype}");
    }
}
