//! Layers that work on single numbers or on rows, at the shapes of size A.

use std::cell::RefCell;
use std::rc::Rc;

use pipewright_stages::layers::{
    Block, Dropout, Embedding, GateForm, Gated, Gelu, GeluForm, HeadNorm, Heads, LayerNorm, Relu, RmsNorm,
    Sigmoid,
};
use pipewright_stages::{ForwardContext, Init, Kept, Layer, Mode, Result, Shape, Tensor, chain};

use crate::bounds::Needs;
use crate::clock::{Clock, Run};
use crate::plain::Plain;
use crate::table::{Kernel, Work};
use crate::{FORMATS, ids, own, place, tensor};

const ROWS: usize = 512;
const DIM: usize = 256;

/// Bytes that are read, changed and written for each number: one tensor becomes another, once or twice, is
/// changed in place, or is changed with the help of another.
const COPIED: [f64; 3] = [4.0, 0.0, 4.0];
const TWICE: [f64; 3] = [8.0, 0.0, 8.0];
const CHANGED: [f64; 3] = [0.0, 4.0, 0.0];
const WITH: [f64; 3] = [4.0, 4.0, 0.0];

pub(crate) const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

/// Runs all three functions of a layer whose input is numbers.
pub(crate) fn layer_run(mut layer: Box<dyn Layer>, input: Tensor) -> Result<Run> {
    let grad = tensor(layer.output_shape(input.shape())?.dims())?.to(input.place())?;
    Ok(Box::new(move |clock: &mut Clock| {
        let (input, grad) = (own(&input), own(&grad));
        let (output, saved) = clock.time(|| layer.forward(AT, input))?;
        drop(output);
        let (_, pending) = clock.time(|| layer.backward_input(saved, grad))?;
        clock.time(|| layer.backward_weight(pending))
    }))
}

/// A layer that works on single numbers, in both number formats. `needs` says what forward and
/// backward-input must do for each number, in `f32`.
fn each<L: Layer>(
    layer: impl Fn() -> Result<L>,
    width: usize,
    [forward, backward]: [Needs; 2],
) -> Result<[Kernel; 2]> {
    let [whole, half]: [Result<Kernel>; 2] = FORMATS.map(|(dtype, format)| {
        let (layer, count) = (layer()?, ROWS * width);
        let name = format!("{}: {ROWS} x {width}{format}", layer.name());
        let work = |needs: Needs| Work::Each { what: "number", count, needs: needs.in_format(dtype) };
        let input = tensor(&[ROWS, width])?.to(place(dtype))?;
        let passes = vec![("forward", work(forward)), ("I", work(backward))];
        Ok(Kernel::new(name, passes, layer_run(Box::new(layer), input)?))
    });
    Ok([whole?, half?])
}

/// All these kernels.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    let normalise = [Needs::new(COPIED, 6.0, 0.0), Needs::new(WITH, 12.0, 0.0)];
    kernels.extend(each(|| Ok(LayerNorm::new("layer norm", DIM)), DIM, normalise)?);
    let divide = [Needs::new(COPIED, 3.0, 0.0), Needs::new(WITH, 7.0, 0.0)];
    kernels.extend(each(|| Ok(RmsNorm::new("rms norm", DIM, 1e-5)), DIM, divide)?);
    kernels.extend(head_norm()?);
    let tanh = || Ok(Gelu::new("gelu, tanh form", GeluForm::Tanh));
    // An exponential has 16 operations; one that can be zero has 17.
    let work = [Needs::new(COPIED, 22.0, 1.0), Needs::new(WITH, 29.0, 1.0)];
    kernels.extend(each(tanh, 4 * DIM, work)?);
    let exact = || Ok(Gelu::new("gelu, exact form", GeluForm::Exact));
    let work = [Needs::new(COPIED, 36.0, 1.0), Needs::new(WITH, 57.0, 1.0)];
    kernels.extend(each(exact, 4 * DIM, work)?);
    let work = [Needs::new(COPIED, 19.0, 1.0), Needs::new(WITH, 21.0, 1.0)];
    kernels.extend(each(|| Ok(Sigmoid::new("sigmoid")), 4 * DIM, work)?);
    kernels.extend(gated()?);
    let work = [Needs::new(CHANGED, 2.0, 0.0), Needs::new(WITH, 2.0, 0.0)];
    kernels.extend(each(|| Ok(Relu::new("relu")), 4 * DIM, work)?);
    // Ten rounds with 12 operations, of 64 bits in effect, make four random words.
    let work = Needs::new(CHANGED, 36.0, 0.0);
    kernels.extend(each(|| Dropout::new("dropout", 0.1, 0), DIM, [work; 2])?);
    kernels.extend([residual()?, embedding(true)?, embedding(false)?]);
    // Columns are taken out of rows and put side by side again.
    let columns = || Ok(Block::concat("columns", [chain![], chain![]]).of_columns(&[DIM / 4, DIM - DIM / 4]));
    kernels.extend(each(columns, DIM, [Needs::new(TWICE, 0.0, 0.0); 2])?);
    Ok(kernels)
}

