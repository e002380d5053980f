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
use crate::tokenizer::{TextStream, Tokenizer};

/// Write text with a trained GPT.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (`pipewright train` makes such a run):
  pipewright sample runs/gpt-text --prompt \"First Citizen:\"
  pipewright sample runs/gpt-text/checkpoints/step-00000700 --temperature 0 --tokens 100")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint, or the folder of a checkpoint
    path: PathBuf,
    /// The beginning of the text [default: a line break, or the token that ends a document]. A model that was
    /// trained on token files without a tokenizer needs a prompt of token numbers, such as "17 4 256"
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// How many tokens to write; for a model that was trained on text without a tokenizer, a token is a byte
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
    let tokenizer = compose::tokenizer(&config).map_err(CommandError::refused)?;
    let mut words = match &tokenizer {
        Some(tokenizer) => Words::Tokenizer(tokenizer, TextStream::new(tokenizer)),
        None if config.data.kind == DataKind::Text => Words::Bytes,
        None => Words::Numbers,
    };
    let prompt = words.prompt(args.prompt.as_deref(), &config)?;
    generator.read(&prompt)?;
    for token in prompt {
        if !super::write(&words.show(token)?)? {
            return Ok(());
        }
    }
    for _ in 0..tokens {
        let token = generator.next()?;
        if !super::write(&words.show(token)?)? {
            return Ok(());
        }
    }
    super::write(&words.finish()?)?;
    super::print("\n")
}

/// How a model's tokens are read and shown.
enum Words<'a> {
    /// A token is a byte.
    Bytes,
    /// Tokens are numbers.
    Numbers,
    /// Tokens are what a tokenizer makes of text.
    Tokenizer(&'a Tokenizer, TextStream<'a>),
}

impl Words<'_> {
    /// The tokens of a prompt.
    fn prompt(&self, prompt: Option<&str>, config: &Config) -> Result<Vec<u32>> {
        match (self, prompt) {
            (Self::Bytes, Some(prompt)) => Ok(prompt.bytes().map(u32::from).collect()),
            (Self::Bytes, None) => Ok(vec![u32::from(b'\n')]),
            (Self::Numbers, Some(prompt)) => tokens_of(prompt),
            (Self::Numbers, None) => Err(PromptProblem::Missing.into()),
            (Self::Tokenizer(tokenizer, _), Some(prompt)) => tokenizer.encode(prompt),
            (Self::Tokenizer(tokenizer, _), None) => {
                let end = config.data.end_of_text.as_deref();
                Ok(vec![tokenizer.end_of_text(end)?])
            }
        }
    }

    /// What is written for the next token.
    fn show(&mut self, token: u32) -> Result<Vec<u8>> {
        Ok(match self {
            Self::Bytes => vec![token as u8],
            Self::Numbers => format!("{token} ").into_bytes(),
            Self::Tokenizer(_, stream) => stream.push(token)?.into_bytes(),
        })
    }

    /// What still waits for the rest of a character.
    fn finish(self) -> Result<Vec<u8>> {
        match self {
            Self::Tokenizer(_, stream) => Ok(stream.finish()?.into_bytes()),
            Self::Bytes | Self::Numbers => Ok(Vec::new()),
        }
    }
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
