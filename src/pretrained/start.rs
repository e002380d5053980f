//! Stages whose weights start as those of a folder.

use std::sync::Arc;

use pipewright_stages::{
    BuildStage, Error, Parameter, Result, Sequential, Stage, StageBuilder, starting_at_zero,
};

use super::weights::Weights;

/// A builder that reads the stage's weights, and no others, when it builds the stage.
pub fn start_from(weights: Arc<Weights>, stage: StageBuilder<Sequential>) -> StageBuilder<Sequential> {
    Box::new(Started { weights, stage })
}

struct Started {
    weights: Arc<Weights>,
    stage: StageBuilder<Sequential>,
}

impl BuildStage<Sequential> for Started {
    fn build(&self) -> Result<Sequential> {
        let mut stage = starting_at_zero(|| self.stage.build())?;
        stage.try_visit_parameters(&mut |parameter: &mut Parameter| {
            let read = self.weights.read(parameter);
            read.map_err(|error| Error::other(error).at(parameter.name()))
        })?;
        Ok(stage)
    }

    fn describe(&self) -> String {
        format!("{}\n{}", self.stage.describe(), self.weights.describe())
    }
}
