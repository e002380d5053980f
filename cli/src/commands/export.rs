//! `pipewright export`: from a checkpoint to a folder of Hugging Face.

use std::path::{Path, PathBuf};

use pipewright::stages::units::counted;
use pipewright::stages::{Lora, Sequential, Stage, starting_at_zero};

use super::belongings;
use super::key;
use super::out::new_folder;
use super::saved::{config_of, newest, no_checkpoint};
use crate::compose;
use crate::config::Config;
use crate::error::{Error, Result};
use pipewright::checkpoint::Checkpoint;
use pipewright::pretrained::{self, Adapters, Architecture, SCORE};

/// Write a trained model as a folder: for Hugging Face's transformers, or with our names
///
/// The folder gets config.json and model.safetensors with 32-bit floats, and the run's tokenizer with all
/// that belongs to it: special tokens, chat template, settings of generation. Of a run that trained adapters
/// ([lora]) only these are written, in PEFT's form, unless --merge adds them to the weights.
///
/// A model that Hugging Face has no form for (mlp, cnn, resnet, stack) gets config.toml instead of
/// config.json, and its tensors have our names. With model.path, training starts from such a folder too.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright export runs/finetune-smollm2 models/mine
  pipewright export runs/finetune-smollm2/checkpoints/step-00000020 models/mine
  pipewright export runs/lora models/adapters
  pipewright export runs/lora models/mine --merge
  python3 -c \"import transformers; transformers.AutoModelForCausalLM.from_pretrained('models/mine')\"")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint, or the folder of a checkpoint
    path: PathBuf,
    /// The folder to make
    folder: PathBuf,
    /// Add adapters to the weights that they are for, and write the whole model
    #[arg(long)]
    merge: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let from = newest(&args.path)?.ok_or_else(|| no_checkpoint(&args.path))?;
    key::enter_for(&from)?;
    let checkpoint = Checkpoint::open(&from)?;
    let config = config_of(&from, &checkpoint, &[])?;
    let architecture = compose::architecture(&config);
    let model = compose::model(&config)?;
    // Adapters alone need no base.
    let base = match args.merge || config.lora.rank == 0 {
        true => compose::quantised_base(&config, &model)?,
        false => None,
    };
    let mut model = starting_at_zero(|| model.whole().map_err(Error::from))?;
    for parameter in model.parameters() {
        if let Some(base) = base.as_ref().filter(|_| parameter.quantisation().is_some()) {
            base.read(parameter)?;
        }
    }
    let mut known = model.parameters();
    known.retain(|parameter| parameter.quantisation().is_none() || parameter.blocks().is_some());
    checkpoint.read_weights(known)?;
    if args.merge {
        // What adapters add to quantised weights has their full precision.
        model.visit_parameters(&mut |parameter| parameter.widen());
    }
    let has_adapters = config.lora.rank > 0;
    if args.merge && !has_adapters {
        return Err(Error::refused(format!(
            "`{}` has no adapters to merge: leave --merge out",
            from.display()
        )));
    }
    let what = new_folder(&args.folder, |folder| {
        let what = match (has_adapters && !args.merge, &architecture) {
            (true, Some(architecture)) => {
                write_adapters(folder, &config, architecture, &mut model)?;
                "adapters of "
            }
            (true, None) => {
                return Err(Error::refused(format!(
                    "{}: adapters of this kind of model cannot be written alone: add --merge",
                    from.display()
                )));
            }
            (false, Some(architecture)) => {
                model.merge_adapters();
                pretrained::write(folder, architecture, &[], weights_of(&mut model))?;
                ""
            }
            (false, None) => {
                model.merge_adapters();
                let units = compose::model(&config)?.contents()?;
                pretrained::write_own(folder, checkpoint.config(), &units, weights_of(&mut model))?;
                ""
            }
        };
        if what.is_empty() {
            super::warn(belongings::put(&config, folder)?);
        }
        Ok(what)
    })?;
    let step = checkpoint.step();
    super::print(&format!(
        "{}: {what}{}, after {}\n",
        args.folder.display(),
        config.model.kind.name(),
        counted(step, "step")
    ))
}

/// Writes the adapters alone. Nothing else may have been trained.
fn write_adapters(
    folder: &Path,
    config: &Config,
    architecture: &Architecture,
    model: &mut Sequential,
) -> Result<()> {
    let is_head = |name: &str| config.gives_rewards() && name == SCORE;
    let also = |name: &&str| !Lora::is_adapter(name) && !is_head(name);
    let parameters = model.parameters();
    let trained = parameters.iter().filter(|parameter| !parameter.is_frozen());
    if let Some(parameter) = trained.map(|parameter| parameter.name()).find(also) {
        return Err(Error::refused(format!(
            "{parameter} was trained besides the adapters, which alone are not the model: add --merge"
        )));
    }
    let adapters = Adapters {
        rank: config.lora.rank,
        alpha: config.lora.alpha,
        dropout: config.lora.dropout,
        targets: config.lora.targets.clone(),
    };
    let (targets, base) = (compose::adapted(config)?, config.model.path.as_deref());
    pretrained::write_adapters(folder, architecture, &adapters, &targets, base, weights_of(model))?;
    Ok(())
}

/// The numbers of a model's parameter by its name.
fn weights_of(model: &mut Sequential) -> impl FnMut(&str) -> pipewright::Result<Vec<f32>> {
    let parameters = model.parameters();
    move |name| {
        let found = parameters.iter().find(|parameter| parameter.name() == name);
        let parameter = found.expect("the table has the model's parameters");
        Ok(parameter.numbers().into_owned())
    }
}
