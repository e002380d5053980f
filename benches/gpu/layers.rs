//! The layers of a GPT, pass by pass.

use pipewright::plan;
use pipewright::stages::layers::{
    Attention, Block, Dropout, Embedding, Gelu, GeluForm, LayerNorm, Layout, Linear, Recomputed,
};
use pipewright::stages::{Init, Kind, Layer, Result, Sequential, Stage, Tensor, chain};

use crate::kernels::{Kernel, Make, Pass, Shapes, Work, ids, numbers, runs};
use crate::timer::{TRAIN, Timer};

/// All layers, not yet made.
pub(crate) fn kernels(shapes: Shapes) -> Vec<(&'static str, Make)> {
    let (dim, vocab) = (shapes.gpt.dim, shapes.gpt.vocab);
    let (tokens, head) = (shapes.tokens(), shapes.head_tokens());
    let in_out = Layout::InOut;
    vec![
        ("linear", Box::new(move || linear(shapes, tokens, in_out, [dim, 3 * dim]))),
        ("linear", Box::new(move || linear(shapes, tokens, in_out, [dim, dim]))),
        ("linear", Box::new(move || linear(shapes, tokens, in_out, [dim, 4 * dim]))),
        ("linear", Box::new(move || linear(shapes, tokens, in_out, [4 * dim, dim]))),
        ("linear", Box::new(move || linear(shapes, head, Layout::OutIn, [dim, vocab]))),
        ("attention", Box::new(move || attention(shapes))),
        (
            "layer norm",
            Box::new(move || each(shapes, Box::new(LayerNorm::new("layer norm", dim)), dim, [2, 3, 0])),
        ),
        ("residual", Box::new(move || residual(shapes, dim, false))),
        ("residual", Box::new(move || residual(shapes, dim, true))),
        (
            "gelu",
            Box::new(move || each(shapes, Box::new(Gelu::new("gelu", GeluForm::Tanh)), 4 * dim, [2, 3, 0])),
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
    passes: [Pass; 3],
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
    Ok(Kernel { name, passes: passes.into(), run: Box::new(run) })
}

/// The three passes of a layer with `numbers` numbers. `accesses`: how often each pass reads or writes each
/// of them.
pub(crate) fn moving(shapes: Shapes, numbers: usize, accesses: [usize; 3]) -> [Pass; 3] {
    let pass = |name, accesses| Pass::moving(name, shapes.bytes(numbers, accesses), 1);
    [pass("forward", accesses[0]), pass("I", accesses[1]), pass("W", accesses[2])]
}

/// A layer that reads or writes memory this often for each number, by pass.
fn each(shapes: Shapes, layer: Box<dyn Layer>, width: usize, accesses: [usize; 3]) -> Result<Kernel> {
    let dims = [shapes.tokens(), width];
    let name = format!("{}: {} x {width}", layer.name(), dims[0]);
    passes(shapes, name, layer, numbers(&dims)?, moving(shapes, dims[0] * dims[1], accesses))
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
    let sums = runs(plan::Work::Bytes(shapes.bytes(rows, outputs)), 2);
    let has_bias = layout == Layout::InOut;
    let pass = |pass, size, inner, bytes| {
        let product = plan::Work::Product { size, inner, bytes };
        let sums = (has_bias && pass == "W").then_some(sums);
        Pass {
            name: pass,
            work: Work::Flops(2.0 * (rows * inputs * outputs) as f64),
            runs: std::iter::once(runs(product, 1)).chain(sums).collect(),
        }
    };
    let bytes = shapes.place.dtype.bytes();
    let all = [
        pass("forward", [rows, outputs], inputs, bytes),
        pass("I", [rows, inputs], outputs, bytes),
        // Gradients of weights are f32.
        pass("W", [inputs, outputs], rows, 4),
    ];
    passes(shapes, name, Box::new(layer), numbers(&[rows, inputs])?, all)
}

/// A residual around a norm and two products. A block inside of it adds nothing while it computes, so there
/// the sums are kernels of their own: the difference is what that costs.
fn residual(shapes: Shapes, dim: usize, apart: bool) -> Result<Kernel> {
    let linear = || Linear::new("linear", [dim, dim], Init::Normal(0.02), 0).with_layout(Layout::InOut);
    let layers = chain![Recomputed::new(LayerNorm::new("norm", dim), linear()), linear()];
    let (layers, sums) = match apart {
        true => (chain![Block::chain("inner", layers)], "apart"),
        false => (layers, "inside"),
    };
    let rows = shapes.tokens();
    let pass = |name| Pass { name, work: Work::Flops(4.0 * (rows * dim * dim) as f64), runs: Vec::new() };
    let block = Box::new(Block::residual("block", layers));
    let name = format!("residual, sums {sums}: {rows} x {dim}");
    passes(shapes, name, block, numbers(&[rows, dim])?, ["forward", "I", "W"].map(pass))
}

/// A product of three square matrices, forward.
pub(crate) fn square(shapes: Shapes, side: usize) -> Result<Kernel> {
    linear(shapes, side, Layout::InOut, [side, side])
}

/// GELU of `count` numbers, forward.
pub(crate) fn gelu(shapes: Shapes, count: usize) -> Result<Kernel> {
    let layer = Gelu::new("gelu", GeluForm::Tanh);
    let input = numbers(&[1, count])?;
    let moving = moving(shapes, count, [2, 3, 0]);
    passes(shapes, "gelu".to_owned(), Box::new(layer), input, moving)
}

/// Causal attention. The masked half is not counted. Two products forward and five backward, and one of these
/// is a recomputation. Our backward does seven, and reads outputs and their gradients before.
fn attention(shapes: Shapes) -> Result<Kernel> {
    let (gpt, rows) = (shapes.gpt, shapes.rows);
    let product = (2 * rows * gpt.dim * gpt.context * (gpt.context + 1) / 2) as f64;
    let layer = Attention::new("attention", gpt.dim, gpt.heads)?;
    let name = format!("attention: {rows} x {}, {} heads of {}", gpt.context, gpt.heads, gpt.dim / gpt.heads);
    let input = numbers(&[rows, gpt.context, 3 * gpt.dim])?;
    let pass = |name, products: f64, runs| Pass { name, work: Work::Flops(products * product), runs };
    let attention = |products: f64, backward, launches| {
        let operations = products * product;
        runs(plan::Work::Attention { operations, backward }, launches)
    };
    let read = shapes.bytes(shapes.tokens() * gpt.dim, 2);
    let delta = runs(plan::Work::Bytes(read), 1);
    let all = [
        pass("forward", 2.0, vec![attention(2.0, false, 1)]),
        pass("I", 5.0, vec![delta, attention(7.0, true, 2)]),
        pass("W", 0.0, Vec::new()),
    ];
    passes(shapes, name, Box::new(layer), input, all)
}

/// Forward reads a row of each table and writes one row. W adds each row to a row of the token table's
/// gradient, which is f32, and sums over the batch into the position table's.
fn embedding(shapes: Shapes) -> Result<Kernel> {
    let (gpt, tokens) = (shapes.gpt, shapes.tokens());
    let layer = Embedding::new("embedding", gpt.vocab, gpt.context, gpt.dim, 0);
    let numbers = tokens * gpt.dim;
    let forward = shapes.bytes(numbers, 3);
    let backward = (numbers * (shapes.place.dtype.bytes() + 8)) as f64;
    let name = format!("embedding: {tokens} x {}", gpt.dim);
    let input = ids(&[shapes.rows, gpt.context], gpt.vocab)?;
    passes(
        shapes,
        name,
        Box::new(layer),
        input,
        [Pass::moving("forward", forward, 1), Pass::moving("I", 0.0, 0), Pass::moving("W", backward, 3)],
    )
}
