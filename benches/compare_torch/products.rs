//! The matrix products of a model, unit by unit. The floating-point operations are counted from them.

use pipewright::schedule::Pass;
use pipewright::stages::models::Gpt;

/// Products of one shape, `[m, k]` by `[k, n]`, in one pass of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Product {
    pub(crate) pass: Pass,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    /// Whether the left and the right operand are stored transposed.
    pub(crate) transposed: [bool; 2],
    /// The operations that the model needs, over all products of this shape. Causal attention needs only half
    /// of each product.
    pub(crate) flops: f64,
}

/// How a weight lies in memory: `[in, out]`, or `[out, in]` as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    InOut,
    OutIn,
}

/// A linear layer on this many rows. The first layer of a model computes no gradient of its input.
pub(crate) fn linear(
    rows: usize,
    [inputs, outputs]: [usize; 2],
    weight: Weight,
    is_first: bool,
) -> Vec<Product> {
    let flops = 2.0 * rows as f64 * inputs as f64 * outputs as f64;
    let product = |pass, [m, k, n]: [usize; 3], transposed| Product { pass, m, k, n, transposed, flops };
    let is_out_in = weight == Weight::OutIn;
    let forward = product(Pass::Forward, [rows, inputs, outputs], [false, is_out_in]);
    let input = product(Pass::BackwardInput, [rows, outputs, inputs], [false, !is_out_in]);
    let dims = if is_out_in { [outputs, rows, inputs] } else { [inputs, rows, outputs] };
    let weight = product(Pass::BackwardWeight, dims, [true, false]);
    if is_first { vec![forward, weight] } else { vec![forward, input, weight] }
}

/// Causal attention of `rows` sequences: each position attends to itself and the earlier ones.
fn attention(rows: usize, gpt: &Gpt) -> Vec<Product> {
    let (time, width) = (gpt.context, gpt.dim / gpt.heads);
    let pairs = (time * (time + 1) / 2) as f64;
    let flops = 2.0 * pairs * (rows * gpt.dim) as f64;
    let product = |pass, inner: bool, transposed| {
        let [k, n] = if inner { [width, time] } else { [time, width] };
        Product { pass, m: time, k, n, transposed, flops }
    };
    let (forward, backward) = (Pass::Forward, Pass::BackwardInput);
    vec![
        product(forward, true, [false, true]),    // scores = q k'
        product(forward, false, [false, false]),  // output = p v
        product(backward, false, [true, false]),  // dv = p' do
        product(backward, true, [false, true]),   // dp = do v'
        product(backward, false, [false, false]), // dq = ds k
        product(backward, false, [true, false]),  // dk = ds' q
    ]
}

/// The products of a unit of a GPT, for `rows` sequences.
pub(crate) fn of_gpt(gpt: &Gpt, unit: &str, rows: usize) -> Vec<Product> {
    let (dim, tokens) = (gpt.dim, rows * gpt.context);
    let linear = |sizes, weight| linear(tokens, sizes, weight, false);
    if unit.ends_with(".attn") {
        let projections = [linear([dim, 3 * dim], Weight::InOut), linear([dim, dim], Weight::InOut)];
        [projections.concat(), attention(rows, gpt)].concat()
    } else if unit.ends_with(".mlp") {
        [linear([dim, 4 * dim], Weight::InOut), linear([4 * dim, dim], Weight::InOut)].concat()
    } else if unit == "head" {
        linear([dim, gpt.vocab], Weight::OutIn)
    } else {
        Vec::new()
    }
}

/// The products of a unit of a perceptron of these widths, for `rows` rows.
pub(crate) fn of_mlp(sizes: &[usize], unit: &str, rows: usize) -> Vec<Product> {
    let index = unit.strip_prefix("fc").and_then(|index| index.parse::<usize>().ok());
    index
        .map_or(Vec::new(), |index| linear(rows, [sizes[index], sizes[index + 1]], Weight::OutIn, index == 0))
}
