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
/// Without LAYERS it says which units the model has, and does nothing.
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
    let (sum, given) = (args.layers.iter().sum::<usize>(), args.layers.len());
    if given != stages || sum != names.len() || args.layers.contains(&0) {
        return Err(Error::refused(format!(
            "{} of {sum} layers do not make up the model: its {} are in {}, each with 1 or more",
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
    let before = of_cut(&dir)?.len();
    dir.ask_for_cut(args.layers.clone())?;
    // The run takes the file away, and then notes what it did.
    loop {
        thread::sleep(LOOK);
        if let Some(entry) = of_cut(&dir)?.get(before) {
            return super::print(&format!("{}\n", entry.event));
        }
        if !dir.is_training() {
            let _ = fs::remove_file(dir.asked_cut());
            return Err(Error::refused(format!(
                "{}: the run ended before it came to it",
                args.run.display()
            )));
        }
    }
}

/// The events of the run that are about its cut.
fn of_cut(dir: &RunDir) -> Result<Vec<HistoryEntry>> {
    let path = dir.history();
    let text = fs::read_to_string(&path).map_err(pipewright::Error::io("read", &path))?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<HistoryEntry>(line).ok());
    Ok(entries.filter(|entry| entry.of_cut).collect())
}
