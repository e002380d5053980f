//! From a checked config to the parts of a pipeline.

use pipewright_stages::loss::CrossEntropy;
use pipewright_stages::models::{Gpt, Mlp, Model};
use pipewright_stages::optimizer::{AdamW, Decay, LearningRate, Optimizer, Sgd};
use pipewright_stages::{RecomputedStage, Sequential, StageBuilder, recompute};

use super::values::{Partition, RecomputeBy, RecomputeWord};
use super::{Config, DataKind, LearningRateSchedule, ModelKind, OptimizerKind, sections};
use crate::data::IGNORED;
use crate::error::Result;

/// Rows of a micro-batch when nobody sets them.
const MICRO_BATCH_SIZE: usize = 8;

impl Config {
    /// The model, in one piece.
    ///
    /// # Errors
    /// When its sizes make no sense.
    pub fn model(&self) -> Result<Model> {
        let sections::Model {
            vocab,
            dim,
            layers,
            heads,
            tied,
            dropout,
            seed,
            ..
        } = self.model;
        let dropout = dropout as f32;
        let model = match self.model.kind {
            ModelKind::Gpt => Gpt {
                vocab,
                dim,
                layers,
                heads,
                context: self.data.seq,
                dropout,
                tied,
                seed,
            }
            .model(),
            ModelKind::Mlp => Mlp {
                sizes: self.model.sizes.0.clone(),
                dropout,
                seed,
            }
            .model(),
        };
        model.map_err(|error| self.refuse("model", error))
    }

    /// The model cut into stages that recompute, as `pipeline.stages`, `pipeline.partition` and `pipeline.recompute` say.
    ///
    /// # Errors
    /// As for [`Config::costs`], [`Config::choose`] and [`Config::partitioned_into`].
    pub fn partitioned(&self) -> Result<Vec<StageBuilder<RecomputedStage<Sequential>>>> {
        self.partitioned_into(&self.choose(self.costs()?.as_ref())?.counts)
    }

    /// The model cut into stages of so many layers that recompute as `pipeline.recompute` says.
    ///
    /// # Errors
    /// When the counts do not make up the model, or when a list says for another number of stages what they recompute.
    pub fn partitioned_into(
        &self,
        counts: &[usize],
    ) -> Result<Vec<StageBuilder<RecomputedStage<Sequential>>>> {
        let stages = self.model()?.cut(counts)?;
        let how: Vec<RecomputeWord> = match &self.pipeline.recompute {
            RecomputeBy::All(word) => vec![*word; stages.len()],
            RecomputeBy::Each(words) => words.clone(),
        };
        self.require(how.len() == stages.len(), "pipeline.recompute", || {
            let (words, count) = (how.len(), stages.len());
            format!("the list has {words}, pipeline.stages is {count}: give one word a stage, or one for all")
        })?;
        let pairs = stages.into_iter().zip(how);
        Ok(pairs.map(|(stage, how)| recompute(stage, how.into())).collect())
    }

    /// How many layers each stage gets where nothing is known of their costs: as the lists say, or balanced by estimates.
    pub(super) fn estimated_counts(&self) -> Result<Vec<usize>> {
        let listed = self.listed_counts()?;
        listed.map_or_else(
            || {
                let balanced = self.model()?.balanced(self.pipeline.stages);
                balanced.map_err(|error| self.refuse("pipeline.stages", error))
            },
            Ok,
        )
    }

    /// How many layers each stage gets where `pipeline.partition` lists them.
    pub(super) fn listed_counts(&self) -> Result<Option<Vec<usize>>> {
        let Partition::Lists(lists) = &self.pipeline.partition else {
            return Ok(None);
        };
        let counts = self.model()?.counts(lists).map_err(|error| {
            let problem = error.to_string();
            let problem = problem.strip_prefix("partition: ").unwrap_or(&problem);
            self.refuse("pipeline.partition", problem)
        });
        counts.map(Some)
    }

    /// Rows of a micro-batch.
    pub fn micro_batch_size(&self) -> usize {
        let pipeline = &self.pipeline;
        match pipeline.batch_size {
            Some(batch) => batch / pipeline.micro_batches as usize,
            None => pipeline.micro_batch_size.unwrap_or(MICRO_BATCH_SIZE),
        }
    }

    /// What a step's loss counts: tokens or images.
    pub fn targets(&self) -> u64 {
        let rows = self.micro_batch_size() as u64 * u64::from(self.pipeline.micro_batches);
        match self.data.kind {
            DataKind::Idx => rows,
            DataKind::Text | DataKind::Tokens => rows * self.data.seq as u64,
        }
    }

    /// The word for what a step's loss counts.
    pub fn unit(&self) -> &'static str {
        match self.data.kind {
            DataKind::Idx => "images",
            DataKind::Text | DataKind::Tokens => "tokens",
        }
    }

    /// The loss: cross-entropy that does not count [`IGNORED`] targets.
    pub fn loss(&self) -> CrossEntropy {
        CrossEntropy::ignoring(IGNORED)
    }

    /// The optimizer.
    pub fn optimizer(&self) -> Box<dyn Optimizer> {
        let sections::Optimizer {
            betas,
            eps,
            momentum,
            weight_decay,
            ..
        } = self.optimizer;
        let decay = match self.optimizer.decay {
            sections::Decay::Matrices => Decay::Matrices,
            sections::Decay::All => Decay::All,
        };
        match self.optimizer.kind {
            OptimizerKind::AdamW => Box::new(AdamW {
                betas,
                eps,
                weight_decay,
                decay,
            }),
            OptimizerKind::Sgd => Box::new(Sgd {
                momentum,
                weight_decay,
                decay,
            }),
        }
    }

    /// The learning rate over the steps.
    pub fn learning_rate(&self) -> LearningRate {
        let optimizer = &self.optimizer;
        match optimizer.schedule {
            LearningRateSchedule::Constant => LearningRate::Constant(optimizer.learning_rate),
            LearningRateSchedule::Cosine => LearningRate::WarmupCosine {
                peak: optimizer.learning_rate,
                floor: optimizer.min_learning_rate,
                warmup_steps: optimizer.warmup_steps,
                total_steps: self.train.steps,
            },
        }
    }
}
