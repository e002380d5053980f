//! `pipewright sample`: a trained model writes text. Here is also what `train` and `evaluate` need to read
//! and write text.

mod choice;
pub(super) mod source;
pub(super) mod spread;
mod stop;
pub(super) mod words;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::compose::Writing;
use crate::error::{Error, Result};
use choice::ChoiceArgs;
use pipewright::run::Generator;
use pipewright::stages::Shape;
use pipewright::stages::loss::CrossEntropy;
use source::Source;
use spread::{Busy, Spread};
use stop::Stop;
use words::{Prompt, Words, check_prompt, exceeds};

/// Write text with a trained model, or with one from Hugging Face
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples (`pipewright train` makes such a run, `pipewright import` such a folder):
  pipewright sample runs/gpt-text --prompt \"First Citizen:\"
  pipewright sample runs/gpt-text/checkpoints/step-00000700 --temperature 0 --tokens 100
  pipewright sample models/smollm2 --chat --prompt \"Why is the sky blue?\" --top-p 0.9
  pipewright sample models/smollm2 --chat --system \"Answer in rhymes.\" --prompt \"Who are you?\"
  pipewright sample models/smollm2 --ranks 2 --prompt \"The capital of France is\"")]
pub(super) struct Args {
    /// The folder of a run, for its newest checkpoint; of a checkpoint; or of a model in Hugging Face's form
    path: PathBuf,
    /// The beginning of the text [default: the token that begins or ends a document, or a line break]. The
    /// tokenizer adds to it what it adds to every text. A model that was trained on token files without a
    /// tokenizer needs a prompt of token numbers, such as "17 4 256"
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Take the prompt as a question, and write the answer of a model that was trained to chat. The question
    /// is written by the chat template beside the model's tokenizer
    #[arg(long, requires = "prompt")]
    chat: bool,
    /// What a message of the system says before the question
    #[arg(long, requires = "chat", value_name = "TEXT")]
    system: Option<String>,
    /// How many tokens to write; for a model that was trained on text without a tokenizer, a token is a byte.
    /// A text that ends by itself may be shorter
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
    let mut words = Words::of(&source.text);
    let refuse = |problem: String| Error::refused(format!("--prompt: {problem}"));
    let prompt = match args.prompt.as_deref().filter(|_| args.chat) {
        Some(question) => words.question(args.system.as_deref(), question),
        None => words.prompt(args.prompt.as_deref(), refuse),
    };
    let Prompt { tokens: prompt, shown } = prompt.map_err(Error::not_begun)?;
    let Writing { context, .. } = source.writing;
    check_prompt(&prompt, source.writing).map_err(refuse)?;
    let mut model = args
        .spread
        .launch(source.model, CrossEntropy::default(), (Shape::ids(&[1, 1]), Shape::ids(&[1, 1])), Busy::One)
        .map_err(Error::not_begun)?;
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
    let mut stop = Stop::new(&args.stop);
    let (begun, mut first, mut count) = (Instant::now(), Duration::ZERO, 0);
    for _ in 0..args.tokens {
        let token = generator.next(&mut model)?;
        count += 1;
        if count == 1 {
            first = begun.elapsed();
        }
        if ends.contains(&token) {
            break;
        }
        let (text, is_last) = stop.push(&words.show(token)?);
        if !super::write(&text)? {
            return Ok(());
        }
        if is_last {
            break;
        }
    }
    super::write(&stop.finish())?;
    super::write(&words.finish()?)?;
    super::print("\n")?;
    if exceeds(context, prompt.len(), count) {
        eprintln!(
            "warning: this text is longer than the model's context of {context} tokens: its end was written \
             after the last half of a context only"
        );
    }
    if args.timing {
        let rest = (begun.elapsed() - first).as_secs_f64();
        eprintln!(
            "loaded in {:.2} s; {} tokens read and the first written in {:.2} s; {} more in {rest:.2} s, \
             {:.1} a second",
            loaded.as_secs_f64(),
            prompt.len(),
            first.as_secs_f64(),
            count.max(1) - 1,
            (count.max(1) - 1) as f64 / rest.max(1e-9)
        );
    }
    Ok(())
}
