//! A model whose weights are in a checkpoint, or in a folder in Hugging Face's form.

use std::sync::Arc;

use crate::checkpoint::Checkpoint;
use crate::error::{CommandError, Result};
use crate::pretrained::Weights;
use crate::stages::models::Model;
use crate::stages::{self, BuildStage, Error, Parameter, Sequential, Stage, StageBuilder, starting_at_zero};

/// A model, and where its weights are.
pub(super) struct SavedModel {
    model: Model,
    weights: Arc<Saved>,
}

enum Saved {
    Folder(Weights),
    Checkpoint(Checkpoint),
}

impl SavedModel {
    pub(super) fn of_folder(model: Model, weights: Weights) -> Self {
        let weights = Arc::new(Saved::Folder(weights));
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

    /// The stages of so many ranks. Each reads its weights, and no others, when it is built.
    pub(super) fn stages(self, ranks: u32) -> Result<Vec<StageBuilder<Sequential>>> {
        let weights = self.weights;
        let reading = |stage| {
            let weights = Arc::clone(&weights);
            Box::new(Reading { stage, weights }) as StageBuilder<Sequential>
        };
        Ok(self.model.split(ranks)?.into_iter().map(reading).collect())
    }
}

impl Saved {
    fn read(&self, parameter: &mut Parameter) -> Result<()> {
        match self {
            Self::Folder(weights) => weights.read(parameter),
            Self::Checkpoint(checkpoint) => checkpoint.read_weight(parameter),
        }
    }
}

/// Builds a stage and reads its weights.
struct Reading {
    stage: StageBuilder<Sequential>,
    weights: Arc<Saved>,
}

impl BuildStage<Sequential> for Reading {
    fn build(&self) -> stages::Result<Sequential> {
        let mut stage = starting_at_zero(|| self.stage.build())?;
        stage.try_visit_parameters(&mut |parameter: &mut Parameter| {
            let read = self.weights.read(parameter);
            read.map_err(|error| Error::other(error).at(parameter.name()))
        })?;
        Ok(stage)
    }
}
