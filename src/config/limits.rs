//! Sizes beyond what can be: refused with a message, before a number overflows or a buffer cannot be had.

use super::{Config, DataKind, ModelKind};
use crate::error::Result;

/// The most numbers in a tensor: 32 GiB.
const TENSOR: usize = 1 << 33;

/// The most weights in a model: 128 GiB, and as much again for each of gradient and optimizer state.
const WEIGHTS: usize = 1 << 35;

/// The most layers: blocks of a GPT, or widths of an MLP.
const LAYERS: usize = 1000;

const WIDTH: usize = 1 << 24;
const SEQUENCE: usize = 1 << 20;
const ROWS: usize = 1 << 20;
const THREADS: usize = 1024;

/// Refuses sizes that no machine has room for.
pub(super) fn check(config: &Config) -> Result<()> {
    rows(config)?;
    let threads = config.pipeline.threads_per_rank;
    config.at_most("pipeline.threads_per_rank", threads, THREADS, "threads")?;
    match config.model.kind {
        ModelKind::Gpt => gpt(config),
        ModelKind::Mlp => mlp(config),
    }
}

fn rows(config: &Config) -> Result<()> {
    let pipeline = &config.pipeline;
    let batch = ROWS.saturating_mul(pipeline.micro_batches as usize);
    config.at_most(
        "pipeline.batch_size",
        pipeline.batch_size.unwrap_or(1),
        batch,
        "rows",
    )?;
    config.at_most(
        "pipeline.micro_batch_size",
        pipeline.micro_batch_size.unwrap_or(1),
        ROWS,
        "rows",
    )?;
    if config.data.kind == DataKind::Idx {
        return Ok(());
    }
    config.at_most("data.seq", config.data.seq, SEQUENCE, "tokens")
}

fn gpt(config: &Config) -> Result<()> {
    let (model, seq) = (&config.model, config.data.seq);
    config.at_most("model.vocab", model.vocab, WIDTH, "tokens")?;
    config.at_most("model.dim", model.dim, WIDTH, "numbers")?;
    config.at_most("model.layers", model.layers, LAYERS, "blocks")?;
    let rows = config.rows_key();
    let size = config.micro_batch_size();
    let (tokens, embedding) = ("the token embedding", "the position embedding");
    config.tensor("model.dim", "a block's widest matrix", &[4, model.dim, model.dim])?;
    config.tensor("model.vocab", tokens, &[model.vocab, model.dim])?;
    config.tensor("data.seq", embedding, &[seq, model.dim])?;
    config.tensor(rows, "a block's widest activation", &[size, seq, 4, model.dim])?;
    config.tensor(rows, "the scores of all tokens", &[size, seq, model.vocab])?;
    let blocks = product(&[12, model.layers, model.dim, model.dim]);
    let ends = product(&[2, model.vocab, model.dim]);
    config.weights("model.layers", sum(blocks, ends))
}

fn mlp(config: &Config) -> Result<()> {
    let (key, sizes) = ("model.sizes", &config.model.sizes.0);
    config.at_most(key, sizes.len(), LAYERS, "widths")?;
    let mut weights = Some(0);
    for pair in sizes.windows(2) {
        let widest = pair[0].max(pair[1]);
        config.at_most(key, widest, WIDTH, "numbers a layer")?;
        config.tensor(key, "a layer's matrix", pair)?;
        let activation = [config.micro_batch_size(), widest];
        config.tensor(config.rows_key(), "a layer's activation", &activation)?;
        weights = sum(weights, product(pair));
    }
    config.weights(key, weights)
}

impl Config {
    /// The key that says the rows of a micro-batch.
    pub(crate) fn rows_key(&self) -> &'static str {
        match self.pipeline.batch_size {
            Some(_) => "pipeline.batch_size",
            None => "pipeline.micro_batch_size",
        }
    }

    fn at_most(&self, key: &str, value: usize, limit: usize, unit: &str) -> Result<()> {
        self.require(value <= limit, key, || {
            format!("{value} is too large: at most {limit} {unit} are supported, lower it")
        })
    }

    /// Refuses a tensor of too many numbers.
    fn tensor(&self, key: &str, what: &str, dims: &[usize]) -> Result<()> {
        let fits = product(dims).is_some_and(|numbers| numbers <= TENSOR);
        self.require(fits, key, || {
            let dims: Vec<_> = dims.iter().map(ToString::to_string).collect();
            let dims = dims.join(" x ");
            format!("{what} would have {dims} numbers: at most {TENSOR} are supported, lower one of these")
        })
    }

    /// Refuses a model of too many weights.
    fn weights(&self, key: &str, count: Option<usize>) -> Result<()> {
        self.require(count.is_some_and(|count| count <= WEIGHTS), key, || {
            format!("the model would have more than {WEIGHTS} weights: make it narrower or shallower")
        })
    }
}

/// None on overflow.
fn product(factors: &[usize]) -> Option<usize> {
    factors
        .iter()
        .try_fold(1_usize, |product, factor| product.checked_mul(*factor))
}

/// None on overflow, or when either is none.
fn sum(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    a?.checked_add(b?)
}
