//! Checks a config that trains with differential privacy.

use crate::config::{Config, ModelKind, PackingBy};
use crate::error::Result;

/// Refuses what does not go together with privacy, and keys of privacy without it.
pub(super) fn check(config: &Config) -> Result<()> {
    if !config.is_private() {
        let keys = ["privacy.noise", "privacy.delta", "privacy.secret_file"];
        return match keys.iter().find(|key| config.origins.contains_key(**key)) {
            Some(key) => {
                Err(config.refuse(key, "nothing is private: set privacy.clip too, for example to 1.0"))
            }
            None => Ok(()),
        };
    }
    let has_secret = config.privacy.secret_file.is_some();
    config.require(has_secret || config.privacy.noise == 0.0, "privacy.secret_file", || {
        "noise needs a secret, because who knows what it follows from can take it out again: write one by \
         `(umask 077; openssl rand -hex 32 > noise.secret)`, and name the file here, or leave out \
         privacy.clip"
    })?;
    samples(config)?;
    let pipeline = &config.pipeline;
    config.require(
        config.max_staleness() == 0,
        "pipeline.max_staleness",
        || "a training with privacy.clip cannot have stale weights: set this to 0, or leave privacy.clip out",
    )?;
    config.require(
        !pipeline.devices.has_gpu(),
        "pipeline.devices",
        || "gradients are clipped by sample on the CPU only: take \"cpu\", or leave privacy.clip out",
    )?;
    model(config)
}

/// Refuses micro-batches that are not one sample each.
fn samples(config: &Config) -> Result<()> {
    let data = &config.data;
    config.require(data.sources.is_empty(), "data.sources", || {
        "epsilon follows from the number of samples, and each source would have its own: name all files in \
         data.path, or leave privacy.clip out"
    })?;
    let is_single = data.kind.has_images() || config.packing_of(data) == Some(PackingBy::Single);
    config.require(is_single, "data.packing", || {
        "a sample is one document, and else a row has parts of several, or a document is in several rows: \
         set this to \"single\", or leave privacy.clip out"
    })?;
    let (rows, together) = (config.micro_batch_size(), config.rows_together());
    config.require(rows == together, config.rows_key(), || {
        format!(
            "a micro-batch of {rows} rows has several samples, and privacy.clip clips the gradient of a \
             micro-batch: set pipeline.micro_batch_size = {together}, and the samples of a step by \
             pipeline.micro_batches"
        )
    })
}

/// Refuses models in which something would change without noise, or by gradients that are added too late.
fn model(config: &Config) -> Result<()> {
    let model = &config.model;
    config.require(model.kind != ModelKind::Resnet, "model.kind", || {
        "the running means of batch norm are neither clipped nor noisy: take \"cnn\" or a stack without \
         batch norm, or leave privacy.clip out"
    })?;
    let all_trained = config.lora.rank == 0 && config.optimizer.groups.is_empty();
    let is_tied = model.kind.takes_tokens() && model.tied && !config.gives_rewards();
    config.require(!(is_tied && all_trained), "model.tied", || {
        "the gradients of tied weights are added after they are clipped: set this to false, train adapters \
         (lora.rank), or leave privacy.clip out"
    })
}
