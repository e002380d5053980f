//! Quantised matrices on a GPU: the bits of the decoded numbers.

use common::blocks::{any_blocks, give, of_kinds};
use common::forward;
use pipewright_stages::devices::free_memory;
use pipewright_stages::layers::{Embedding, Layout, Linear};
use pipewright_stages::{Device, Lora, Quantisation, Quantised};

use super::*;

/// The outputs and input gradients of a layer on the GPU whose first matrix has these blocks, or their
/// numbers.
fn all(
    mut layer: Linear,
    blocks: &Quantised,
    is_quantised: bool,
    dtype: DType,
    count: usize,
) -> [Vec<u32>; 2] {
    give(layer.parameters().swap_remove(0), blocks.clone(), is_quantised);
    layer.visit_parameters(&mut |parameter| parameter.move_to(gpu(dtype)).unwrap());
    let is_turned = layer.name() == "out-in";
    let [inputs, outputs] = match is_turned {
        true => [blocks.columns(), blocks.rows()],
        false => [blocks.rows(), blocks.columns()],
    };
    let [x, dy] = [("x", inputs), ("dy", outputs)]
        .map(|(name, width)| tensor(name, &[count, width]).to(gpu(dtype)).unwrap());
    let (y, dx) = pass(&mut layer, &x, &dy);
    [y, dx.expect("a gradient")].map(|tensor| bits(&here(tensor)))
}

pub(crate) fn linear(layout: Layout, sizes: [usize; 2]) -> Linear {
    let name = if layout == Layout::OutIn { "out-in" } else { "in-out" };
    Linear::new(name, sizes, Init::Zeros, 3).with_layout(layout).with_bias(Init::Normal(0.1))
}

#[test]
fn products_have_the_bits_of_the_decoded_numbers() {
    if emulator::start().is_none() {
        return;
    }
    for kind in Quantisation::ALL {
        for (layout, sizes) in [(Layout::OutIn, [256, 24]), (Layout::InOut, [16, 512])] {
            let stored = if layout == Layout::OutIn { [sizes[1], sizes[0]] } else { sizes };
            let blocks = any_blocks(kind, stored);
            for dtype in [DType::F32, DType::Bf16] {
                let [decoded, quantised] = [false, true]
                    .map(|is_quantised| all(linear(layout, sizes), &blocks, is_quantised, dtype, 5));
                assert!(decoded[0].iter().all(|bits| f32::from_bits(*bits).is_finite()), "{kind:?}");
                assert!(decoded == quantised, "{kind:?}, {layout:?}, {dtype:?}");
            }
        }
    }
}

#[test]
fn adapters_and_rows_of_several_kinds_have_the_bits_of_the_decoded_numbers() {
    if emulator::start().is_none() {
        return;
    }
    let kinds = [(Quantisation::Q4_K, 24), (Quantisation::Q6_K, 8), (Quantisation::Q8_0, 16)];
    let blocks = of_kinds(&kinds, 256);
    for dtype in [DType::F32, DType::Bf16] {
        let [decoded, quantised] = [false, true].map(|is_quantised| {
            let parts = [("first".to_owned(), 24), ("second".to_owned(), 24)];
            let mut layer = linear(Layout::OutIn, [256, 48]).with_parts(parts);
            let lora = Lora { rank: 8, alpha: 4.0, dropout: 0.0, seed: 1 };
            layer.adapt(&mut |part| (part == "second").then_some(lora)).unwrap();
            all(layer, &blocks, is_quantised, dtype, 7)
        });
        assert!(decoded == quantised, "{dtype:?}");
    }
}

/// A table of one kind, and of several.
#[test]
fn a_table_has_the_vectors_of_the_decoded_numbers() {
    if emulator::start().is_none() {
        return;
    }
    let ids = Tensor::from_ids(&[2, 5], vec![3, 0, 10, 3, 7, 9, 9, 1, 0, 2]).unwrap();
    let mut tables: Vec<_> = Quantisation::ALL.map(|kind| any_blocks(kind, [11, 256])).into();
    tables.push(of_kinds(&[(Quantisation::Q5_K, 6), (Quantisation::Q4_0, 5)], 256));
    for blocks in &tables {
        for dtype in [DType::F32, DType::Bf16] {
            for has_positions in [false, true] {
                let [decoded, quantised] = [false, true].map(|is_quantised| {
                    let mut layer = match has_positions {
                        true => Embedding::new("embed", 11, 8, 256, 1),
                        false => Embedding::of_tokens("embed", "wte.weight", 11, 256, Init::Zeros, 1),
                    };
                    give(layer.parameters().swap_remove(0), blocks.clone(), is_quantised);
                    layer.visit_parameters(&mut |parameter| parameter.move_to(gpu(dtype)).unwrap());
                    bits(&here(forward(&mut layer, &ids)))
                });
                assert!(decoded == quantised, "{blocks:?}, {dtype:?}, positions: {has_positions}");
            }
        }
    }
}

/// A model is moved to the GPU, and then weights are read.
#[test]
fn blocks_may_come_when_the_layer_is_on_the_gpu() {
    if emulator::start().is_none() {
        return;
    }
    let [first, second] = [Quantisation::Q8_0, Quantisation::Nf4].map(|kind| any_blocks(kind, [24, 256]));
    let mut layer = linear(Layout::OutIn, [256, 24]);
    give(layer.parameters().swap_remove(0), first, true);
    layer.visit_parameters(&mut |parameter| parameter.move_to(gpu(DType::Bf16)).unwrap());
    layer.parameters()[0].hold(second.clone()).unwrap();
    let input = tensor("x", &[3, 256]).to(gpu(DType::Bf16)).unwrap();
    let got = bits(&here(forward(&mut layer, &input)));
    let mut other = linear(Layout::OutIn, [256, 24]);
    give(other.parameters().swap_remove(0), second, true);
    other.visit_parameters(&mut |parameter| parameter.move_to(gpu(DType::Bf16)).unwrap());
    assert_eq!(got, bits(&here(forward(&mut other, &input))));
}

/// Names the process in which nothing else takes memory.
pub(crate) const ALONE: &str = "PIPEWRIGHT_TEST_ALONE";

#[test]
fn a_quantised_matrix_takes_the_bytes_of_its_blocks() {
    let name = "quantised::a_quantised_matrix_takes_the_bytes_of_its_blocks";
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
    let mut layer = linear(Layout::OutIn, [2048, 2048]);
    let blocks = any_blocks(Quantisation::Nf4, [2048, 2048]);
    let bytes = blocks.bytes() as u64;
    give(layer.parameters().swap_remove(0), blocks, true);
    tensor("first", &[1]).to(gpu(DType::Bf16)).unwrap();
    let before = free_memory(index).unwrap();
    layer.parameters()[0].move_to(gpu(DType::Bf16)).unwrap();
    let taken = before - free_memory(index).unwrap();
    assert!(taken >= bytes && taken < bytes + (1 << 20), "{taken} bytes for {bytes}");
}