/// Three quarters of the numbers are normalised, the others are copied.
fn head_norm() -> Result<[Kernel; 2]> {
    let heads = Heads { query: 8, key_value: 4, width: 64 };
    let work = [Needs::new(COPIED, 2.25, 0.0), Needs::new([3.0, 3.0, 0.0], 5.25, 0.0)];
    let width = 16 * heads.width;
    let kernels = each(|| Ok(HeadNorm::new("head norm", heads, 1e-5)), width, work)?;
    let [whole, half] = FORMATS.map(|(dtype, _)| {
        let plain = Plain { in_place: false, changed: 12 * heads.width };
        layer_run(Box::new(plain), tensor(&[ROWS, width])?.to(place(dtype))?)
    });
    let [of_whole, of_half] = kernels;
    Ok([of_whole.beside_plain(whole?), of_half.beside_plain(half?)])
}

/// Two numbers of the input make one of the output.
fn gated() -> Result<[Kernel; 2]> {
    let work = [Needs::new([4.0, 0.0, 2.0], 9.5, 0.5), Needs::new([2.0, 4.0, 0.0], 11.5, 0.5)];
    each(|| Ok(Gated::new("gated, silu", GateForm::Silu)), 8 * DIM, work)
}

/// A layer that returns prepared tensors, at no cost.
#[derive(Debug)]
struct Ready(Rc<RefCell<Vec<Tensor>>>);

impl Ready {
    fn next(&self) -> Tensor {
        self.0.borrow_mut().pop().expect("laid ready for every pass")
    }
}

impl Layer for Ready {
    fn name(&self) -> &str {
        "ready"
    }

    fn output_shape(&self, input: &Shape) -> Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, ctx: ForwardContext, _input: Tensor) -> Result<(Tensor, Kept)> {
        Ok((self.next(), Kept::new(ctx, [])))
    }

    fn backward_input(&mut self, saved: Kept, _grad: Tensor) -> Result<(Option<Tensor>, Kept)> {
        Ok((Some(self.next()), Kept::new(saved.ctx, [])))
    }
}

/// The two additions of a residual connection.
fn residual() -> Result<Kernel> {
    let numbers = tensor(&[ROWS, DIM])?;
    let ready = Rc::new(RefCell::new(Vec::new()));
    let mut layer = Block::residual("residual", vec![Box::new(Ready(Rc::clone(&ready)))]);
    let run = move |clock: &mut Clock| {
        *ready.borrow_mut() = vec![own(&numbers), own(&numbers)];
        let (input, grad) = (own(&numbers), own(&numbers));
        let (_, saved) = clock.time(|| layer.forward(AT, input))?;
        clock.time(|| layer.backward_input(saved, grad))?;
        Ok(())
    };
    let work = Work::Each { what: "number", count: ROWS * DIM, needs: Needs::new(WITH, 1.0, 0.0) };
    let name = format!("residual: {ROWS} x {DIM}");
    Ok(Kernel::new(name, vec![("forward", work), ("I", work)], Box::new(run)))
}

fn embedding(has_positions: bool) -> Result<Kernel> {
    let (context, vocab) = (128, 256);
    let input = ids(&[ROWS / context, context], vocab)?;
    let grad = tensor(&[ROWS / context, context, DIM])?;
    let mut layer = if has_positions {
        Embedding::new("embedding", vocab, context, DIM, 0)
    } else {
        Embedding::of_tokens("embedding of tokens", "table", vocab, DIM, Init::Normal(1.0), 0)
    };
    let name = format!("{}: {ROWS} x {DIM}", layer.name());
    let run = move |clock: &mut Clock| {
        let input = input.clone();
        let (_, saved) = clock.time(|| layer.forward(AT, input))?;
        let (_, pending) = layer.backward_input(saved, grad.clone())?;
        clock.time(|| layer.backward_weight(pending))
    };
    // Each number of the tables once, although tokens come again.
    let positions = if has_positions { context } else { 0 };
    let tables = 4.0 * (positions + vocab) as f64 / ROWS as f64;
    let additions = if has_positions { 2.0 } else { 1.0 };
    let work = |bytes, operations| Work::Each {
        what: "number",
        count: ROWS * DIM,
        needs: Needs::new(bytes, operations, 0.0),
    };
    let passes = vec![
        ("forward", work([tables, 0.0, 4.0], additions - 1.0)),
        ("W", work([4.0, tables, 0.0], additions)),
    ];
    Ok(Kernel::new(name, passes, Box::new(run)))
}
