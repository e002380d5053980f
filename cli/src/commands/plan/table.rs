//! A plan as a table, for people.

use super::Plan;
use pipewright::id::Rank;
use pipewright::plan::RankSimulation;
use pipewright::schedule::MoveStep;

/// A timetable with more columns than this is unreadable in a terminal.
const TIMETABLE_WIDTH: usize = 160;

/// The figures, one line a rank, and the timetable below them.
pub(super) fn table(plan: &Plan<'_>) -> String {
    let (schedule, simulation) = (plan.schedule, &plan.simulation);
    let mut text = plan.subject.training.as_ref().map_or(String::new(), |training| training.forecast.clone());
    text += &format!(
        "schedule {}, ranks {}, stages {}, micro-batches {}, {} links\n\n",
        schedule.name(),
        schedule.ranks(),
        schedule.stages(),
        schedule.micro_batches(),
        plan.links
    );
    text += &replica(plan);
    text += "rank      busy   warm-up   waiting     drain   bubble  peak act.  peak mem.  waits for\n";
    for (rank, figures) in simulation.ranks.iter().enumerate() {
        text += &line(rank, figures, simulation.makespan);
    }
    text += &format!(
        "\nmakespan {:.3}, bubble {:.4}; longest span {:.3}, bubble {:.4}\n",
        simulation.makespan, simulation.bubble_makespan, simulation.span, simulation.bubble_span
    );
    if let Some(run) = &plan.in_turn {
        text += &format!(
            "as it runs, weight gradients in micro-batch order: makespan {:.3}, bubble {:.4}\n",
            run.makespan, run.bubble_makespan
        );
    }
    text += &offloaded(plan);
    if schedule.has_reductions() {
        text += &format!(
            "reductions: {:.3} after the last pass, the rest hidden behind passes\n",
            simulation.exposed_reductions
        );
    }
    text += &match plan.period {
        Some(period) => format!(
            "from a step to the next: {:.3} with a barrier at its end, {period:.3} without\n",
            simulation.step
        ),
        None => format!("from a step to the next: {:.3}\n", plan.prediction.step),
    };
    text += &shares(plan);
    text + "\n" + &picture(plan)
}

/// Which replica the table is for, if there are several.
fn replica(plan: &Plan<'_>) -> String {
    let (replicas, replica) = (&plan.subject.replicas, plan.replica);
    if replicas.count() == 1 {
        return String::new();
    }
    let share = replicas.share(replica);
    let has = match (share.start, share.len()) {
        (_, 0) => "no micro-batch".to_owned(),
        (first, 1) => format!("micro-batch {first}"),
        (first, _) => format!("micro-batches {first} to {}", share.end - 1),
    };
    format!("replica {replica} of {}, {has} of {}\n\n", replicas.count(), replicas.micro_batches())
}

/// How much is offloaded, and how long passes wait for that.
fn offloaded(plan: &Plan<'_>) -> String {
    let schedule = plan.schedule;
    let ranks = (0..schedule.ranks()).map(Rank);
    let away = ranks.flat_map(|rank| schedule.moves(rank)).filter(|next| next.step == MoveStep::Out);
    match away.count() {
        0 => String::new(),
        away => format!(
            "offloaded: {away} of {} activations; ranks wait {:.3} for copies, in all\n",
            schedule.stages() * schedule.micro_batches(),
            plan.simulation.ranks.iter().map(|rank| rank.copying).sum::<f64>(),
        ),
    }
}

/// Which shares of a step are idle and exposed, where something is added up over replicas.
fn shares(plan: &Plan<'_>) -> String {
    if !plan.schedule.has_reductions() {
        return String::new();
    }
    let (prediction, exposed) = (&plan.prediction, &plan.exposed);
    let share = |time: f64| 100.0 * time / prediction.step;
    format!(
        "of a step, {:.1} % is bubble, over all ranks; reductions make it longer by {:.1} % of it, transfers \
         by {:.1} %\n",
        100.0 * prediction.bubble,
        share(exposed.reductions),
        share(exposed.transfers)
    )
}

fn line(rank: usize, figures: &RankSimulation, makespan: f64) -> String {
    let bubble = 100.0 * (1.0 - figures.busy / makespan).max(0.0);
    let waits = figures.waits.iter();
    let waits: Vec<_> = waits.map(|wait| format!("{} ({:.3})", wait.on, wait.time)).collect();
    let line = format!(
        "{rank:<4} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {bubble:>6.2} % {:>10.2} {:>10.2}  {}",
        figures.busy,
        figures.warm_up,
        figures.waiting,
        figures.drain,
        figures.peak_activations,
        figures.peak_memory,
        waits.join(", ")
    );
    line.trim_end().to_string() + "\n"
}

fn picture(plan: &Plan<'_>) -> String {
    if plan.with_comms {
        let row = |rank| format!("rank {rank} | {}\n", plan.actions(rank).join(" "));
        return (0..plan.schedule.ranks()).map(row).collect();
    }
    plan.schedule.timetable_within(TIMETABLE_WIDTH).unwrap_or_else(|| {
        format!("the timetable is wider than {TIMETABLE_WIDTH} columns; --format csv prints the passes\n")
    })
}
