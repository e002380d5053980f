//! Layers that work on single numbers or on rows, at the shapes of size A.

use std::cell::RefCell;
use std::rc::Rc;

use pipewright_stages::layers::{Dropout, Embedding, Gelu, GeluForm, LayerNorm, Relu, Residual};
use pipewright_stages::{ForwardContext, Kept, Layer, Mode, Result, Shape, Tensor};

use crate::clock::{Clock, Run};
use crate::table::{Kernel, Work};
use crate::{FORMATS, ids, own, place, tensor};

const ROWS: usize = 512;
const DIM: usize = 256;

const AT: ForwardContext = ForwardContext {
    step: 0,
    micro_batch: 0,
    mode: Mode::Train,
};

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

/// A layer that works on single numbers, in both number formats. `forward` and `backward` say how often it
/// reads or writes memory per number.
fn each<L: Layer>(
    layer: impl Fn() -> Result<L>,
    width: usize,
    [forward, backward]: [usize; 2],
) -> Result<[Kernel; 2]> {
    let [whole, half]: [Result<Kernel>; 2] = FORMATS.map(|(dtype, format)| {
        let (layer, count) = (layer()?, ROWS * width);
        let name = format!("{}: {ROWS} x {width}{format}", layer.name());
        let work = |accesses| Work::Each {
            what: "number",
            count,
            bytes: dtype.bytes() * accesses * count,
        };
        let input = tensor(&[ROWS, width])?.to(place(dtype))?;
        let passes = vec![("forward", work(forward)), ("I", work(backward))];
        Ok(Kernel::new(name, passes, layer_run(Box::new(layer), input)?))
    });
    Ok([whole?, half?])
}

/// All these kernels.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    kernels.extend(each(|| Ok(LayerNorm::new("layer norm", DIM)), DIM, [2, 3])?);
    let tanh = || Ok(Gelu::new("gelu, tanh form", GeluForm::Tanh));
    kernels.extend(each(tanh, 4 * DIM, [2, 3])?);
    let exact = || Ok(Gelu::new("gelu, exact form", GeluForm::Exact));
    kernels.extend(each(exact, 4 * DIM, [2, 3])?);
    kernels.extend(each(|| Ok(Relu::new("relu")), 4 * DIM, [2, 3])?);
    kernels.extend(each(|| Dropout::new("dropout", 0.1, 0), DIM, [2, 2])?);
    kernels.extend([residual()?, embedding()?]);
    Ok(kernels)
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
    let mut layer = Residual::new("residual", vec![Box::new(Ready(Rc::clone(&ready)))]);
    let run = move |clock: &mut Clock| {
        *ready.borrow_mut() = vec![own(&numbers), own(&numbers)];
        let (input, grad) = (own(&numbers), own(&numbers));
        let (_, saved) = clock.time(|| layer.forward(AT, input))?;
        clock.time(|| layer.backward_input(saved, grad))?;
        Ok(())
    };
    let work = Work::each("number", ROWS * DIM, 3);
    let name = format!("residual: {ROWS} x {DIM}");
    Ok(Kernel::new(
        name,
        vec![("forward", work), ("I", work)],
        Box::new(run),
    ))
}

fn embedding() -> Result<Kernel> {
    let (context, vocab) = (128, 256);
    let input = ids(&[ROWS / context, context], vocab)?;
    let grad = tensor(&[ROWS / context, context, DIM])?;
    let mut layer = Embedding::new("embedding", vocab, context, DIM, 0);
    let run = move |clock: &mut Clock| {
        let input = input.clone();
        let (_, saved) = clock.time(|| layer.forward(AT, input))?;
        let (_, pending) = layer.backward_input(saved, grad.clone())?;
        clock.time(|| layer.backward_weight(pending))
    };
    let count = ROWS * DIM;
    let passes = vec![
        ("forward", Work::each("number", count, 3)),
        ("W", Work::each("number", count, 5)),
    ];
    let name = format!("embedding: {ROWS} x {DIM}");
    Ok(Kernel::new(name, passes, Box::new(run)))
}
