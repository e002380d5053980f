//! The layers of a GPT, pass by pass.

use pipewright::stages::layers::{
    Attention, Block, Dropout, Embedding, Gelu, GeluForm, LayerNorm, Layout, Linear, Recomputed,
};
use pipewright::stages::{Init, Kind, Layer, Result, Sequential, Stage, Tensor, chain};

use crate::kernels::{Kernel, Make, Shapes, Work, ids, numbers};
use crate::timer::{TRAIN, Timer};

/// All layers, not yet made.
pub(crate) fn kernels(shapes: Shapes) -> Vec<(&'static str, Make)> {
    let (dim, vocab) = (shapes.gpt.dim, shapes.gpt.vocab);
    let (tokens, head) = (shapes.tokens(), shapes.head_tokens());
    let in_out = Layout::InOut;
    vec![
        (
            "linear",
            Box::new(move || linear(shapes, tokens, in_out, [dim, 3 * dim])),
        ),
        (
            "linear",
            Box::new(move || linear(shapes, tokens, in_out, [dim, dim])),
        ),
        (
            "linear",
            Box::new(move || linear(shapes, tokens, in_out, [dim, 4 * dim])),
        ),
        (
            "linear",
            Box::new(move || linear(shapes, tokens, in_out, [4 * dim, dim])),
        ),
        (
            "linear",
            Box::new(move || linear(shapes, head, Layout::OutIn, [dim, vocab])),
        ),
        ("attention", Box::new(move || attention(shapes))),
        (
            "layer norm",
            Box::new(move || {
                each(
                    shapes,
                    Box::new(LayerNorm::new("layer norm", dim)),
                    dim,
                    [2, 3, 0],
                )
            }),
        ),
        ("residual", Box::new(move || residual(shapes, dim, false))),
        ("residual", Box::new(move || residual(shapes, dim, true))),
        (
            "gelu",
            Box::new(move || {
                each(
                    shapes,
                    Box::new(Gelu::new("gelu", GeluForm::Tanh)),
                    4 * dim,
                    [2, 3, 0],
                )
            }),
        ),
        (
            "dropout",
            Box::new(move || each(shapes, Box::new(Dropout::new("dropout", 0.1, 0)?), dim, [2, 2, 0])),
        ),
        ("embedding", Box::new(move || embedding(shapes))),
    ]
}

/// The three passes of a layer. Passes without work of their own are not shown: LayerNorm's W, for example,
/// whose sums I makes. The output serves as its own gradient.
pub(crate) fn passes(
    shapes: Shapes,
    name: String,
    layer: Box<dyn Layer>,
    input: Tensor,
    work: [Work; 3],
) -> Result<Kernel> {
    let mut stage = Sequential::new(vec![layer]);
    stage.move_to(shapes.place)?;
    let input = stage.load(input)?;
    let run = move |timer: &mut Timer| {
        // As in a step, where a layer may change its input.
        let own = match input.shape().kind() {
            Kind::F32 => timer.fresh(&input)?,
            Kind::Ids => input.clone(),
        };
        let (output, saved) = timer.time(|| stage.forward(TRAIN, own))?;
        let (input_grad, pending) = timer.time(|| stage.backward_input(saved, output))?;
        drop(input_grad);
        timer.time(|| stage.backward_weight(pending))
    };
    Ok(Kernel {
        name,
        passes: ["forward", "I", "W"].into_iter().zip(work).collect(),
        run: Box::new(run),
    })
}

/// A layer that reads or writes memory this often for each number, by pass.
fn each(shapes: Shapes, layer: Box<dyn Layer>, width: usize, accesses: [usize; 3]) -> Result<Kernel> {
    let dims = [shapes.tokens(), width];
    let work = accesses.map(|accesses| shapes.bytes(dims[0] * dims[1], accesses));
    let name = format!("{}: {} x {width}", layer.name(), dims[0]);
    passes(shapes, name, layer, numbers(&dims)?, work)
}

