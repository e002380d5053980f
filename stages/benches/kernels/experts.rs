//! Mixtures of experts, and beside each the same products as a dense layer: as many rows, which share the
//! weights of one expert.

use pipewright_stages::layers::{Block, Experts, GateForm, Gated, Linear, Routing};
use pipewright_stages::{DType, Init, Layer, Result};

use crate::layers::layer_run;
use crate::table::{Kernel, Work};
use crate::{FORMATS, place, tensor};

const DIM: usize = 512;
const FFN: usize = 1024;
const ROUTING: Routing = Routing { experts: 8, chosen: 2, auxiliary: 0.01 };
const START: Init = Init::Normal(0.02);

/// How many tokens there are. Each expert has a quarter as many rows on average.
const TOKENS: [usize; 3] = [64, 256, 1024];

/// Experts and dense layers for each number of tokens, in both number formats.
pub(crate) fn kernels() -> Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    for tokens in TOKENS {
        for format in FORMATS {
            kernels.push(experts(tokens, format)?);
            kernels.push(dense(tokens * ROUTING.chosen, format)?);
        }
    }
    Ok(kernels)
}

/// The passes of a layer. The product of each pass takes `flops` operations. Only products count.
fn passes(flops: usize, dtype: DType) -> Vec<(&'static str, Work)> {
    let work = Work::Flops { flops: flops as f64, dtype: Some(dtype) };
    vec![("forward", work), ("I", work), ("W", work)]
}

/// The operations of three matrices, for `rows` rows.
fn of_rows(rows: usize) -> usize {
    2 * rows * 3 * DIM * FFN
}

fn experts(tokens: usize, (dtype, format): (DType, &str)) -> Result<Kernel> {
    let Routing { experts, chosen, .. } = ROUTING;
    let layer = Experts::new("experts", [DIM, FFN], ROUTING, START, 0)?;
    let router = 2 * tokens * DIM * experts;
    Ok(Kernel::new(
        format!("experts: {tokens} tokens, {chosen} of {experts}{format}"),
        passes(of_rows(chosen * tokens) + router, dtype),
        layer_run(Box::new(layer), tensor(&[tokens, DIM])?.to(place(dtype))?)?,
    ))
}

fn dense(rows: usize, (dtype, format): (DType, &str)) -> Result<Kernel> {
    let linear = |name, sizes| Linear::new(name, sizes, START, 0).without_bias();
    let layers: Vec<Box<dyn Layer>> = vec![
        Box::new(linear("gate_up", [DIM, 2 * FFN])),
        Box::new(Gated::new("gated", GateForm::Silu)),
        Box::new(linear("down", [FFN, DIM])),
    ];
    Ok(Kernel::new(
        format!("as one expert: {rows} rows{format}"),
        passes(of_rows(rows), dtype),
        layer_run(Box::new(Block::residual("dense", layers)), tensor(&[rows, DIM])?.to(place(dtype))?)?,
    ))
}
