//! `pipewright sample`: a trained model writes text. Here is also what `train` and `evaluate` need to read
//! and write text.

pub(super) mod chats;
mod choice;
pub(super) mod source;
pub(super) mod spread;
mod stop;
mod talk;
pub(super) mod words;
pub(super) mod written;

use std::path::PathBuf;
use std::time::Instant;

use crate::commands::saved::SavedModel;
use crate::compose::Writing;
use crate::error::{Error, Result};
use chats::Chats;
use choice::ChoiceArgs;
use pipewright::pipeline::Pipeline;
use pipewright::run::{Choice, Generator};
use pipewright::stages::loss::{AnyLoss, CrossEntropy};
use pipewright::stages::{Sequential, Shape};
use pipewright::tokenizer::Chat;
use source::{Source, Text};
use spread::{Busy, Spread};
use talk::Manner;
use words::{Prompt, Words, check_prompt, exceeds};
use written::{Ended, Limits};

/// Write text with a trained model, or with one from Hugging Face
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (`pipewright train` makes such a run, `pipewright import` such a folder):
  pipewright sample runs/gpt-text --prompt \"First Citizen:\"
  pipewright sample runs/gpt-text/checkpoints/step-00000700 --temperature 0 --tokens 100
  pipewright sample models/smollm2 --chat --system \"Answer in rhymes.\"
  pipewright sample models/smollm2 --chat --prompt \"Why is the sky blue?\" --top-p 0.9
  pipewright sample models/smollm2 --ranks 2 --prompt \"The capital of France is\"")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint; of a checkpoint; or of a model in Hugging Face's form
    path: PathBuf,
    /// The beginning of the text [default: the token that begins or ends a document, or a line break]. The
    /// tokenizer adds to it what it adds to every text. A model that was trained on token files without a
    /// tokenizer needs a prompt of token numbers, such as "17 4 256"
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Talk with a model that was trained to chat: each line of standard input is a message, and the model
    /// answers it and remembers all before it. `/reset` begins a new conversation, `/exit` or Ctrl-D ends.
    /// With a prompt, only the prompt is answered. The chat template beside the model's tokenizer writes the
    /// messages
    #[arg(long)]
    chat: bool,
    /// What a message of the system says at the beginning of the conversation
    #[arg(long, requires = "chat", value_name = "TEXT")]
    system: Option<String>,
    /// How many tokens to write, in a conversation for each answer; for a model that was trained on text
    /// without a tokenizer, a token is a byte. A text that ends by itself may be shorter
    #[arg(long, default_value_t = 500, value_name = "N")]
    tokens: usize,
    #[command(flatten)]
    choice: ChoiceArgs,
    /// End the text before this word; may be given several times
    #[arg(long, value_name = "WORD")]
    stop: Vec<String>,
    /// The seed of the random choices: the same seed writes the same text
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    spread: Spread,
    /// Say at the end how long it took
    #[arg(long)]
    timing: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let choice = args.choice.checked()?;
    args.spread.enter();
    let begun = Instant::now();
    let source = Source::open(&args.path).map_err(Error::not_begun)?;
    args.spread.check(&source.model)?;
    if args.chat && args.prompt.is_none() {
        return converse(args, source, choice);
    }
    let mut words = Words::of(&source.text);
    let refuse = |problem: String| Error::refused(format!("--prompt: {problem}"));
    let prompt = match args.prompt.as_deref().filter(|_| args.chat) {
        Some(question) => self::question(&source.text, args.system.as_deref(), question),
        None => words.prompt(args.prompt.as_deref(), refuse),
    };
    let Prompt { tokens: prompt, shown } = prompt.map_err(Error::not_begun)?;
    let Writing { context, .. } = source.writing;
    check_prompt(&prompt, source.writing).map_err(refuse)?;
    let mut model = launch(&args.spread, source.model)?;
    let loaded = begun.elapsed();
    let mut generator = Generator::new(context, choice, args.seed, prompt.clone());
    for &token in &prompt[shown] {
        if !super::write(&words.show(token)?)? {
            return Ok(());
        }
    }
    let ends = match args.chat {
        true => source.text.ends_of_answer(),
        false => source.text.ends.clone(),
    };
    let limits = Limits { most: args.tokens, tokens: &ends, words: &args.stop };
    let written =
        written::write(&mut model, &mut generator, words, limits, &mut |piece| super::write(piece.text))?;
    if written.ended == Ended::Unread {
        return Ok(());
    }
    super::print("\n")?;
    if exceeds(context, prompt.len(), written.count) {
        eprintln!(
            "warning: this text is longer than the model's context of {context} tokens: its end was written \
             after the last half of a context only"
        );
    }
    if args.timing {
        eprintln!("loaded in {:.2} s; {}", loaded.as_secs_f64(), written.timing(prompt.len()));
    }
    Ok(())
}

/// Talks with the model.
fn converse(args: &Args, source: Source, choice: Choice) -> Result<()> {
    let system = args.system.as_deref();
    talk::check(&source.text, system).map_err(Error::not_begun)?;
    let mut model = launch(&args.spread, source.model)?;
    let manner =
        Manner { system, choice, seed: args.seed, most: args.tokens, stop: &args.stop, timing: args.timing };
    talk::talk(&source.text, source.writing, manner, &mut model)
}

/// Starts the ranks of a model that writes text.
pub(super) fn launch(spread: &Spread, model: SavedModel) -> Result<Pipeline<Sequential>> {
    let shapes = (Shape::ids(&[1, 1]), Shape::ids(&[1, 1]));
    spread.launch(model, AnyLoss::new(CrossEntropy::default()), shapes, Busy::One).map_err(Error::not_begun)
}

/// The tokens of a question in a chat, after what the system says if that is given.
fn question(text: &Text, system: Option<&str>, question: &str) -> Result<Prompt> {
    let system = system.map(|system| ("system", system));
    let messages: Vec<_> = system.into_iter().chain([("user", question)]).collect();
    let tokens = Chats::of(text)?.tokens(&Chat::of(&messages))?;
    Ok(Prompt { tokens, shown: 0..0 })
}