fn linear(shapes: Shapes, rows: usize, layout: Layout, sizes: [usize; 2]) -> Result<Kernel> {
    let [inputs, outputs] = sizes;
    let init = Init::Normal(0.02);
    let layer = Linear::new("linear", sizes, init, 0).with_layout(layout);
    // The head has no bias.
    let (layer, turned) = match layout {
        Layout::InOut => (layer, ""),
        Layout::OutIn => (layer.without_bias(), " turned"),
    };
    let name = format!("linear: {rows} x {inputs} x {outputs}{turned}");
    let flops = Work::Flops(2.0 * (rows * inputs * outputs) as f64);
    passes(
        shapes,
        name,
        Box::new(layer),
        numbers(&[rows, inputs])?,
        [flops; 3],
    )
}

/// A residual around a norm and two products. A block inside of it adds nothing while it computes, so there the
/// sums are kernels of their own: the difference is what that costs.
fn residual(shapes: Shapes, dim: usize, apart: bool) -> Result<Kernel> {
    let linear = || Linear::new("linear", [dim, dim], Init::Normal(0.02), 0).with_layout(Layout::InOut);
    let layers = chain![Recomputed::new(LayerNorm::new("norm", dim), linear()), linear()];
    let (layers, sums) = match apart {
        true => (chain![Block::chain("inner", layers)], "apart"),
        false => (layers, "inside"),
    };
    let rows = shapes.tokens();
    let flops = Work::Flops(4.0 * (rows * dim * dim) as f64);
    let block = Box::new(Block::residual("block", layers));
    let name = format!("residual, sums {sums}: {rows} x {dim}");
    passes(shapes, name, block, numbers(&[rows, dim])?, [flops; 3])
}

/// A product of three square matrices, forward.
pub(crate) fn square(shapes: Shapes, side: usize) -> Result<Kernel> {
    linear(shapes, side, Layout::InOut, [side, side])
}

/// GELU of so many numbers, forward.
pub(crate) fn gelu(shapes: Shapes, count: usize) -> Result<Kernel> {
    let layer = Gelu::new("gelu", GeluForm::Tanh);
    let input = numbers(&[1, count])?;
    let bytes = shapes.bytes(count, 2);
    passes(shapes, "gelu".to_owned(), Box::new(layer), input, [bytes; 3])
}

/// Causal attention. The masked half is not counted. Two products forward and five backward, one of which is
/// a recomputation.
fn attention(shapes: Shapes) -> Result<Kernel> {
    let (gpt, rows) = (shapes.gpt, shapes.rows);
    let product = (2 * rows * gpt.dim * gpt.context * (gpt.context + 1) / 2) as f64;
    let layer = Attention::new("attention", gpt.dim, gpt.heads)?;
    let name = format!(
        "attention: {rows} x {}, {} heads of {}",
        gpt.context,
        gpt.heads,
        gpt.dim / gpt.heads
    );
    let input = numbers(&[rows, gpt.context, 3 * gpt.dim])?;
    let work = [2.0, 5.0, 0.0].map(|products| Work::Flops(products * product));
    passes(shapes, name, Box::new(layer), input, work)
}

/// Forward reads a row of each table and writes one row. W adds each row to a row of the token table's
/// gradient, which is f32, and sums over the batch into the position table's.
fn embedding(shapes: Shapes) -> Result<Kernel> {
    let (gpt, tokens) = (shapes.gpt, shapes.tokens());
    let layer = Embedding::new("embedding", gpt.vocab, gpt.context, gpt.dim, 0);
    let numbers = tokens * gpt.dim;
    let forward = shapes.bytes(numbers, 3);
    let backward = Work::Bytes((numbers * (shapes.place.dtype.bytes() + 8)) as f64);
    let name = format!("embedding: {tokens} x {}", gpt.dim);
    let input = ids(&[shapes.rows, gpt.context], gpt.vocab)?;
    passes(
        shapes,
        name,
        Box::new(layer),
        input,
        [forward, Work::Bytes(0.0), backward],
    )
}
