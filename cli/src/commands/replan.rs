//! `pipewright replan`: asks a run that trains to cut its model elsewhere.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::compose;
use crate::config::Config;
use crate::error::{Error, Result};
use pipewright::run::{HistoryEntry, RunDir};
use pipewright::stages::units::counted;

/// Cut the model of a run elsewhere while it trains: layers move to other ranks, and no step is lost
///
/// The run takes the new cut between two steps (with several processes, at the next step whose number is a
/// multiple of 8). Weights and optimizer state move in memory; the weights stay the same, bit for bit. The
/// config of the run does not change: a run that is resumed begins with its own cut.
///
/// Without LAYERS it says which layers the model has, and does nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright replan runs/first
  pipewright replan runs/first 6,4
  pipewright train my.toml --set pipeline.replan=auto      the run finds the cut itself")]
pub(super) struct Args {
    /// The folder of a run that trains now
    run: PathBuf,
    /// How many layers each stage gets, as 6,4
    #[arg(value_delimiter = ',')]
    layers: Vec<usize>,
}

/// How long it waits between two looks at the run.
const LOOK: Duration = Duration::from_millis(50);

/// How often it looks for an answer after the run has come to it: for a minute. The run may write a
/// checkpoint first.
const PATIENCE: u32 = 1200;

pub(super) fn run(args: &Args) -> Result<()> {
    let dir = RunDir::at(&args.run);
    let path = dir.config();
    if !dir.is_run() {
        return Err(Error::refused(format!(
            "there is no run in {}: name the folder of a run, such as runs/first",
            args.run.display()
        )));
    }
    let text = fs::read_to_string(&path).map_err(pipewright::Error::io("read", &path))?;
    let config = Config::parse(&path.display().to_string(), &text, &[], &[])?;
    let model = compose::model(&config)?;
    let (names, stages) = (model.names(), config.pipeline.stages);
    if args.layers.is_empty() {
        return super::print(&format!(
            "{}: {} in {}: {}\n",
            args.run.display(),
            counted(names.len() as u64, "layer"),
            counted(stages as u64, "stage"),
            names.join(", ")
        ));
    }
    let sum = args.layers.iter().fold(0_usize, |sum, count| sum.saturating_add(*count));
    let given = args.layers.len();
    if given != stages || sum != names.len() || args.layers.contains(&0) {
        return Err(Error::refused(format!(
            "{} of {sum} layers do not make up the model: its {} are in {}, and each stage needs 1 or more",
            counted(given as u64, "stage"),
            counted(names.len() as u64, "layer"),
            counted(stages as u64, "stage"),
        )));
    }
    if !dir.is_training() {
        return Err(Error::refused(format!(
            "no process trains in {}: begin with another cut, by --set pipeline.partition=...",
            args.run.display()
        )));
    }
    let question = dir.ask_for_cut(args.layers.clone())?;
    // The run takes the file away, and then notes what it did.
    let mut looks_without = 0;
    loop {
        thread::sleep(LOOK);
        if let Some(event) = answer(&dir, question)? {
            return match event.strip_prefix(REFUSED) {
                Some(why) => Err(Error::refused(format!("{}: {why}", args.run.display()))),
                None => super::print(&format!("{event}\n")),
            };
        }
        looks_without += u32::from(!dir.asked_cut().exists());
        let why = match (dir.is_training(), looks_without > PATIENCE) {
            (false, _) => "the run ended, and has told nothing of the cut",
            (true, true) => "the run has taken the question away and told nothing: ask again",
            (true, false) => continue,
        };
        let _ = fs::remove_file(dir.asked_cut());
        return Err(Error::refused(format!("{}: {why}", args.run.display())));
    }
}

/// How an answer begins that says no.
const REFUSED: &str = "not cut anew: ";

/// What the history says of a question.
fn answer(dir: &RunDir, question: u64) -> Result<Option<String>> {
    let path = dir.history();
    let text = fs::read(&path).map_err(pipewright::Error::io("read", &path))?;
    let mut lines = text.split(|byte| *byte == b'\n');
    Ok(lines.find_map(|line| {
        let entry = serde_json::from_slice::<HistoryEntry>(line).ok()?;
        (entry.answers == Some(question)).then_some(entry.event)
    }))
}
