//! Checks the sizes of a model.

use super::Config;
use super::model::ModelKind;
use crate::error::Result;

/// Refuses sizes of a model that do not fit each other.
pub(super) fn check(config: &Config) -> Result<()> {
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
