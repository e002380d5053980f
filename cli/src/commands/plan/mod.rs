//! `pipewright plan`: simulates a step of a schedule.

pub(super) mod gpu;
mod json;
mod kernels;
pub(super) mod links;
mod of_config;
mod of_options;
mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;

use crate::{Error, Result};
use gpu::OnGpus;
use links::Links;
use pipewright::draw::{Panel, Picture, Units};
use pipewright::id::Rank;
use pipewright::plan::{AUTO, Costs, Goal, RankMemory, Replicas, period};
use pipewright::plan::{Exposed, Prediction, Simulation, simulate, simulate_replicas};
use pipewright::schedule::{Action, LinkKind, Schedule};

/// The most ranks of a pipeline that are shown, and the most replicas.
const MOST_RANKS: i64 = 1 << 16;

/// Show what a schedule does and costs, without running it.
///
/// Simulates one step. The table has a line for each rank: the time in which it is busy; the time in which it
/// is idle before its first pass (warm-up), between its passes (waiting) and after its last pass (drain); its
/// bubble, which is the idle share of the makespan; the most activations and the most memory that it holds;
/// and the ranks that it waits for, the longest wait first.
///
/// The makespan is the time until all ranks are done. The span of a rank is the time from its first start to
/// its last end.
///
/// There are two ways to use it: with a config, to see what train will run, or with --ranks, --micro-batches
/// and --schedule. In the second way, times and memory are in any unit you like.
///
/// Several replicas of the pipeline share the micro-batches and meet where they add up their gradients. Then
/// the table is for one of them, and a line says which share of a step is idle, and by how much reductions
/// and transfers make a step longer.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b
  pipewright plan --ranks 4 --micro-batches 8 --schedule gpipe --format json
  pipewright plan --ranks 8 --micro-batches 24 --schedule 1f1b \\
    --forward 18.5 --backward-input 18.1 --backward-weight 9.3 --comm 0.6
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format csv --with-comms > mine.csv
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format svg > timeline.svg
  pipewright plan --ranks 4 --micro-batches 8 --schedule auto --memory 3
  pipewright plan --ranks 4 --replicas 2 --micro-batches 8 --schedule 1f1b --reduce 2
  pipewright plan my.toml --costs costs.json
  pipewright plan my.toml --set pipeline.dtype=bf16 --device h100
  pipewright plan my.toml --costs costs.json --set pipeline.replicas=4 --hosts 4 --between-bandwidth 100MB
More micro-batches make the bubble smaller. With gpipe a rank holds the activations of all
micro-batches; with 1f1b, of at most as many micro-batches as there are ranks."
)]
pub(super) struct Args {
    /// A config, a TOML file: shows the cut and the order that train runs, and predicts a step from measured
    /// costs
    #[arg(conflicts_with_all = ["ranks", "micro_batches", "schedule", "chunks", "forward", "backward_input",
        "backward_weight", "update", "reduce", "saved", "pending", "comm", "replicas"])]
    config: Option<PathBuf>,
    /// With a config: the measured costs, a file written by profile; the same as --set pipeline.costs=FILE
    #[arg(long, value_name = "FILE", requires = "config")]
    costs: Option<PathBuf>,
    #[command(flatten)]
    gpus: OnGpus,
    /// With a config: set a key of it; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE", requires = "config")]
    sets: Vec<String>,
    /// How many ranks (devices) the model is spread over, up to 65536
    #[arg(long, value_name = "P", required_unless_present = "config",
        value_parser = clap::value_parser!(u32).range(..=MOST_RANKS))]
    ranks: Option<u32>,
    /// How many micro-batches a step has, over all replicas
    #[arg(long, value_name = "M", required_unless_present = "config")]
    micro_batches: Option<u32>,
    /// How many replicas of the pipeline share the micro-batches [default: 1]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS))]
    replicas: Option<u32>,
    /// Which replica to show, from 0 [default: one with most micro-batches; in a picture all]
    #[arg(long, value_name = "R")]
    replica: Option<u32>,
    #[command(flatten)]
    cluster: Links,
    /// The schedule: which rank does what, in which order
    #[arg(long, value_name = "NAME", required_unless_present = "config",
        value_parser = PossibleValuesParser::new(Schedule::names().chain([AUTO])))]
    schedule: Option<String>,
    /// With schedule auto: the most memory that a rank may hold, in the unit of --saved (by default one
    /// micro-batch's activations of a rank)
    #[arg(long, value_name = "MEMORY", conflicts_with = "config")]
    memory: Option<f64>,
    /// With schedule auto: what to make short, the makespan (the default) or the longest span of a rank
    #[arg(long, value_name = "makespan|span", conflicts_with = "config")]
    goal: Option<Goal>,
    /// How many stages each rank has, for schedules that do not fix it
    #[arg(long, value_name = "V")]
    chunks: Option<u32>,
    /// Time of a forward of one micro-batch through all of a rank's stages
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    forward: f64,
    /// Time of a backward-input of one micro-batch through all of a rank's stages
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    backward_input: f64,
    /// Time of a backward-weight of one micro-batch through all of a rank's stages
    #[arg(long, value_name = "TIME", default_value_t = 1.0)]
    backward_weight: f64,
    /// Time of a rank's parameter update at the end of a step
    #[arg(long, value_name = "TIME", default_value_t = 0.0)]
    update: f64,
    /// Time to sum a rank's gradients over its replicas, once a step; if given, the schedule has reductions
    #[arg(long, value_name = "TIME")]
    reduce: Option<f64>,
    /// Memory that the forward of one micro-batch leaves for backward-input, on all of a rank's stages
    #[arg(long, value_name = "MEMORY", default_value_t = 1.0)]
    saved: f64,
    /// Memory that the backward-input of one micro-batch leaves for backward-weight, on all of a rank's
    /// stages
    #[arg(long, value_name = "MEMORY", default_value_t = 0.0)]
    pending: f64,
    /// Time of one transfer between two ranks
    #[arg(long, value_name = "TIME", default_value_t = 0.0)]
    comm: f64,
    /// What the links promise: buffered (transfers may overtake each other, as papers assume) or ordered (one
    /// queue a rank, as in NCCL)
    #[arg(long, default_value_t = LinkKind::Buffered)]
    links: LinkKind,
    /// The output: a table for people, CSV in PyTorch's form with a row for each rank, JSON for scripts, or
    /// an SVG picture of the timeline
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Show the sends, receives and reductions between the passes; in a picture, transfers are lines
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
    let subject = match &args.config {
        Some(path) => of_config::subject(path, &args)?,
        None => of_options::subject(&args)?,
    };
    let plan = || Plan::new(&subject, &args);
    let schedule = || -> Result<&Schedule> { Ok(subject.replicas.schedule(subject.shown(&args)?)) };
    super::print(&match args.format {
        Format::Table => table::table(&plan()?),
        Format::Csv if args.with_comms => schedule()?.csv_with_comms(),
        Format::Csv => schedule()?.csv(),
        Format::Json => json::json(&plan()?)?,
        Format::Svg => svg(&subject, &args)?,
    })
}

