//! Checks the sizes of a model.

use super::Config;
use super::model::ModelKind;
use crate::error::{ModelProblem, Result, ValueProblem};

/// Refuses sizes of a model that do not fit each other.
pub(super) fn check(config: &Config) -> Result<()> {
    let model = &config.model;
    if model.kind == ModelKind::Mlp {
        let sizes = &model.sizes.0;
        return config.require(sizes.len() >= 2 && !sizes.contains(&0), "model.sizes", || {
            ValueProblem::Widths(sizes.clone())
        });
    }
    if model.kind == ModelKind::Stack || model.kind.has_convolutions() {
        let has_three = model.image.as_ref().is_none_or(|image| image.0.len() == 3);
        return config.require(has_three, "model.image", || ModelProblem::Image.into());
    }
    let (seq, context) = (config.data.seq, model.context.unwrap_or(usize::MAX));
    config.require(seq <= context, "data.seq", || {
        let is_given = model.path.is_none();
        ModelProblem::Context {
            seq,
            context,
            is_given,
        }
        .into()
    })?;
    let divides = model.head_width.is_some() || model.dim.is_multiple_of(model.heads);
    config.require(divides, "model.heads", || ValueProblem::Heads {
        dim: model.dim,
        heads: model.heads,
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
        ModelProblem::KeyValueHeads { heads, kv_heads }.into()
    })?;
    config.require(width.is_multiple_of(2), "model.head_width", || {
        ModelProblem::OddHead { width }.into()
    })?;
    if let Some(token) = model.padding_token {
        let vocab = model.vocab;
        config.require((token as usize) < vocab, "model.padding_token", || {
            ModelProblem::PaddingToken { token, vocab }.into()
        })?;
    }
    config.require(model.rope_low < model.rope_high, "model.rope_low", || {
        ValueProblem::OutOfRange {
            value: model.rope_low,
            must: "it must be below model.rope_high",
        }
    })?;
    config.require(model.rope_slow <= model.rope_fast, "model.rope_slow", || {
        ValueProblem::OutOfRange {
            value: model.rope_slow,
            must: "it must be at most model.rope_fast",
        }
    })?;
    let (chosen, experts) = (model.experts_per_token, model.experts);
    let is_possible = model.kind != ModelKind::Mixtral || chosen <= experts;
    config.require(is_possible, "model.experts_per_token", || {
        ModelProblem::Experts { chosen, experts }.into()
    })
}
