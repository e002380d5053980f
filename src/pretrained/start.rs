//! Stages that start with the weights of a folder.

use std::sync::Arc;

use pipewright_stages::{
    BuildStage, Error, Lora, Parameter, Result, Sequential, Shard, Stage, StageBuilder, starting_at_zero,
};

use super::head::SCORE;
use super::weights::Weights;

/// A builder that reads the stage's weights, and no others, when it builds the stage. `adapters` are the
/// weights of its adapters, and of a head that is saved beside them; without them, adapters start anew. So
/// does the head of a reward model, if the folder has none.
pub fn start_from(
    weights: Arc<Weights>,
    adapters: Option<Arc<Weights>>,
    stage: StageBuilder<Sequential>,
) -> StageBuilder<Sequential> {
    Box::new(Started { weights, adapters, stage })
}

struct Started {
    weights: Arc<Weights>,
    adapters: Option<Arc<Weights>>,
    stage: StageBuilder<Sequential>,
}

impl BuildStage<Sequential> for Started {
    fn build(&self) -> Result<Sequential> {
        self.build_shard(Shard::WHOLE)
    }

    fn build_shard(&self, shard: Shard) -> Result<Sequential> {
        let mut stage = starting_at_zero(|| self.stage.build_shard(shard))?;
        stage.try_visit_parameters(&mut |parameter: &mut Parameter| {
            let is_adapter = Lora::is_adapter(parameter.name());
            let read = match &self.adapters {
                Some(adapters) if is_adapter || adapters.has(parameter.name()) => adapters.read(parameter),
                None if is_adapter => Ok(()),
                _ if parameter.name() == SCORE && !self.weights.has(SCORE) => Ok(()),
                _ => self.weights.read(parameter),
            };
            read.map_err(|error| Error::other(error).at(parameter.name()))
        })?;
        Ok(stage)
    }

    fn describe(&self) -> String {
        let mut lines = vec![self.stage.describe(), self.weights.describe().to_owned()];
        lines.extend(self.adapters.as_ref().map(|adapters| adapters.describe().to_owned()));
        lines.join("\n")
    }
}
