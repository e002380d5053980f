//! A model whose weights are in a checkpoint, or in a folder in Hugging Face's form.

use std::sync::Arc;

use crate::error::CommandError;
use crate::error::Result;
use pipewright::checkpoint::Checkpoint;
use pipewright::pretrained::Weights;
use pipewright::stages::models::Model;
use pipewright::stages::{
    self, BuildStage, DType, Error, Lora, Parameter, Sequential, Stage, StageBuilder, Training,
    starting_at_zero,
};

/// A model, and where its weights are.
pub(super) struct SavedModel {
    model: Model,
    weights: Arc<Saved>,
}

enum Saved {
    /// With adapters, if there are some.
    Folder(Weights, Option<Weights>),
    Checkpoint(Checkpoint),
}

impl SavedModel {
    /// A model of a folder, with the adapters of another folder if they are given.
    pub(super) fn of_folder(model: Model, weights: Weights, adapters: Option<Weights>) -> Self {
        let weights = Arc::new(Saved::Folder(weights, adapters));
        Self { model, weights }
    }

    pub(super) fn of_checkpoint(model: Model, checkpoint: Checkpoint) -> Self {
        let weights = Arc::new(Saved::Checkpoint(checkpoint));
        Self { model, weights }
    }

    /// Refuses more ranks than there are layers.
    pub(super) fn check_ranks(&self, ranks: u32) -> Result<()> {
        let layers = self.model.names().len() as u32;
        match ranks > layers {
            true => Err(CommandError::TooManyRanks { layers }.into()),
            false => Ok(()),
        }
    }

    /// A stage for each place. It reads its weights, and no others, when it is built. `held` says, for each,
    /// in which numbers the CPU holds its matrices.
    pub(super) fn stages(self, held: &[DType]) -> Result<Vec<StageBuilder<Sequential>>> {
        let weights = self.weights;
        let reading = |(stage, &held)| {
            let weights = Arc::clone(&weights);
            let reading = Reading { stage, weights, held };
            Box::new(reading) as StageBuilder<Sequential>
        };
        let stages = self.model.split(held.len() as u32)?.into_iter();
        Ok(stages.zip(held).map(reading).collect())
    }
}

impl Saved {
    fn read(&self, parameter: &mut Parameter) -> stages::Result<()> {
        let read = match self {
            Self::Folder(_, Some(adapters)) if adapters.has(parameter.name()) => adapters.read(parameter),
            // New adapters change nothing.
            Self::Folder(_, None) if Lora::is_adapter(parameter.name()) => Ok(()),
            Self::Folder(weights, _) => weights.read(parameter),
            Self::Checkpoint(checkpoint) => checkpoint.read_weight(parameter),
        };
        read.map_err(|error| Error::other(error).at(parameter.name()))
    }
}

/// Builds a stage and reads its weights.
struct Reading {
    stage: StageBuilder<Sequential>,
    weights: Arc<Saved>,
    held: DType,
}

impl BuildStage<Sequential> for Reading {
    fn build(&self) -> stages::Result<Sequential> {
        let mut stage = starting_at_zero(|| self.stage.build())?;
        stage.visit_parameters(&mut |parameter| {
            parameter.train_by(Training { frozen: true, ..parameter.training() });
        });
        match self.held {
            DType::F32 => stage.try_visit_parameters(&mut |parameter| self.weights.read(parameter))?,
            DType::Bf16 => stage.read_in_bf16(|parameter| self.weights.read(parameter))?,
        }
        // Adapters beside the weights would take as many products again.
        stage.merge_adapters();
        Ok(stage)
    }
}
