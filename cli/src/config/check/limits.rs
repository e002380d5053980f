//! Refuses sizes of a model that do not fit each other, and sizes that are too large, before a number
//! overflows or memory cannot be allocated.

use pipewright::stages::models::ResNet;

use crate::config::key::{LAYERS, ROWS, WIDTH, too_large};
use crate::config::{Config, ModelKind};
use crate::error::Result;

/// The most numbers in a tensor: 32 GiB.
const TENSOR: usize = 1 << 33;

/// The most weights in a model: 1 TiB over all ranks, and as much again for each of gradient and optimizer
/// state.
const WEIGHTS: usize = 1 << 38;

/// Refuses sizes for which no machine has memory.
pub(super) fn check(config: &Config) -> Result<()> {
    let limit = ROWS.saturating_mul(config.pipeline.micro_batches as usize);
    let batch = config.pipeline.batch_size.unwrap_or(1);
    at_most(config, "pipeline.batch_size", batch, limit, "rows")?;
    match config.model.kind {
        ModelKind::Mlp => mlp(config),
        ModelKind::Cnn => cnn(config),
        ModelKind::Resnet => resnet(config),
        ModelKind::Stack => Ok(()),
        _ => tokens(config),
    }
}

fn tokens(config: &Config) -> Result<()> {
    let (model, seq) = (&config.model, config.data.seq);
    let head = model.head_width.unwrap_or(model.dim / model.heads);
    let context = model.context.unwrap_or(seq);
    let rows = config.rows_key();
    let size = config.micro_batch_size();
    // A block of GPT-2 is four times as wide inside. Queries, keys and values are side by side.
    let [times, wide] = match model.ffn {
        Some(ffn) if ffn > 4 * model.dim => [1, ffn],
        _ if 3 * model.heads * head > 4 * model.dim => [3 * model.heads, head],
        _ => [4, model.dim],
    };
    let positions = match model.context {
        Some(_) => "model.context",
        None => "data.seq",
    };
    for (key, what, dims) in [
        ("model.dim", "a block's widest matrix", &[times, model.dim, wide][..]),
        ("model.vocab", "the token embedding", &[model.vocab, model.dim]),
        (positions, "the position embedding", &[context, model.dim]),
        (rows, "a block's widest activation", &[size, seq, times, wide]),
        (rows, "the scores of all tokens", &[size, seq, model.vocab]),
    ] {
        tensor(config, key, what, dims)?;
    }
    let in_attention = product(&[4, model.heads, head, model.dim]);
    let experts = match model.kind {
        ModelKind::Mixtral => model.experts,
        _ => 1,
    };
    let in_block = sum(in_attention, product(&[2, experts, times, wide, model.dim]));
    let blocks = in_block.and_then(|numbers| numbers.checked_mul(model.layers));
    let ends = product(&[2, model.vocab, model.dim]);
    weights(config, "model.layers", sum(blocks, ends))
}

fn mlp(config: &Config) -> Result<()> {
    let (key, sizes) = ("model.sizes", &config.model.sizes.0);
    at_most(config, key, sizes.len(), LAYERS, "widths")?;
    let mut count = Some(0);
    for pair in sizes.windows(2) {
        let widest = pair[0].max(pair[1]);
        at_most(config, key, widest, WIDTH, "numbers a layer")?;
        tensor(config, key, "a layer's matrix", pair)?;
        let activation = [config.micro_batch_size(), widest];
        tensor(config, config.rows_key(), "a layer's activation", &activation)?;
        count = sum(count, product(pair));
    }
    weights(config, key, count)
}

/// The sides and channels of images, and their numbers in a micro-batch if they have `channels` channels.
fn images(config: &Config, channels: usize) -> Result<()> {
    let [height, width, own] = config.image();
    for size in [height, width, own] {
        at_most(config, "model.image", size, WIDTH, "pixels or channels")?;
    }
    let widest = [config.micro_batch_size(), height, width, own.max(channels)];
    tensor(config, config.rows_key(), "a layer's activation", &widest)
}

fn cnn(config: &Config) -> Result<()> {
    let (key, channels) = ("model.channels", &config.model.channels.0);
    at_most(config, key, channels.len(), LAYERS, "convolutions")?;
    let [height, width, own] = config.image();
    let mut count = Some(0);
    for pair in [&[own], &channels[..]].concat().windows(2) {
        at_most(config, key, pair[1], WIDTH, "channels")?;
        images(config, pair[1])?;
        let weights = [9, pair[0], pair[1]];
        tensor(config, key, "a convolution's weights", &weights)?;
        count = sum(count, product(&weights));
    }
    let last = channels.last().copied().unwrap_or(1);
    let head = [height, width, last, config.model.classes];
    tensor(config, "model.classes", "the last layer's matrix", &head)?;
    weights(config, key, count)
}

