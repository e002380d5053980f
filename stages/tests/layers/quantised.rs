//! Quantised matrices: what their blocks mean, and products that have the bits of the same numbers in `f32`.

use pipewright_stages::layers::{Embedding, Layout, Linear};
use pipewright_stages::{
    DType, Device, Division, Place, Quantisation, Quantised, Shard, Sharding, Training, rng, threads,
};
use safetensors::SafeTensors;

use super::common::blocks::{any_blocks, give, of_kinds};
use super::*;

const GOLDEN: &[u8] = include_bytes!("../../../tests/golden/quantised.safetensors");

/// The name of a kind in the golden file.
fn name(kind: Quantisation) -> String {
    format!("{kind:?}").to_uppercase()
}

fn numbers(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let tensor = file.tensor(name).expect("it is in the file");
    tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

#[test]
fn blocks_mean_what_they_mean_in_ggml() {
    let file = SafeTensors::deserialize(GOLDEN).expect("it is whole");
    for kind in Quantisation::ALL.into_iter().filter(|&kind| kind != Quantisation::Nf4) {
        let expected = numbers(&file, &format!("{}.numbers", name(kind)));
        let blocks = file.tensor(&format!("{}.blocks", name(kind))).expect("it is in the file");
        let columns = expected.len() / 3;
        let mut matrix = Quantised::new(columns);
        matrix.push(kind, blocks.data().to_vec().into());
        assert_eq!((matrix.rows(), matrix.bytes()), (3, blocks.data().len()), "{kind:?}");
        assert_eq!(matrix.to_f32(), expected, "{kind:?}");
        // Any part of a row is the same.
        for (start, end) in [(0, 1), (5, 37), (32, 64), (31, columns), (columns - 1, columns)] {
            let mut part = vec![0.0; end - start];
            matrix.decode(2, start..end, &mut part);
            assert_eq!(part, expected[2 * columns..][start..end], "{kind:?}, {start} to {end}");
        }
    }
}

#[test]
fn numbers_are_rounded_as_ggml_and_bitsandbytes_round() {
    let file = SafeTensors::deserialize(GOLDEN).expect("it is whole");
    let from = numbers(&file, "rounded");
    let q8 = Quantised::of(Quantisation::Q8_0, 192, &from).expect("finite");
    let [(kind, bytes)] = q8.chunks().collect::<Vec<_>>()[..] else { panic!("one part") };
    assert_eq!((kind, bytes), (Quantisation::Q8_0, file.tensor("Q8_0.rounded").expect("there").data()));
    let nf4 = Quantised::of(Quantisation::Nf4, 192, &from).expect("finite");
    assert_eq!(nf4.bytes(), from.len() / 64 * 36);
    assert_eq!(nf4.to_f32(), numbers(&file, "NF4.rounded"));
}

/// Gives the first parameter of a layer these blocks, or their numbers.
fn given(layer: &mut Linear, blocks: Quantised, is_quantised: bool) {
    give(layer.parameters().swap_remove(0), blocks, is_quantised);
}

fn rows(count: usize, width: usize, dtype: DType) -> Tensor {
    let mut numbers = vec![0.0; count * width];
    rng::fill_normal([5, 7], 1.0, &mut numbers);
    let rows = Tensor::from_vec(&[1, count, width], numbers).expect("it fits");
    rows.to(Place { device: Device::Cpu, dtype }).expect("it is here")
}

const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

/// The bits of outputs, input gradients, and the outputs when text is written.
fn all(layer: &mut Linear, [inputs, outputs]: [usize; 2], count: usize, dtype: DType) -> Vec<Vec<f32>> {
    let x = rows(count, inputs, dtype);
    let (y, saved) = layer.forward(AT, x.clone()).expect("it computes");
    let (dx, _) = layer.backward_input(saved, rows(count, outputs, dtype)).expect("it computes");
    let next = layer.forward_next(0, x).expect("it computes");
    let wide = |tensor: Tensor| {
        let tensor = tensor.to(Place::default()).expect("it is here");
        tensor.f32().to_vec()
    };
    vec![wide(y), wide(dx.expect("a gradient")), wide(next)]
}

fn linear(sizes: [usize; 2], layout: Layout) -> Linear {
    Linear::new("fc", sizes, Init::Zeros, 3).with_layout(layout).with_bias(Init::Normal(0.1))
}

#[test]
fn products_have_the_bits_of_the_decoded_numbers() {
    for count in [1, 2] {
        let _threads = threads::start(count, |_| {}).expect("threads");
        for kind in Quantisation::ALL {
            for (layout, sizes) in
                [(Layout::OutIn, [256, 100]), (Layout::OutIn, [768, 37]), (Layout::InOut, [90, 2048])]
            {
                let stored = if layout == Layout::OutIn { [sizes[1], sizes[0]] } else { sizes };
                for (rows, dtype) in
                    [(1, DType::F32), (3, DType::F32), (150, DType::F32), (1, DType::Bf16), (40, DType::Bf16)]
                {
                    let [decoded, quantised] = [false, true].map(|is_quantised| {
                        let mut layer = linear(sizes, layout);
                        given(&mut layer, any_blocks(kind, stored), is_quantised);
                        all(&mut layer, sizes, rows, dtype)
                    });
                    let what = format!("{kind:?}, {layout:?} {sizes:?}, {rows} rows of {dtype:?}");
                    assert!(decoded.iter().flatten().all(|number| number.is_finite()), "{what}");
                    assert_eq!(decoded, quantised, "{what}");
                }
            }
        }
    }
}

#[test]
fn products_in_groups_have_the_bits_of_the_decoded_numbers() {
    let sizes = [768, 512];
    for groups in [2, 4] {
        let sharding = Sharding::new(groups, Shard::WHOLE).expect("a power of two");
        for is_by_outputs in [false, true] {
            let width = if is_by_outputs { sizes[1] } else { sizes[0] };
            let division = Division::new(sharding, width, &[1]).expect("it divides");
            for (rows, dtype) in [(3, DType::F32), (150, DType::F32), (40, DType::Bf16)] {
                let [decoded, quantised] = [false, true].map(|is_quantised| {
                    let layer = linear(sizes, Layout::OutIn);
                    let mut layer = match is_by_outputs {
                        true => layer.with_divided_outputs(&division),
                        false => layer.with_divided_inputs(&division),
                    };
                    given(&mut layer, any_blocks(Quantisation::Q4_K, [512, 768]), is_quantised);
                    all(&mut layer, sizes, rows, dtype)
                });
                assert_eq!(decoded, quantised, "{groups} groups, {is_by_outputs}, {rows} rows of {dtype:?}");
            }
        }
    }
}

/// GPT-2's table of tokens is added to one of positions.
#[test]
fn a_table_has_the_vectors_of_the_decoded_numbers() {
    let blocks = any_blocks(Quantisation::Q4_K, [11, 256]);
    let ids = Tensor::from_ids(&[1, 5], vec![3, 0, 10, 3, 7]).expect("it fits");
    for has_positions in [false, true] {
        let vectors = [false, true].map(|is_quantised| {
            let mut layer = match has_positions {
                true => Embedding::new("embed", 11, 8, 256, 1),
                false => Embedding::of_tokens("embed", "wte.weight", 11, 256, Init::Zeros, 1),
            };
            give(layer.parameters().swap_remove(0), blocks.clone(), is_quantised);
            layer.forward(AT, ids.clone()).expect("it computes").0.f32().to_vec()
        });
        assert_eq!(vectors[0], vectors[1], "{has_positions}");
        assert!(vectors[0].iter().any(|number| *number != 0.0));
    }
}

/// A matrix of rows of several kinds, as a model of llama.cpp has queries, keys and values.
#[test]
fn rows_of_several_kinds_are_one_matrix() {
    let blocks =
        of_kinds(&[(Quantisation::Q4_K, 70), (Quantisation::Q6_K, 35), (Quantisation::Q8_0, 40)], 512);
    assert_eq!(blocks.rows(), 145);
    for rows in [1, 9] {
        let [decoded, quantised] = [false, true].map(|is_quantised| {
            let mut layer = linear([512, 145], Layout::OutIn);
            given(&mut layer, blocks.clone(), is_quantised);
            all(&mut layer, [512, 145], rows, DType::F32)
        });
        assert_eq!(decoded, quantised, "{rows} rows");
    }
}

#[test]
fn what_cannot_be_quantised_is_refused_by_name() {
    let mut layer = linear([70, 64], Layout::OutIn);
    let mut parameters = layer.parameters();
    let refused = |parameter: &mut Parameter, kind| {
        parameter.quantise(kind).expect_err("it cannot be quantised").to_string()
    };
    let frozen = Training { frozen: true, ..Training::default() };
    assert_eq!(
        refused(parameters[0], Quantisation::Q8_0),
        "fc.weight: only frozen matrices of linear layers and of embeddings can be quantised"
    );
    parameters[0].train_by(frozen);
    parameters[1].train_by(frozen);
    assert_eq!(
        refused(parameters[1], Quantisation::Q8_0),
        "fc.bias: only frozen matrices of linear layers and of embeddings can be quantised"
    );
    assert_eq!(
        refused(parameters[0], Quantisation::Nf4),
        "fc.weight: its rows of 70 numbers are no whole blocks of 64 (Nf4)"
    );
    let mut layer = linear([256, 8], Layout::OutIn);
    let mut parameters = layer.parameters();
    parameters[0].train_by(frozen);
    parameters[0].value[3] = f32::NAN;
    assert_eq!(
        refused(parameters[0], Quantisation::Nf4),
        "fc.weight: number 3 is NaN, which no block can stand for"
    );
    let made = Quantised::of(Quantisation::Q4_K, 256, &[0.0; 256]).map(drop);
    assert_eq!(made.expect_err("only read").to_string(), "blocks of Q4_K are only read, not made");
    parameters[0].value[3] = 0.5;
    parameters[0].quantise(Quantisation::Nf4).expect("whole blocks");
    assert_eq!(parameters[0].blocks().map(Quantised::bytes), Some(8 * 4 * 36));
}