/// What to plan.
struct Subject {
    replicas: Replicas,
    costs: Costs,
    /// Whether they were measured, so that times are seconds and sizes are bytes.
    measured: bool,
    /// The training, if there is a config.
    training: Option<Training>,
}

impl Subject {
    /// The replica that is shown: the given one, or else one with most micro-batches.
    fn shown(&self, args: &Args) -> Result<u32> {
        let replicas = self.replicas.count();
        match args.replica {
            Some(replica) if replica >= replicas => Err(Error::refused(format!(
                "--replica {replica}: replicas are numbered from 0, and the last one is {}",
                replicas - 1
            ))),
            given => Ok(given.unwrap_or(self.replicas.slowest())),
        }
    }
}

/// A training whose steps are planned.
struct Training {
    /// The forecast of a step, as text.
    forecast: String,
    /// Tokens or images a second, if the costs were measured.
    rate: Option<f64>,
    /// The estimated memory of each rank.
    memory: Vec<RankMemory>,
}

/// A replica's schedule and the results of its simulation.
struct Plan<'a> {
    subject: &'a Subject,
    replica: u32,
    schedule: &'a Schedule,
    links: LinkKind,
    simulation: Simulation,
    /// As a pipeline runs it, if that differs.
    in_turn: Option<Simulation>,
    /// The time from one step to the next without a barrier. `None` for several replicas, which meet.
    period: Option<f64>,
    /// A step of all replicas.
    prediction: Prediction,
    exposed: Exposed,
    with_comms: bool,
}

impl<'a> Plan<'a> {
    fn new(subject: &'a Subject, args: &Args) -> Result<Self> {
        let (replicas, costs, links) = (&subject.replicas, &subject.costs, args.links);
        let replica = subject.shown(args)?;
        let schedule = replicas.schedule(replica);
        let run = schedule.clone().in_turn();
        let in_turn = match run == *schedule {
            true => None,
            false => Some(simulate(&run, costs, links)?),
        };
        let mut simulations = simulate_replicas(replicas, costs, links)?;
        let alone = replicas.count() == 1;
        Ok(Self {
            replica,
            schedule,
            in_turn,
            links,
            simulation: simulations.swap_remove(replicas.place(replica)),
            period: alone.then(|| period(schedule, costs, links)).transpose()?,
            prediction: Prediction::of_replicas(replicas, costs, links)?,
            exposed: Exposed::of(replicas, costs, links)?,
            with_comms: args.with_comms,
            subject,
        })
    }

    /// A rank's actions as text: passes, and with `--with-comms` also transfers, reductions and steps.
    fn actions(&self, rank: u32) -> Vec<String> {
        let shown = |action: &&Action| self.with_comms || action.compute().is_some();
        let actions = self.schedule.actions(Rank(rank)).iter().filter(shown);
        actions.map(Action::to_string).collect()
    }
}

/// The picture of the timeline: of the replica that was asked for, or of all.
fn svg(subject: &Subject, args: &Args) -> Result<String> {
    let (replicas, costs) = (&subject.replicas, &subject.costs);
    let of_one = (args.replica.is_some() || replicas.count() == 1).then(|| subject.shown(args));
    let of_one = of_one.transpose()?;
    let timeline = match of_one {
        Some(replica) => replicas.timeline(replica, costs, args.links)?,
        None => replicas.whole_timeline(costs, args.links)?,
    };
    let title = match of_one {
        Some(replica) if replicas.count() > 1 => {
            format!("{}, replica {replica}", super::title(replicas.schedule(replica)))
        }
        Some(replica) => super::title(replicas.schedule(replica)),
        None => format!(
            "{}: replicas {}, ranks {}, stages {}, micro-batches {}",
            replicas.largest().name(),
            replicas.count(),
            replicas.ranks(),
            replicas.largest().stages(),
            replicas.micro_batches()
        ),
    };
    let picture = Picture {
        panels: vec![Panel {
            title,
            timeline: &timeline,
            replicas: of_one.map_or(replicas.count(), |_| 1),
            shards: 1,
        }],
        units: match subject.measured {
            true => Units::SecondsAndBytes,
            false => Units::Plain,
        },
        transfers: args.with_comms,
    };
    Ok(picture.svg()?)
}
