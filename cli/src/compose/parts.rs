//! The loss, the optimizer, the learning rate and the privacy of a config.

use super::TrainingData;
use crate::config::{Config, LearningRateSchedule, Objective};
use crate::error::{Result, ValueProblem};
use pipewright::data::IGNORED;
use pipewright::privacy::{Accountant, Privacy};
use pipewright::stages::loss::{AnyLoss, CrossEntropy, PairwiseReward, Preference};
use pipewright::stages::optimizer::{LearningRate, Optimizer};

/// The loss. Cross-entropy of a model of tokens has a perplexity. Rows with the target [`IGNORED`] do not
/// count.
///
/// # Errors
/// When the label smoothing rounds to 1, or to a half for preferences; or when `train.beta` rounds to 0.
pub fn loss(config: &Config) -> Result<AnyLoss> {
    let (smoothing, groups) = (config.optimizer.label_smoothing as f32, config.shard_groups());
    let refuse = |key: &str, error| config.refuse(key, ValueProblem::caused(error));
    let smoothed = |error| refuse("optimizer.label_smoothing", error);
    let beta = |error| refuse("train.beta", error);
    let preference = match config.train.objective {
        Objective::CrossEntropy => {
            let loss = CrossEntropy::ignoring(IGNORED).smoothed(smoothing).map_err(smoothed)?;
            let loss = loss.with_shard_groups(groups)?;
            return Ok(AnyLoss::new(if config.reads_tokens() { loss.of_tokens() } else { loss }));
        }
        Objective::Dpo => Preference::dpo(config.train.beta as f32).map_err(beta)?,
        Objective::Ipo => Preference::ipo(config.train.beta as f32).map_err(beta)?,
        Objective::Reward => {
            config.require(
                smoothing == 0.0,
                "optimizer.label_smoothing",
                || "the loss of rewards has none: set it to 0, or take train.objective = \"dpo\"",
            )?;
            return Ok(AnyLoss::new(PairwiseReward::default()));
        }
    };
    let preference = preference.smoothed(smoothing).map_err(smoothed)?;
    Ok(AnyLoss::new(preference.with_shard_groups(groups)?))
}

/// How gradients are clipped, and the noise, if the training is private.
pub(super) fn privacy(config: &Config) -> Result<Option<Privacy>> {
    let Some(clip) = config.privacy.clip else {
        return Ok(None);
    };
    let seed = config.noise_secret()?.map_or(0, |secret| Privacy::seed_of(&secret));
    Ok(Some(Privacy { clip, noise: config.privacy.noise, seed }))
}

/// What counts the privacy that a training on this data spends, if it is private.
pub fn accountant(config: &Config, data: &TrainingData) -> Option<Accountant> {
    let samples = data.samples.filter(|samples| config.is_private() && *samples > 0)?;
    let rate = f64::from(config.pipeline.micro_batches) / samples as f64;
    Some(Accountant::new(config.privacy.noise, rate, config.privacy.delta))
}

/// The optimizer.
pub fn optimizer(config: &Config) -> Box<dyn Optimizer> {
    config.optimizer.made()
}

/// The learning rate over the steps.
pub fn learning_rate(config: &Config) -> LearningRate {
    let (total_steps, optimizer) = (config.train.steps, &config.optimizer);
    let (peak, floor) = (optimizer.learning_rate, optimizer.min_learning_rate);
    let warmup_steps = optimizer.warmup_steps;
    match optimizer.schedule {
        LearningRateSchedule::Constant => LearningRate::Constant(peak),
        LearningRateSchedule::Cosine => LearningRate::WarmupCosine { peak, floor, warmup_steps, total_steps },
        LearningRateSchedule::Linear => LearningRate::WarmupLinear { peak, floor, warmup_steps, total_steps },
        LearningRateSchedule::Wsd => {
            LearningRate::Wsd { peak, floor, warmup_steps, decay_steps: optimizer.decay_steps, total_steps }
        }
    }
}
