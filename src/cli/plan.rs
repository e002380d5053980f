//! `pipewright plan`: what a schedule costs, before anything runs.

use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use serde::Serialize;

use crate::draw::{Panel, Picture, Units};
use crate::id::Rank;
use crate::plan::{Simulation, simulate};
use crate::schedule::{Action, Costs, Links, Schedule, StageCost};
use crate::{Error, Result};

/// Above this many columns a timetable is no help in a terminal.
const TIMETABLE_WIDTH: usize = 160;

/// Show what a schedule does and costs, without running anything.
///
/// Simulates one step and reports its time, its bubble (the idle share) and the most activations each rank
/// holds. The span is the longest time one rank is at it, from its first start to its last end; the makespan
/// is the time until all are done.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b
  pipewright plan --ranks 4 --micro-batches 8 --schedule gpipe --format json
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format csv --with-comms > mine.csv
  pipewright plan --ranks 4 --micro-batches 8 --schedule 1f1b --format svg > timeline.svg
More micro-batches make the bubble smaller; gpipe holds all of them, 1f1b no more than there are ranks.")]
pub(super) struct Args {
    /// How many ranks (devices) the model is spread over
    #[arg(long, value_name = "P")]
    ranks: u32,
    /// How many micro-batches a step has
    #[arg(long, value_name = "M")]
    micro_batches: u32,
    /// What each rank does, in which order
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Schedule::names()))]
    schedule: String,
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
    /// Show the sends and receives between the passes; in a picture, the transfers as lines
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
    let share = StageCost {
        forward: args.forward,
        backward_input: args.backward_input,
        backward_weight: args.backward_weight,
        ..StageCost::default()
    };
    let costs = Costs::share(share, args.comm)?;
    let schedule = Schedule::make(
        &args.schedule,
        args.ranks,
        args.chunks,
        args.micro_batches,
        &costs,
    )?;
    let simulation = simulate(&schedule, &costs, args.links)?;
    super::print(&match args.format {
        Format::Table => table(&args, &schedule, &simulation),
        Format::Csv if args.with_comms => schedule.csv_with_comms(),
        Format::Csv => schedule.csv(),
        Format::Json => json(&args, &schedule, &simulation)?,
        Format::Svg => svg(&args, &schedule, &costs)?,
    })
}

#[derive(Serialize)]
struct Plan<'a> {
    schedule: &'a str,
    ranks: u32,
    stages: u32,
    chunks: u32,
    micro_batches: u32,
    span: f64,
    makespan: f64,
    bubble_span: f64,
    bubble_makespan: f64,
    peak_activations: Vec<f64>,
    actions: Vec<Vec<String>>,
}

fn json(args: &Args, schedule: &Schedule, simulation: &Simulation) -> Result<String> {
    let plan = Plan {
        schedule: schedule.name(),
        ranks: schedule.ranks(),
        stages: schedule.stages(),
        chunks: schedule.stages() / schedule.ranks(),
        micro_batches: schedule.micro_batches(),
        span: simulation.span,
        makespan: simulation.makespan,
        bubble_span: simulation.bubble_span,
        bubble_makespan: simulation.bubble_makespan,
        peak_activations: simulation
            .ranks
            .iter()
            .map(|rank| rank.peak_activations)
            .collect(),
        actions: (0..schedule.ranks())
            .map(|rank| actions(args, schedule, Rank(rank)))
            .collect(),
    };
    let text = serde_json::to_string(&plan)
        .map_err(|error| Error::Invalid(format!("no JSON for this plan: {error}")))?;
    Ok(text + "\n")
}

/// The picture of the timeline.
fn svg(args: &Args, schedule: &Schedule, costs: &Costs) -> Result<String> {
    let timeline = schedule.timeline(costs, args.links)?;
    let picture = Picture {
        panels: vec![Panel {
            title: super::title(schedule),
            timeline: &timeline,
        }],
        units: Units::Shares,
        transfers: args.with_comms,
    };
    picture.svg()
}

fn actions(args: &Args, schedule: &Schedule, rank: Rank) -> Vec<String> {
    let shown = |action: &&Action| args.with_comms || action.compute().is_some();
    schedule
        .actions(rank)
        .iter()
        .filter(shown)
        .map(Action::to_string)
        .collect()
}

fn table(args: &Args, schedule: &Schedule, simulation: &Simulation) -> String {
    let mut text = format!(
        "schedule {}, ranks {}, stages {}, micro-batches {}, {} links\n\n",
        schedule.name(),
        schedule.ranks(),
        schedule.stages(),
        schedule.micro_batches(),
        args.links
    );
    text += "rank        busy        span    bubble  peak activations\n";
    for (rank, sim) in simulation.ranks.iter().enumerate() {
        let bubble = 100.0 * (1.0 - sim.busy / simulation.makespan).max(0.0);
        text += &format!(
            "{rank:<4} {:>11.3} {:>11.3} {bubble:>7.2} % {:>17.2}\n",
            sim.busy, sim.span, sim.peak_activations
        );
    }
    text += &format!(
        "\nmakespan {:.3}, bubble {:.4}; longest span {:.3}, bubble {:.4}\n\n",
        simulation.makespan, simulation.bubble_makespan, simulation.span, simulation.bubble_span
    );
    text + &picture(args, schedule)
}

fn picture(args: &Args, schedule: &Schedule) -> String {
    if args.with_comms {
        let row = |rank| {
            format!(
                "rank {rank} | {}\n",
                actions(args, schedule, Rank(rank)).join(" ")
            )
        };
        return (0..schedule.ranks()).map(row).collect();
    }
    let timetable = schedule.timetable();
    if timetable.lines().all(|line| line.len() <= TIMETABLE_WIDTH) {
        return timetable;
    }
    format!("the timetable is wider than {TIMETABLE_WIDTH} columns; --format csv prints the passes\n")
}
