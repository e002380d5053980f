//! `pipewright plan`: what a schedule costs, before anything runs.

mod json;
mod of_config;
mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;

use crate::Result;
use crate::draw::{Panel, Picture, Units};
use crate::error::CommandError;
use crate::id::Rank;
use crate::plan::{AUTO, Simulation, Wanted, auto, period, simulate};
use crate::plan::{Costs, Goal, StageCost};
use crate::schedule::{Action, Links, Schedule};

/// Show what a schedule does and costs, without running anything.
///
/// Simulates one step and reports its time, its bubble (the idle share), where each rank's time goes and the most that
/// it holds. The span is the longest time one rank is at it, from its first start to its last end; the makespan is the
/// time until all are done. A rank that idles between its passes waits for another; the last column says for which, the
/// longest first.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b
  pipewright plan --ranks 4 --micro-batches 8 --schedule gpipe --format json
  pipewright plan --ranks 8 --micro-batches 24 --schedule 1f1b --forward 18.5 --backward-input 18.1 --backward-weight 9.3 --comm 0.6
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format csv --with-comms > mine.csv
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format svg > timeline.svg
  pipewright plan --ranks 4 --micro-batches 8 --schedule auto --memory 3
  pipewright plan examples/gpt-text.toml --costs costs.json
More micro-batches make the bubble smaller; gpipe holds all of them, 1f1b no more than there are ranks."
)]
pub(super) struct Args {
    /// A config, a TOML file: the cut and the order that `train` runs, and what a step will take by measured costs
    #[arg(conflicts_with_all = ["ranks", "micro_batches", "schedule", "chunks", "forward", "backward_input",
        "backward_weight", "update", "reduce", "saved", "pending", "comm"])]
    config: Option<PathBuf>,
    /// With a config: the measured costs, as `profile` writes them; the same as --set pipeline.costs=FILE
    #[arg(long, value_name = "FILE", requires = "config")]
    costs: Option<PathBuf>,
    /// With a config: set a key of it; repeat it for more
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", requires = "config")]
    sets: Vec<String>,
    /// How many ranks (devices) the model is spread over
    #[arg(long, value_name = "P", required_unless_present = "config")]
    ranks: Option<u32>,
    /// How many micro-batches a step has
    #[arg(long, value_name = "M", required_unless_present = "config")]
    micro_batches: Option<u32>,
    /// What each rank does, in which order
    #[arg(long, value_name = "NAME", required_unless_present = "config",
        value_parser = PossibleValuesParser::new(Schedule::names().chain([AUTO])))]
    schedule: Option<String>,
    /// With schedule auto: the most that a rank may hold, in the unit of --saved (without it: activations of micro-batches)
    #[arg(long, value_name = "MEMORY", conflicts_with = "config")]
    memory: Option<f64>,
    /// With schedule auto: what is to be short, the makespan (when nobody says) or the longest span of a rank
    #[arg(long, value_name = "makespan|span", conflicts_with = "config")]
    goal: Option<Goal>,
    /// How many stages each rank has, for the schedules that leave it open
    #[arg(long, value_name = "V")]
    chunks: Option<u32>,
    /// Time of a forward of one micro-batch through a rank's whole share
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    forward: f64,
    /// Time of a backward-input, likewise
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    backward_input: f64,
    /// Time of a backward-weight, likewise
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    backward_weight: f64,
    /// Time of a rank's parameter update at the end of a step
    #[arg(long, value_name = "TIME", default_value_t = 0.0)]
    update: f64,
    /// Time of the sum of a rank's gradients over its replicas, once a step; with it the schedule has reductions
    #[arg(long, value_name = "TIME")]
    reduce: Option<f64>,
    /// Memory that a forward leaves for its backward-input, through a rank's whole share
    #[arg(long, value_name = "MEMORY", default_value_t = 1.0)]
    saved: f64,
    /// Memory that a backward-input leaves for its backward-weight, likewise
    #[arg(long, value_name = "MEMORY", default_value_t = 0.0)]
    pending: f64,
    /// Time of one transfer between two ranks
    #[arg(long, value_name = "TIME", default_value_t = 0.0)]
    comm: f64,
    /// What the links promise: buffered (transfers may overtake each other, as papers assume) or ordered (one
    /// queue a rank, as NCCL)
    #[arg(long, default_value_t = Links::Buffered)]
    links: Links,
    /// How to print it: a table for people, CSV in PyTorch's form with a row a rank, JSON, or a picture (SVG) of the
    /// timeline
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Show the sends, receives and reductions between the passes; in a picture, the transfers as lines
    #[arg(long)]
    with_comms: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
    Svg,
}

