//! `pipewright export`: from a checkpoint to a folder of Hugging Face.

use std::fs;
use std::path::{Path, PathBuf};

use pipewright_stages::{Stage, starting_at_zero};

use super::newest::newest;
use crate::checkpoint::Checkpoint;
use crate::compose;
use crate::config::Config;
use crate::error::{CommandError, Error, Result};
use crate::pretrained;

/// What a folder has besides weights and config.json, and what is copied from the folder that training
/// started from.
const COPIED: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
    "LICENSE",
];

/// Write a trained model as a folder that Hugging Face's transformers loads
///
/// The folder gets config.json and model.safetensors with 32-bit floats. If training started from such a
/// folder, its tokenizer is copied.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright export runs/finetune-smollm2 models/mine
  pipewright export runs/finetune-smollm2/checkpoints/step-00000020 models/mine
  python3 -c \"import transformers; transformers.AutoModelForCausalLM.from_pretrained('models/mine')\"")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint, or the folder of a checkpoint
    path: PathBuf,
    /// The folder to make
    folder: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let from = newest(&args.path)?;
    let checkpoint = Checkpoint::open(&from)?;
    let name = format!("the config in {}", from.display());
    let config = Config::parse(&name, checkpoint.config(), &[], &[])?;
    let Some(architecture) = compose::architecture(&config) else {
        return Err(CommandError::WritesNoText { folder: from }.into());
    };
    let mut model = starting_at_zero(|| compose::model(&config)?.whole().map_err(Error::from))?;
    checkpoint.read_weights(model.parameters())?;
    let parameters = model.parameters();
    pretrained::write(&args.folder, &architecture, |name| {
        let found = parameters.iter().find(|parameter| parameter.name() == name);
        Ok(found
            .expect("the table has the model's parameters")
            .value
            .to_vec())
    })?;
    if let Some(source) = &config.model.path {
        copy(source, &args.folder)?;
    }
    let step = checkpoint.step();
    super::print(&format!(
        "{}: {}, after {step} steps\n",
        args.folder.display(),
        architecture.name()
    ))
}

fn copy(source: &Path, folder: &Path) -> Result<()> {
    for name in COPIED {
        let from = source.join(name);
        if from.is_file() {
            fs::copy(&from, folder.join(name)).map_err(Error::io("copy", &from))?;
        }
    }
    Ok(())
}
