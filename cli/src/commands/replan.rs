//! `pipewright replan`: asks a run that trains to cut its model elsewhere, or to go on by another schedule.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use super::INTERRUPTED;
use crate::compose;
use crate::config::Config;
use crate::error::{Error, Result};
use pipewright::Cut;
use pipewright::run::{Change, Interrupt, NOT_CHANGED, RunDir};
use pipewright::stages::Recompute;
use pipewright::stages::units::counted;

/// Cut the model of a run elsewhere while it trains, or run its passes by another schedule
///
/// A run can also get more or fewer replicas, or shards of a rank, if the run began with enough
/// pipeline.gradient_groups or pipeline.shard_groups for them.
///
/// Layers move to other ranks, and no step is lost. The run changes between two steps (with several
/// processes, at the next step whose number is a multiple of 8). Weights and optimizer state move in memory;
/// the weights stay the same, bit for bit. The config of the run does not change: a run that is resumed
/// begins with its own cut and schedule.
///
/// Without anything else it says which layers the model has, and does nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright replan runs/first
  pipewright replan runs/first 6,4
  pipewright replan runs/first --schedule zb-h1
  pipewright replan runs/first 2,3,3,2 --schedule zb-v     four stages on two ranks
  pipewright replan runs/first --replicas 2                two replicas, each of half as many ranks
  pipewright replan runs/first --replicas 1 --shards 2     one replica, whose ranks have two shards
  pipewright train my.toml --set pipeline.replan=auto      the run finds the cut itself")]
pub(super) struct Args {
    /// The folder of a run that trains now
    run: PathBuf,
    /// How many layers each stage gets, as 6,4; without it, as many as now, or for another number of stages
    /// as many as estimates say
    #[arg(value_delimiter = ',')]
    layers: Vec<usize>,
    /// The schedule, such as zb-h1
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// What all stages recompute in backward
    #[arg(long, value_name = "WHAT")]
    recompute: Option<RecomputeWord>,
    /// The number of replicas; there are as many ranks in all as before, so each replica has more or fewer
    #[arg(long, value_name = "N")]
    replicas: Option<u32>,
    /// The number of shards of a rank; as for --replicas
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
}

/// A word for what is recomputed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum RecomputeWord {
    None,
    Cheap,
    Selective,
    Full,
}

impl From<RecomputeWord> for Recompute {
    fn from(word: RecomputeWord) -> Self {
        match word {
            RecomputeWord::None => Self::None,
            RecomputeWord::Cheap => Self::Cheap,
            RecomputeWord::Selective => Self::Selective,
            RecomputeWord::Full => Self::Full,
        }
    }
}

/// How long it waits between two looks at the run.
const LOOK: Duration = Duration::from_millis(50);

/// After how many looks it says that it waits: 3 seconds.
const TOLD: u32 = 60;

/// How often it looks for an answer after the run has come to it: for a minute. The run may write a
/// checkpoint first.
const PATIENCE: u32 = 1200;