pub(super) fn run(args: Args) -> Result<()> {
    let Subject {
        schedule,
        costs,
        training,
    } = match &args.config {
        Some(path) => of_config::subject(path, &args)?,
        None => of_options(&args)?,
    };
    let plan = || Plan::new(&schedule, &costs, &training, &args);
    super::print(&match args.format {
        Format::Table => table::table(&plan()?),
        Format::Csv if args.with_comms => schedule.csv_with_comms(),
        Format::Csv => schedule.csv(),
        Format::Json => json::json(&plan()?)?,
        Format::Svg => svg(&args, &schedule, &costs)?,
    })
}

/// What is planned.
struct Subject {
    schedule: Schedule,
    costs: Costs,
    /// What is trained so, when that is known.
    training: Option<Training>,
}

/// A training of which steps are planned.
struct Training {
    /// What a step will be, in words.
    forecast: String,
    /// Tokens or images a second.
    rate: f64,
}

/// Refuses options that are about a config: the parser lets them pass where other options exclude a config.
fn refuse_without_config(args: &Args) -> Result<()> {
    let (option, advice) = if args.costs.is_some() {
        (
            "--costs",
            "write `pipewright plan CONFIG --costs FILE`, or give --forward, --backward-input, --backward-weight and --comm",
        )
    } else if !args.sets.is_empty() {
        (
            "--set",
            "write `pipewright plan CONFIG --set SECTION.KEY=VALUE`, or leave it out",
        )
    } else {
        return Ok(());
    };
    Err(CommandError::WithoutConfig { option, advice }.into())
}

/// The schedule and the costs that the options say.
fn of_options(args: &Args) -> Result<Subject> {
    refuse_without_config(args)?;
    let share = StageCost {
        forward: args.forward,
        backward_input: args.backward_input,
        backward_weight: args.backward_weight,
        update: args.update,
        reduce: args.reduce.unwrap_or(0.0),
        saved: args.saved,
        pending: args.pending,
        restored: 0.0,
    };
    let costs = Costs::share(share, args.comm)?;
    let (ranks, micro_batches) = (
        args.ranks.unwrap_or_default(),
        args.micro_batches.unwrap_or_default(),
    );
    let name = args.schedule.as_deref().unwrap_or_default();
    let schedule = match name {
        AUTO => chosen(args, ranks, micro_batches, &costs)?,
        _ if args.memory.is_some() || args.goal.is_some() => {
            let schedule = name.to_owned();
            return Err(CommandError::OnlyForAuto { schedule }.into());
        }
        _ => Schedule::make(name, ranks, args.chunks, micro_batches, &costs)?,
    };
    Ok(Subject {
        schedule: match args.reduce {
            // The same for any number of them, but for the time.
            Some(_) => schedule.for_replicas(2),
            None => schedule,
        },
        costs,
        training: None,
    })
}

/// The schedule that is shortest; says on the error stream which it is and why.
fn chosen(args: &Args, ranks: u32, micro_batches: u32, costs: &Costs) -> Result<Schedule> {
    let auto = auto(&Wanted {
        ranks,
        chunks: args.chunks,
        micro_batches,
        costs,
        memory: args.memory,
        links: args.links,
        goal: args.goal.unwrap_or(Goal::Makespan),
    })?;
    eprintln!("{auto}");
    Ok(auto.schedule)
}

/// A schedule and what it comes to.
struct Plan<'a> {
    schedule: &'a Schedule,
    links: Links,
    simulation: Simulation,
    /// As a pipeline runs it, where that differs.
    in_turn: Option<Simulation>,
    /// From a step to the next without a barrier.
    period: f64,
    training: &'a Option<Training>,
    with_comms: bool,
}

impl<'a> Plan<'a> {
    fn new(
        schedule: &'a Schedule,
        costs: &Costs,
        training: &'a Option<Training>,
        args: &Args,
    ) -> Result<Self> {
        let run = schedule.clone().in_turn();
        let in_turn = match run == *schedule {
            true => None,
            false => Some(simulate(&run, costs, args.links)?),
        };
        Ok(Self {
            schedule,
            in_turn,
            links: args.links,
            simulation: simulate(schedule, costs, args.links)?,
            period: period(schedule, costs, args.links)?,
            training,
            with_comms: args.with_comms,
        })
    }

    /// What a rank does, in text: passes, and where they are asked for transfers, reductions and steps too.
    fn actions(&self, rank: u32) -> Vec<String> {
        let shown = |action: &&Action| self.with_comms || action.compute().is_some();
        let actions = self.schedule.actions(Rank(rank)).iter().filter(shown);
        actions.map(Action::to_string).collect()
    }
}

/// The picture of the timeline.
fn svg(args: &Args, schedule: &Schedule, costs: &Costs) -> Result<String> {
    let timeline = schedule.timeline(costs, args.links)?;
    let picture = Picture {
        panels: vec![Panel {
            title: super::title(schedule),
            timeline: &timeline,
        }],
        units: if args.config.is_some() {
            Units::SecondsAndBytes
        } else {
            Units::Plain
        },
        transfers: args.with_comms,
    };
    picture.svg()
}