fn resnet(config: &Config) -> Result<()> {
    let (model, blocks) = (&config.model, &config.model.blocks.0);
    at_most(config, "model.blocks", blocks.len(), ResNet::GROUPS, "groups")?;
    let all = blocks.iter().fold(0_usize, |all, &count| all.saturating_add(count));
    at_most(config, "model.blocks", all, LAYERS, "blocks")?;
    images(config, model.width)?;
    let last = model.width << blocks.len().saturating_sub(1);
    let widest = [9, last, last];
    tensor(config, "model.width", "a convolution's weights", &widest)?;
    let head = [last, model.classes];
    tensor(config, "model.classes", "the last layer's matrix", &head)?;
    weights(config, "model.blocks", product(&[9, last, last, 2, all.max(1)]))
}

fn at_most(config: &Config, key: &str, value: usize, limit: usize, unit: &'static str) -> Result<()> {
    config.require(value <= limit, key, || too_large(value, limit, unit))
}

/// Refuses a tensor with too many numbers.
fn tensor(config: &Config, key: &str, what: &'static str, dims: &[usize]) -> Result<()> {
    let fits = product(dims).is_some_and(|numbers| numbers <= TENSOR);
    config.require(fits, key, || {
        let dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
        format!(
            "{what} would have {} numbers: at most {TENSOR} are supported, lower one of these",
            dims.join(" x ")
        )
    })
}

/// Refuses a model with too many weights.
fn weights(config: &Config, key: &str, count: Option<usize>) -> Result<()> {
    config.require(count.is_some_and(|count| count <= WEIGHTS), key, || {
        format!("the model would have more than {WEIGHTS} weights: make it narrower or shallower")
    })
}

/// `None` if it overflows.
fn product(factors: &[usize]) -> Option<usize> {
    factors.iter().try_fold(1_usize, |product, factor| product.checked_mul(*factor))
}

/// `None` if it overflows, or if either is `None`.
fn sum(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    a?.checked_add(b?)
}

/// Refuses sizes of a model that do not fit each other.
pub(super) fn check_model(config: &Config) -> Result<()> {
    let model = &config.model;
    if model.kind == ModelKind::Mlp {
        let sizes = &model.sizes.0;
        return config.require(sizes.len() >= 2 && !sizes.contains(&0), "model.sizes", || {
            format!("{sizes:?}: give the widths of input and output at least, each 1 or more")
        });
    }
    if model.kind == ModelKind::Stack || model.kind.has_convolutions() {
        let has_three = model.image.as_ref().is_none_or(|image| image.0.len() == 3);
        return config.require(
            has_three,
            "model.image",
            || "give height, width and channels, such as \"28,28,1\"",
        );
    }
    let (seq, context) = (config.data.seq, model.context.unwrap_or(usize::MAX));
    config.require(seq <= context, "data.seq", || {
        let advice = match model.path {
            None => ", or raise model.context",
            Some(_) => "",
        };
        format!("sequences of {seq} tokens are longer than the model's {context}: lower it{advice}")
    })?;
    let divides = model.head_width.is_some() || model.dim.is_multiple_of(model.heads);
    config.require(divides, "model.heads", || {
        let (dim, heads) = (model.dim, model.heads);
        let choices = divisors(dim);
        format!("model.dim {dim} is not divisible by {heads} heads: choose from {choices}")
    })?;
    match model.kind.family() {
        Some(_) => llama(config),
        None => Ok(()),
    }
}

/// Llama and its kin.
fn llama(config: &Config) -> Result<()> {
    let model = &config.model;
    let (heads, width) = (model.heads, model.head_width.unwrap_or(model.dim / model.heads));
    let kv_heads = model.kv_heads.unwrap_or(heads);
    config.require(heads.is_multiple_of(kv_heads), "model.kv_heads", || {
        let choices = divisors(heads);
        format!("{heads} heads cannot share {kv_heads} heads for keys and values: choose from {choices}")
    })?;
    config.require(width.is_multiple_of(2), "model.head_width", || {
        format!("a head of {width} numbers cannot be turned by its position: the width must be even")
    })?;
    if let Some(token) = model.padding_token {
        let vocab = model.vocab;
        config.require((token as usize) < vocab, "model.padding_token", || {
            format!("{token} is no token of {vocab}: choose one below {vocab}, or leave the key out")
        })?;
    }
    config.require(model.rope_low < model.rope_high, "model.rope_low", || {
        format!("{} is not allowed: it must be below model.rope_high", model.rope_low)
    })?;
    config.require(model.rope_slow <= model.rope_fast, "model.rope_slow", || {
        format!("{} is not allowed: it must be at most model.rope_fast", model.rope_slow)
    })?;
    let (chosen, experts) = (model.experts_per_token, model.experts);
    let is_possible = model.kind != ModelKind::Mixtral || chosen <= experts;
    config.require(is_possible, "model.experts_per_token", || {
        format!("a token cannot choose {chosen} of {experts} experts: lower it, or raise model.experts")
    })
}

/// The numbers of heads up to 64 that divide this.
fn divisors(dim: usize) -> String {
    let heads = (1..=dim.min(64)).filter(|heads| dim.is_multiple_of(*heads));
    let heads: Vec<_> = heads.map(|heads| heads.to_string()).collect();
    heads.join(", ")
}
