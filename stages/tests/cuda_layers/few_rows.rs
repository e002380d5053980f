//! Text that quantised matrices write on a GPU: products of few rows, which decode in registers.

use common::blocks::{any_blocks, give, of_kinds};
use common::forward;
use pipewright_stages::devices::free_memory;
use pipewright_stages::layers::{Experts, Layout, Linear, Routing};
use pipewright_stages::{Device, Quantisation, Quantised};

use super::quantised::{ALONE, linear};
use super::*;

/// The most rows that are few.
const FEW: usize = 8;

/// A layer on the GPU with a bias and a matrix of these blocks.
fn layer_of(blocks: &Quantised, layout: Layout, dtype: DType) -> Linear {
    let sizes = match layout {
        Layout::OutIn => [blocks.columns(), blocks.rows()],
        Layout::InOut => [blocks.rows(), blocks.columns()],
    };
    let mut layer = linear(layout, sizes);
    give(layer.parameters().swap_remove(0), blocks.clone(), true);
    layer.visit_parameters(&mut |parameter| parameter.move_to(gpu(dtype)).unwrap());
    layer
}

/// The first `count` of the rows, on the GPU.
fn rows(count: usize, inputs: usize, dtype: DType) -> Tensor {
    let numbers = numbers("x", FEW * inputs)[..count * inputs].to_vec();
    Tensor::from_vec(&[1, count, inputs], numbers).unwrap().to(gpu(dtype)).unwrap()
}

/// The numbers after they were rounded to the format.
fn rounded(numbers: Vec<f32>, dtype: DType) -> Vec<f32> {
    here(Tensor::from_vec(&[numbers.len()], numbers).unwrap().to(gpu(dtype)).unwrap())
}

/// Compares the layer's outputs with the formula on the decoded numbers. The outputs of a row must not depend
/// on how many there are, nor on the call.
fn check(blocks: &Quantised, dtype: DType) {
    let what = format!("{blocks:?}, {dtype:?}");
    let (inputs, outputs) = (blocks.columns(), blocks.rows());
    let bias = linear(Layout::OutIn, [inputs, outputs]).parameters()[1].value.to_vec();
    let (weights, bias) = (blocks.to_f32(), rounded(bias, dtype));
    let mut layer = layer_of(blocks, Layout::OutIn, dtype);
    let mut write = |count| here(layer.forward_next(0, rows(count, inputs, dtype)).unwrap());
    let all = write(FEW);
    for count in 1..=FEW {
        let got = write(count);
        assert!(bits(&got) == bits(&all[..count * outputs]), "{what}: {count} rows");
    }
    let x = here(rows(FEW, inputs, dtype));
    for (index, got) in all.iter().enumerate() {
        let (row, output) = (index / outputs, index % outputs);
        let (left, right) = (&x[row * inputs..][..inputs], &weights[output * inputs..][..inputs]);
        let products = left.iter().zip(right).map(|(a, b)| f64::from(*a) * f64::from(*b));
        let terms = || products.clone().chain([f64::from(bias[output])]);
        let (sum, absolute) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
        let rounding = if dtype == DType::Bf16 { sum.abs() / 256.0 } else { 0.0 };
        let off = (f64::from(*got) - sum).abs();
        assert!(off <= 1e-5 * absolute + rounding, "{what}, row {row}, output {output}: {got}, not {sum}");
    }
}

/// Rows of one block, and of more than a warp reads at once, not all of its lanes the last time. Outputs that
/// fill no warp, and no block of threads.
#[test]
fn outputs_are_those_of_the_decoded_numbers_in_one_order() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        for kind in Quantisation::ALL {
            let block = kind.block().0;
            for [outputs, inputs] in [[1, block], [19, 300_usize.next_multiple_of(block)]] {
                check(&any_blocks(kind, [outputs, inputs]), dtype);
            }
        }
        let kinds = [(Quantisation::Q4_K, 23), (Quantisation::Q6_K, 1), (Quantisation::Q8_0, 40)];
        check(&of_kinds(&kinds, 768), dtype);
        check(&of_kinds(&[(Quantisation::Nf4, 2), (Quantisation::F16, 3)], 1088), dtype);
    }
}

#[test]
fn other_products_of_writing_have_the_bits_of_training() {
    if emulator::start().is_none() {
        return;
    }
    for (layout, count) in [(Layout::OutIn, FEW + 1), (Layout::InOut, 1), (Layout::InOut, FEW)] {
        for dtype in [DType::F32, DType::Bf16] {
            let mut layer = layer_of(&any_blocks(Quantisation::Q5_K, [256, 256]), layout, dtype);
            let x = tensor("x", &[1, count, 256]).to(gpu(dtype)).unwrap();
            let [written, trained] = [layer.forward_next(0, x.clone()).unwrap(), forward(&mut layer, &x)];
            assert!(bits(&here(written)) == bits(&here(trained)), "{layout:?}, {count} rows, {dtype:?}");
        }
    }
}

/// Experts get some of the rows: none, few, or more.
#[test]
fn experts_write_what_they_write_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let routing = Routing { experts: 4, chosen: 2, auxiliary: 0.0 };
    let mut layer = Experts::new("experts", [64, 128], routing, Init::Normal(0.5), 1).unwrap();
    let kinds = [Quantisation::Nf4, Quantisation::Q8_0, Quantisation::Q4_1];
    for (index, matrix) in layer.parameters().into_iter().skip(1).enumerate() {
        let blocks = any_blocks(kinds[index % 3], [matrix.dims()[0], matrix.dims()[1]]);
        give(matrix, blocks, true);
    }
    let counts = [1, 6, 30];
    let mut write = || counts.map(|count| here(layer.forward_next(0, tensor("x", &[1, count, 64])).unwrap()));
    let expected = write();
    for (dtype, within) in [(DType::F32, 1e-5), (DType::Bf16, 3e-2)] {
        layer.visit_parameters(&mut |parameter| parameter.move_to(gpu(dtype)).unwrap());
        let got = counts.map(|count| {
            let x = tensor("x", &[1, count, 64]).to(gpu(dtype)).unwrap();
            here(layer.forward_next(0, x).unwrap())
        });
        assert_near(&got, &expected, within, &format!("{dtype:?}"));
        layer.visit_parameters(&mut |parameter| parameter.move_to(Place::default()).unwrap());
    }
}

#[test]
fn no_decoded_copy_is_made() {
    let name = "few_rows::no_decoded_copy_is_made";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    if emulator::start().is_none() {
        return;
    }
    let Device::Cuda(index) = gpu(DType::Bf16).device else { unreachable!("a GPU") };
    let size = 2048;
    let mut layer = layer_of(&any_blocks(Quantisation::Nf4, [size, size]), Layout::OutIn, DType::Bf16);
    // The first product of cuBLASLt takes memory too.
    let [few, more] =
        [FEW, FEW + 1].map(|count| tensor("x", &[1, count, size]).to(gpu(DType::Bf16)).unwrap());
    let before = free_memory(index).unwrap();
    here(layer.forward_next(0, few).unwrap());
    let taken = before - free_memory(index).unwrap();
    assert!(taken < 1 << 20, "{taken} bytes");
    here(layer.forward_next(0, more).unwrap());
    let taken = before - free_memory(index).unwrap();
    assert!(taken as usize > 2 * size * size, "{taken} bytes with a decoded copy");
}
