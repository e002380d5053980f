//! `pipewright sample`: a trained model writes text.

use std::path::{Path, PathBuf};

use super::generate::{Choice, Generator};
use super::run_dir::RunDir;
use crate::checkpoint::Checkpoint;
use crate::config::{Config, DataKind, ModelKind};
use crate::stages::Stage;
use crate::{Error, Result};

/// Write text with a trained GPT.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright sample runs/gpt-text --prompt \"The pipeline\"
  pipewright sample runs/gpt-text/checkpoints/step-00000500 --temperature 0 --tokens 100")]
pub(super) struct Args {
    /// The folder of a run (its newest checkpoint), or of a checkpoint
    path: PathBuf,
    /// What the text begins with; for a model on token files, tokens such as "17 4 256"
    #[arg(long, default_value = "\n")]
    prompt: String,
    /// How many tokens (for a model on text: bytes) to write
    #[arg(long, default_value_t = 500, value_name = "N")]
    tokens: usize,
    /// How freely to choose: 0 always takes the likeliest token, 1 follows the model's probabilities
    #[arg(long, default_value_t = 0.8, value_name = "T")]
    temperature: f32,
    /// Choose among this many of the likeliest tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// The seed of the choices; the same one writes the same text
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: Args) -> Result<()> {
    let Args { tokens, seed, .. } = args;
    let choice = Choice::new(args.temperature, args.top_k)?;
    let (config, mut generator) =
        load(&args.path, choice, seed).map_err(|error| Error::Invalid(error.to_string()))?;
    let text = config.data.kind == DataKind::Text;
    let prompt = if text {
        args.prompt.bytes().map(u32::from).collect()
    } else {
        tokens_of(&args.prompt)?
    };
    let show = |token: u32| {
        if text {
            vec![token as u8]
        } else {
            format!("{token} ").into_bytes()
        }
    };
    generator.read(&prompt)?;
    if !super::write(&prompt.iter().flat_map(|&token| show(token)).collect::<Vec<_>>())? {
        return Ok(());
    }
    for _ in 0..tokens {
        let token = generator.next()?;
        if !super::write(&show(token))? {
            return Ok(());
        }
    }
    super::print("\n")
}

/// The model of a checkpoint, in one piece.
fn load(path: &Path, choice: Choice, seed: u64) -> Result<(Config, Generator)> {
    let folder = newest(path)?;
    let checkpoint = Checkpoint::open(&folder)?;
    let name = format!("the config in {}", folder.display());
    let config = Config::parse(&name, checkpoint.config(), &[], &[])?;
    if config.model.kind != ModelKind::Gpt {
        return Err(Error::Invalid(format!(
            "{}: only a model of kind \"gpt\" writes text",
            folder.display()
        )));
    }
    let mut model = config.model()?.whole()?;
    checkpoint.read_weights(model.parameters())?;
    let generator = Generator::new(model, config.model.vocab, config.data.seq, choice, seed);
    Ok((config, generator))
}

/// The checkpoint that a path names: itself, or the newest of a run.
fn newest(path: &Path) -> Result<PathBuf> {
    if path.join("state.json").exists() {
        return Ok(path.to_owned());
    }
    RunDir::new(path).checkpoints()?.pop().ok_or_else(|| {
        Error::Invalid(format!(
            "{} is no checkpoint, and no run that has one: train first",
            path.display()
        ))
    })
}

fn tokens_of(prompt: &str) -> Result<Vec<u32>> {
    let tokens = prompt.split_whitespace().map(|token| {
        token.parse().map_err(|_| {
            Error::Invalid(format!(
                "--prompt: `{token}` is no token: give numbers such as \"17 4\""
            ))
        })
    });
    tokens.collect()
}
