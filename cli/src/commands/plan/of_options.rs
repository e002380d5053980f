//! The plan of a schedule that options give, in any unit of time and memory.

use super::{Args, Subject};
use crate::commands::tell_search;
use crate::error::{Error, Result};
use pipewright::groups::GradientGroups;
use pipewright::plan::{AUTO, Costs, Goal, Replicas, StageCost, Wanted, auto};
use pipewright::schedule::Schedule;

/// Refuses options that need a config. The parser accepts them when other options exclude a config.
fn refuse_without_config(args: &Args) -> Result<()> {
    let (option, advice) = if args.costs.is_some() {
        (
            "--costs",
            "write `pipewright plan CONFIG --costs FILE`, or give --forward, --backward-input, \
             --backward-weight and --comm",
        )
    } else if !args.cluster.are_none() {
        (
            "--hosts, --link-* or --between-*",
            "write `pipewright plan CONFIG`, or give times by --comm and --reduce",
        )
    } else if !args.sets.is_empty() {
        ("--set", "write `pipewright plan CONFIG --set SECTION.KEY=VALUE`, or leave it out")
    } else {
        return Ok(());
    };
    Err(Error::refused(format!("{option} is for the plan of a config: {advice}")))
}

/// The schedule and the costs from the options.
pub(super) fn subject(args: &Args) -> Result<Subject> {
    refuse_without_config(args)?;
    let share = StageCost {
        forward: args.forward,
        backward_input: args.backward_input,
        backward_weight: args.backward_weight,
        update: args.update,
        reduce: args.reduce.unwrap_or(0.0),
        saved: args.saved,
        pending: args.pending,
        ..StageCost::NOTHING
    };
    let costs = Costs::share(share, args.comm)?;
    Ok(Subject { replicas: replicas(args, &costs)?, costs, measured: false, training: None })
}

/// The schedules of the replicas. A single pipeline is shown as its schedule is made, not as it runs.
fn replicas(args: &Args, costs: &Costs) -> Result<Replicas> {
    let count = args.replicas.unwrap_or(1);
    let groups = GradientGroups::new(args.micro_batches.unwrap_or_default(), GradientGroups::usual(count));
    let schedule = named(args, groups.largest_share(count), costs)?;
    if count == 1 {
        return Ok(Replicas::one(match args.reduce {
            // The same for any number of them, but for the time.
            Some(_) => schedule.for_replicas(2),
            None => schedule,
        }));
    }
    Replicas::new(groups, count, |share| match schedule.name() {
        _ if share == schedule.micro_batches() => Ok(schedule.clone()),
        AUTO => Ok(schedule.part(0..share)),
        _ => named(args, share, costs),
    })
}

/// The schedule of a pipeline with this number of micro-batches.
fn named(args: &Args, micro_batches: u32, costs: &Costs) -> Result<Schedule> {
    let ranks = args.ranks.unwrap_or_default();
    let name = args.schedule.as_deref().unwrap_or_default();
    match name {
        AUTO => chosen(args, ranks, micro_batches, costs),
        _ if args.memory.is_some() || args.goal.is_some() => Err(Error::refused(format!(
            "--memory and --goal are for --schedule auto; {name} has a fixed order"
        ))),
        _ => Ok(Schedule::make(name, ranks, args.chunks, micro_batches, costs)?),
    }
}

/// The schedule that `auto` finds. Its name and the reason are printed to standard error.
fn chosen(args: &Args, ranks: u32, micro_batches: u32, costs: &Costs) -> Result<Schedule> {
    tell_search(ranks, micro_batches);
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
