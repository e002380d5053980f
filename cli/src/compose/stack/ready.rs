//! The ready layers that a config can name, and their settings.

use pipewright::stages::layers::{
    Attention, BatchNorm, Block, Conv1d, Conv2d, Dropout, Embedding, Flatten, Gelu, GeluForm, GlobalAverage,
    GroupNorm, LayerNorm, Linear, MaxPool, Relu, Reshape, RmsNorm, Sigmoid, Softmax, Tanh,
};
use pipewright::stages::{Init, Layer};
use serde::Deserialize;
use toml::Table;

use super::kinds::{Failure, LayerPlace, Make, made_from, make};

/// What norms add to variances.
const EPSILON: f32 = 1e-5;

/// No settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinearSizes {
    inputs: usize,
    outputs: usize,
    #[serde(default = "yes")]
    bias: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConvSizes {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    #[serde(default = "one")]
    stride: usize,
    #[serde(default)]
    padding: usize,
    #[serde(default = "yes")]
    bias: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Width {
    width: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Channels {
    channels: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    groups: usize,
    channels: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kernel {
    kernel: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    rate: f32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Dims {
    dims: Vec<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vocabulary {
    vocab: usize,
    context: usize,
    dim: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Heads {
    dim: usize,
    heads: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inside {
    layers: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Branches {
    branches: Vec<Vec<Table>>,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

/// Weights start uniform within `1 / sqrt(inputs)`, as in PyTorch.
fn init(inputs: usize) -> Init {
    Init::Uniform(1.0 / (inputs.max(1) as f32).sqrt())
}

fn linear(place: &LayerPlace, sizes: LinearSizes) -> Linear {
    let init = init(sizes.inputs);
    let linear = Linear::new(&place.name, [sizes.inputs, sizes.outputs], init, place.seed);
    match sizes.bias {
        true => linear.with_bias(init),
        false => linear.without_bias(),
    }
}

fn conv1d(place: &LayerPlace, sizes: ConvSizes) -> Conv1d {
    let init = init(sizes.inputs * sizes.kernel);
    let channels = [sizes.inputs, sizes.outputs];
    let conv = Conv1d::new(&place.name, channels, sizes.kernel, init, place.seed);
    let conv = conv.with_stride(sizes.stride).with_padding(sizes.padding);
    match sizes.bias {
        true => conv.with_bias(init),
        false => conv.without_bias(),
    }
}

fn conv2d(place: &LayerPlace, sizes: ConvSizes) -> Conv2d {
    let init = init(sizes.inputs * sizes.kernel * sizes.kernel);
    let channels = [sizes.inputs, sizes.outputs];
    let conv = Conv2d::new(&place.name, channels, sizes.kernel, init, place.seed);
    let conv = conv.with_stride(sizes.stride).with_padding(sizes.padding);
    match sizes.bias {
        true => conv.with_bias(init),
        false => conv.without_bias(),
    }
}

/// The layers inside of a layer. Their names begin with its name.
fn inside(place: &LayerPlace, prefix: &str, entries: &[Table]) -> Result<Vec<Box<dyn Layer>>, Failure> {
    let layer = |(index, entry)| {
        let name = format!("{}.{prefix}{index}", place.name);
        make(&LayerPlace { name, seed: place.seed }, entry)
    };
    entries.iter().enumerate().map(layer).collect()
}

fn branches(place: &LayerPlace, given: &Branches) -> Result<Vec<Vec<Box<dyn Layer>>>, Failure> {
    let branch = |(index, entries): (usize, &Vec<Table>)| inside(place, &format!("{index}."), entries);
    given.branches.iter().enumerate().map(branch).collect()
}

/// All ready layers, by their names in a config.
pub(super) fn all() -> Vec<(String, Make)> {
    let all = [
        ("attention", made_from(|at, s: Heads| Ok(Attention::new(&at.name, s.dim, s.heads)?))),
        ("batch_norm", made_from(|at, s: Channels| Ok(BatchNorm::new(&at.name, s.channels, EPSILON)))),
        ("concat", made_from(|at, s: Branches| Ok(Block::concat(&at.name, branches(at, &s)?)))),
        ("conv1d", made_from(|at, s| Ok(conv1d(at, s)))),
        ("conv2d", made_from(|at, s| Ok(conv2d(at, s)))),
        ("dropout", made_from(|at, s: Rate| Ok(Dropout::new(&at.name, s.rate, at.seed)?))),
        (
            "embedding",
            made_from(|at, s: Vocabulary| Ok(Embedding::new(&at.name, s.vocab, s.context, s.dim, at.seed))),
        ),
        ("flatten", made_from(|at, _: Nothing| Ok(Flatten::new(&at.name)))),
        ("gelu", made_from(|at, _: Nothing| Ok(Gelu::new(&at.name, GeluForm::Tanh)))),
        ("global_average", made_from(|at, _: Nothing| Ok(GlobalAverage::new(&at.name)))),
        (
            "group_norm",
            made_from(|at, s: Groups| Ok(GroupNorm::new(&at.name, s.groups, s.channels, EPSILON)?)),
        ),
        ("layer_norm", made_from(|at, s: Width| Ok(LayerNorm::new(&at.name, s.width)))),
        ("linear", made_from(|at, s| Ok(linear(at, s)))),
        ("max_pool", made_from(|at, s: Kernel| Ok(MaxPool::new(&at.name, s.kernel)))),
        ("product", made_from(|at, s: Branches| Ok(Block::product(&at.name, branches(at, &s)?)))),
        ("relu", made_from(|at, _: Nothing| Ok(Relu::new(&at.name)))),
        ("reshape", made_from(|at, s: Dims| Ok(Reshape::new(&at.name, &s.dims)))),
        ("residual", made_from(|at, s: Inside| Ok(Block::residual(&at.name, inside(at, "", &s.layers)?)))),
        ("rms_norm", made_from(|at, s: Width| Ok(RmsNorm::new(&at.name, s.width, EPSILON)))),
        ("sigmoid", made_from(|at, _: Nothing| Ok(Sigmoid::new(&at.name)))),
        ("softmax", made_from(|at, _: Nothing| Ok(Softmax::new(&at.name)))),
        ("sum", made_from(|at, s: Branches| Ok(Block::sum(&at.name, branches(at, &s)?)))),
        ("tanh", made_from(|at, _: Nothing| Ok(Tanh::new(&at.name)))),
    ];
    all.map(|(kind, make)| (kind.to_owned(), make)).into()
}
