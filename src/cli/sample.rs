//! `pipewright sample`: a trained model writes text.

use std::path::{Path, PathBuf};

use super::generate::{Generator, Sampling};
use super::newest::newest;
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::compose;
use crate::config::{Config, DataKind};
use crate::error::{CommandError, PromptProblem};
use crate::stages::Stage;

/// Write text with a trained GPT.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (`pipewright train` makes such a run):
  pipewright sample runs/gpt-text --prompt \"First Citizen:\"
  pipewright sample runs/gpt-text/checkpoints/step-00000700 --temperature 0 --tokens 100")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint, or the folder of a checkpoint
    path: PathBuf,
    /// The beginning of the text [default: a line break]. A model that was trained on token files needs a
    /// prompt of token numbers, such as "17 4 256"
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// How many tokens to write; for a model that was trained on text, a token is a byte
    #[arg(long, default_value_t = 500, value_name = "N")]
    tokens: usize,
    /// How random the choice of each token is: 0 always takes the most likely token, 1 follows the model's
    /// probabilities, larger values are more random
    #[arg(long, default_value_t = 0.8, value_name = "T", allow_negative_numbers = true)]
    temperature: f32,
    /// Choose only among this many most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// The seed of the random choices: the same seed writes the same text
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(super) fn run(args: Args) -> Result<()> {
    let Args { tokens, seed, .. } = args;
    let sampling = Sampling::new(args.temperature, args.top_k)?;
    let (config, mut generator) = load(&args.path, sampling, seed).map_err(CommandError::refused)?;
    let text = config.data.kind == DataKind::Text;
    let prompt = match &args.prompt {
        Some(prompt) if text => prompt.bytes().map(u32::from).collect(),
        Some(prompt) => tokens_of(prompt)?,
        None if text => vec![u32::from(b'\n')],
        None => return Err(PromptProblem::Missing.into()),
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

/// The model of a checkpoint, as one stage.
fn load(path: &Path, sampling: Sampling, seed: u64) -> Result<(Config, Generator)> {
    let folder = newest(path)?;
    let checkpoint = Checkpoint::open(&folder)?;
    let name = format!("the config in {}", folder.display());
    let config = Config::parse(&name, checkpoint.config(), &[], &[])?;
    if !config.model.kind.takes_tokens() {
        return Err(CommandError::WritesNoText { folder }.into());
    }
    let mut model = compose::model(&config)?.whole()?;
    checkpoint.read_weights(model.parameters())?;
    let generator = Generator::new(model, config.model.vocab, config.data.seq, sampling, seed);
    Ok((config, generator))
}

fn tokens_of(prompt: &str) -> Result<Vec<u32>> {
    let tokens = prompt.split_whitespace().map(|token| {
        let number = token.parse();
        number.map_err(|_| PromptProblem::NotANumber(token.to_owned()).into())
    });
    tokens.collect()
}