pub(super) fn run(args: &Args) -> Result<ExitCode> {
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
    let names = model.names();
    let now = cut_now(&dir)?.filter(|_| dir.is_training());
    let mut change = Change {
        layers: Some(args.layers.clone()).filter(|layers| !layers.is_empty()),
        schedule: args.schedule.clone(),
        recompute: args.recompute.map(Recompute::from),
        replicas: args.replicas,
        shards: args.shards,
    };
    if change == Change::default() {
        super::print(&listed(args, &names, &compose::shapes_in_words(&config)?, now))?;
        return Ok(ExitCode::SUCCESS);
    }
    check_layers(&args.layers, names.len())?;
    if !dir.is_training() {
        return Err(Error::refused(format!(
            "no process trains in {}: begin with another cut, by --set pipeline.partition=..., or another \
             pipeline.schedule, pipeline.replicas or pipeline.shards",
            args.run.display()
        )));
    }
    let Some(now) = now else {
        return Err(Error::refused(format!(
            "the history of {} does not say how the model is cut now: the run begins just now, or its \
             program does not change cuts (`Run::replan`)",
            args.run.display()
        )));
    };
    if change.layers.is_none() {
        change.layers = compose::counts_after(&config, &now, &change)?;
    }
    let interrupt = Interrupt::on_signals(|| ())?;
    let question = dir.ask_for_cut(change)?;
    // The run takes the file away, and then notes what it did.
    let (mut looks, mut looks_without) = (0, 0);
    loop {
        thread::sleep(LOOK);
        // Asked first: a run that answers may end then.
        let is_training = dir.is_training();
        if let Some(event) = answer(&dir, question)? {
            return match event.strip_prefix(NOT_CHANGED) {
                Some(why) => Err(Error::refused(format!("{}: {why}", args.run.display()))),
                None => super::print(&format!("{event}\n")).map(|()| ExitCode::SUCCESS),
            };
        }
        looks += 1;
        if looks == TOLD {
            eprintln!("waiting until the run comes to it, between two steps; Ctrl-C takes the question back");
        }
        looks_without += u32::from(!dir.asked_cut().exists());
        let why = match (is_training, looks_without > PATIENCE) {
            _ if interrupt.is_requested() => {
                dir.ask_no_more(question);
                eprintln!("the question is taken back, if the run has not come to it yet");
                return Ok(ExitCode::from(INTERRUPTED));
            }
            (false, _) => "the run ended before it answered",
            (true, true) => "the run has taken the question away and told nothing: ask again",
            (true, false) => continue,
        };
        dir.ask_no_more(question);
        return Err(Error::refused(format!("{}: {why}", args.run.display())));
    }
}

/// The layers of a model, stage by stage if it is known how it is cut now. `shapes`: those that are possible.
fn listed(args: &Args, names: &[&str], shapes: &[String], now: Option<Cut>) -> String {
    let run = args.run.display();
    let count = counted(names.len() as u64, "layer");
    let Some(Cut { layers, schedule, replicas, shards, .. }) = now else {
        return format!("{run}: {count}: {}\nno process trains there\n", names.join(", "));
    };
    let several = |count: u32, noun| match count {
        1 => String::new(),
        count => format!(", {count} {noun}"),
    };
    let (replicas, shards) = (several(replicas, "replicas"), several(shards, "shards of a rank"));
    let mut text = format!("{run}: {count} by schedule {schedule}{replicas}{shards}\n");
    let mut left = names;
    for (stage, count) in layers.iter().enumerate() {
        let (own, rest) = left.split_at((*count).min(left.len()));
        text += &format!("stage {stage}, {}: {}\n", counted(own.len() as u64, "layer"), own.join(", "));
        left = rest;
    }
    match shapes {
        [] => text,
        shapes => format!("{text}possible with its groups: {}\n", shapes.join("; ")),
    }
}

/// Refuses layers of stages that do not make up a model of this many, if there are any.
fn check_layers(layers: &[usize], all: usize) -> Result<()> {
    let sum: u128 = layers.iter().map(|count| *count as u128).sum();
    let problem = match layers.iter().position(|count| *count == 0) {
        Some(stage) => format!("stage {stage} would have no layer: each needs 1 or more"),
        None if layers.is_empty() || sum == all as u128 => return Ok(()),
        None => {
            let terms = layers.iter().map(usize::to_string).collect::<Vec<_>>().join(" + ");
            format!("{terms} layers are {sum}, and the model has {all}")
        }
    };
    Err(Error::refused(problem))
}

/// What the history says of a question.
fn answer(dir: &RunDir, question: u64) -> Result<Option<String>> {
    let answers = dir.events()?.into_iter().find(|entry| entry.answers == Some(question));
    Ok(answers.map(|entry| entry.event))
}

/// The cut of a run, as its history tells.
fn cut_now(dir: &RunDir) -> Result<Option<Cut>> {
    Ok(dir.events()?.into_iter().rev().find_map(|entry| entry.cut))
}
