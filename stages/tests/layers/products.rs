//! A linear layer packs its weights once, or for every product if the micro-batch has many rows. The bits are
//! the same.

use pipewright_stages::layers::{Layout, Linear};
use pipewright_stages::rng;

use super::*;

const SIZES: [usize; 2] = [70, 300];
const ROWS: usize = 600;
const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

fn draw(name: &str, count: usize) -> Vec<f32> {
    let mut numbers = vec![0.0; count];
    rng::fill_normal(rng::key(1, name), 1.0, &mut numbers);
    numbers
}

/// Outputs and input gradients when the rows pass in parts of this many.
fn pass(layout: Layout, rows: usize) -> Result<[Vec<f32>; 2]> {
    let [inputs, outputs] = SIZES;
    let init = Init::Normal(0.1);
    let mut layer = Linear::new("fc", SIZES, init, 1).with_layout(layout).with_bias(init);
    let (x, dy) = (draw("x", ROWS * inputs), draw("dy", ROWS * outputs));
    let mut all = [Vec::new(), Vec::new()];
    for (x, dy) in x.chunks(rows * inputs).zip(dy.chunks(rows * outputs)) {
        let (y, saved) = layer.forward(AT, Tensor::from_vec(&[rows, inputs], x.to_vec())?)?;
        let (dx, pending) = layer.backward_input(saved, Tensor::from_vec(&[rows, outputs], dy.to_vec())?)?;
        layer.backward_weight(pending)?;
        all[0].extend_from_slice(y.f32());
        all[1].extend_from_slice(dx.expect("a linear layer has an input gradient").f32());
    }
    Ok(all)
}

#[test]
fn rows_give_the_same_bits_however_many_pass_together() {
    for layout in [Layout::InOut, Layout::OutIn] {
        let all = pass(layout, ROWS).expect("the shapes fit");
        for rows in [1, 8, 300] {
            assert_eq!(pass(layout, rows).expect("the shapes fit"), all, "{layout:?}, {rows} rows");
        }
    }
}

#[test]
fn a_weight_that_has_changed_is_what_is_multiplied() {
    let mut layer = Linear::new("fc", [2, 2], Init::Ones, 1).with_layout(Layout::InOut);
    let x = || Tensor::from_vec(&[1, 2], vec![1.0, 2.0]).expect("two numbers");
    let pass = |layer: &mut Linear| {
        let (y, saved) = layer.forward(AT, x()).expect("the shapes fit");
        let (dx, _) = layer.backward_input(saved, x()).expect("the shapes fit");
        [y.f32().to_vec(), dx.expect("an input gradient").f32().to_vec()]
    };
    assert_eq!(pass(&mut layer), [[3.0, 3.0], [3.0, 3.0]]);
    layer.parameters()[0].value[0] = 0.0;
    assert_eq!(pass(&mut layer), [[2.0, 3.0], [2.0, 3.0]]);
}
