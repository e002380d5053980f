//! The checkpoint that a path means, and a model whose weights are in a checkpoint, or in a folder in Hugging
//! Face's form.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pipewright::checkpoint::Checkpoint;
use pipewright::pretrained::Weights;
use pipewright::run::RunDir;
use pipewright::stages::models::{Model, Rules};
use pipewright::stages::{
    self, BuildStage, DType, Lora, Parameter, Sequential, Stage, StageBuilder, Training, starting_at_zero,
};

use crate::compose;
use crate::config::Config;
use crate::error::{Error, Result};
use pipewright::error::download;

/// A model, and where its weights are.
pub(super) struct SavedModel {
    model: Model,
    weights: Arc<Saved>,
    /// Whether adapters become a part of the weights.
    merges: bool,
}

enum Saved {
    /// Nowhere: they are drawn.
    Drawn,
    /// With adapters, if there are some.
    Folder(Weights, Option<Weights>),
    /// With the folder that has the quantised matrices, if there are some.
    Checkpoint(Box<Checkpoint>, Option<Weights>),
}

impl SavedModel {
    /// A model of a folder, with the adapters of another folder if they are given.
    pub(super) fn of_folder(model: Model, weights: Weights, adapters: Option<Weights>) -> Self {
        let weights = Arc::new(Saved::Folder(weights, adapters));
        Self { model, weights, merges: true }
    }

    /// The model of a config, before it was trained. It has the parameters that training begins with.
    pub(super) fn of_start(config: &Config) -> Result<Self> {
        let saved = match compose::weights(config)? {
            Some(weights) => Saved::Folder(weights, compose::adapters(config)?),
            None => Saved::Drawn,
        };
        Ok(Self { model: compose::model(config)?, weights: Arc::new(saved), merges: false })
    }

    /// The model of a config, whose weights are in a checkpoint.
    pub(super) fn of_checkpoint(config: &Config, checkpoint: Checkpoint) -> Result<Self> {
        let model = compose::model(config)?;
        let base = compose::quantised_base(config, &model)?;
        let weights = Arc::new(Saved::Checkpoint(Box::new(checkpoint), base));
        Ok(Self { model, weights, merges: true })
    }

    /// Refuses more ranks than there are layers.
    pub(super) fn check_ranks(&self, ranks: u32) -> Result<()> {
        let layers = self.model.names().len() as u32;
        match ranks > layers {
            true => Err(too_many_ranks(layers)),
            false => Ok(()),
        }
    }

    /// A stage for each place. It reads its weights, and no others, when it is built. `held` says, for each,
    /// in which numbers the CPU holds its matrices.
    pub(super) fn stages(self, held: &[DType]) -> Result<Vec<StageBuilder<Sequential>>> {
        let (weights, merges) = (self.weights, self.merges);
        let reading = |(stage, &held)| {
            let weights = Arc::clone(&weights);
            let reading = Reading { stage, weights, held, merges };
            Box::new(reading) as StageBuilder<Sequential>
        };
        let stages = self.model.split(held.len() as u32)?.into_iter();
        Ok(stages.zip(held).map(reading).collect())
    }
}

impl Saved {
    fn read(&self, parameter: &mut Parameter) -> stages::Result<()> {
        let read = match self {
            Self::Drawn => Ok(()),
            Self::Folder(_, Some(adapters)) if adapters.has(parameter.name()) => adapters.read(parameter),
            // New adapters change nothing.
            Self::Folder(_, None) if Lora::is_adapter(parameter.name()) => Ok(()),
            Self::Folder(weights, _) => weights.read(parameter),
            Self::Checkpoint(checkpoint, base) => {
                let base = base.as_ref().filter(|_| parameter.quantisation().is_some());
                base.map_or(Ok(()), |base| base.read(parameter))
                    .and_then(|()| checkpoint.read_weight(parameter))
            }
        };
        read.map_err(|error| stages::Error::other(error).at(parameter.name()))
    }
}

/// Builds a stage and reads its weights.
struct Reading {
    stage: StageBuilder<Sequential>,
    weights: Arc<Saved>,
    held: DType,
    merges: bool,
}

impl BuildStage<Sequential> for Reading {
    fn build(&self) -> stages::Result<Sequential> {
        let mut stage = match *self.weights {
            Saved::Drawn => self.stage.build()?,
            Saved::Folder(..) | Saved::Checkpoint(..) => starting_at_zero(|| self.stage.build())?,
        };
        stage.visit_parameters(&mut |parameter| {
            parameter.train_by(Training { frozen: true, ..parameter.training() });
        });
        match self.held {
            DType::F32 => stage.try_visit_parameters(&mut |parameter| self.weights.read(parameter))?,
            DType::Bf16 => stage.read_in_bf16(|parameter| self.weights.read(parameter))?,
        }
        // Adapters beside the weights would take as many products again.
        if self.merges {
            stage.merge_adapters();
        }
        Ok(stage)
    }
}

/// The same model, frozen, whose matrices are in the blocks that a folder has.
pub(super) fn in_blocks(model: Model, weights: &Weights) -> Model {
    let kinds: BTreeMap<String, _> =
        weights.quantised().map(|(name, kind)| (name.to_owned(), kind)).collect();
    let frozen = |_: &str| Training { frozen: true, ..Training::default() };
    let rules = Rules::default().with_training(frozen);
    model.with_rules(rules.with_quantisation(move |name| kinds.get(name).copied()))
}

/// The checkpoint at a path: the path itself, or the newest one of a run.
pub(super) fn newest(path: &Path) -> Result<Option<PathBuf>> {
    if path.join("state.json").exists() {
        return Ok(Some(path.to_owned()));
    }
    Ok(RunDir::at(path).checkpoints()?.pop())
}

/// As [`newest`], for a command that also takes a folder with a model, where there was none.
pub(super) fn newest_or_model(path: &Path) -> Result<PathBuf> {
    newest(path)?.ok_or_else(|| {
        Error::refused(format!(
            "{} is neither a checkpoint, nor a run that has one, nor a model's folder with a config.json: \
             train first, or import a model{}",
            path.display(),
            download(path)
        ))
    })
}

/// There is no checkpoint at a path.
pub(super) fn no_checkpoint(path: &Path) -> Error {
    Error::refused(format!("{} is neither a checkpoint nor a run that has one: train first", path.display()))
}

/// More ranks than the model has layers.
pub(super) fn too_many_ranks(layers: u32) -> Error {
    Error::refused(format!("--ranks: a model of {layers} layers has stages for {layers} ranks at most"))
}

/// The config of the run that saved the checkpoint in a folder, with these settings changed.
///
/// # Errors
/// When a program saved it that builds its model in Rust; otherwise as [`Config::parse`].
pub(super) fn config_of(folder: &Path, checkpoint: &Checkpoint, sets: &[String]) -> Result<Config> {
    if checkpoint.config().trim().is_empty() {
        return Err(Error::refused(format!(
            "{} has no config that says what the model is: it was saved by a program that builds its model \
             in Rust. Only that program can load it (with `Pipeline::load`) and then evaluate it, write text \
             with it or save its weights",
            folder.display()
        )));
    }
    let name = format!("the config in {}", folder.display());
    Config::parse(&name, checkpoint.config(), &[], sets)
}
