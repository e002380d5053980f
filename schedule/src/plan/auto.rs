//! The schedule that is shortest at given costs and fits a given memory.

use std::fmt;

use crate::id::{Rank, StageId};
use crate::plan::greedy::{Policy, Task, best, climb, in_flight, least_memory, policies};
use crate::plan::{Costs, Goal, Simulation, simulate, vee};
use crate::schedule::{LinkKind, Pass, Placement, Schedule};
use crate::{Error, Result};

/// The name under which commands and configs ask for [`auto`].
pub const AUTO: &str = "auto";

/// The named schedule to cut a model by, before the stages' costs are known. Its placement and its
/// activations in flight are much like in the orders that [`auto`] lists.
pub fn like_auto(chunks: u32) -> &'static str {
    if chunks == 1 { "zb-h1" } else { "interleaved-zb" }
}

/// The most stages a rank that are tried with named schedules, where the caller gives no number.
const NAMED_CHUNKS: u32 = 8;

/// The same for orders that are listed.
const LISTED_CHUNKS: u32 = 4;

/// The most ranks that a search takes.
const MOST_RANKS: u32 = 4096;

/// The most cells that a search takes, counted with one stage a rank.
const MOST_CELLS: u64 = 1 << 16;

/// How long micro-batches may live in a rank's later stages (all but its first). Each is a share of the
/// stage's distance from the last stage.
const SHARES: [f64; 9] = [1.0, 0.5, 0.6, 0.4, 0.8, 0.3, 1.25, 2.0, f64::INFINITY];

/// What to search a schedule for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// How many ranks there are.
    pub ranks: u32,
    /// How many stages each rank has. `None` tries several numbers.
    pub chunks: Option<u32>,
    /// How many micro-batches a step has.
    pub micro_batches: u32,
    /// What passes and transfers cost.
    pub costs: &'a Costs,
    /// The most that a rank may hold, in the unit of the costs' memory.
    pub memory: Option<f64>,
    /// What the links promise.
    pub links: LinkKind,
    /// What to make as short as possible.
    pub goal: Goal,
}

/// The chosen schedule and all that it was compared with. Its text form says what was chosen and why.
#[derive(Clone, Debug)]
pub struct Auto {
    /// The schedule: a named one, or one called `auto` that was listed for these costs.
    pub schedule: Schedule,
    /// Its simulated step at these costs.
    pub simulation: Simulation,
    /// All schedules that were compared, the best first. Those that do not fit the memory come last.
    pub tried: Vec<Tried>,
    goal: Goal,
    memory: Option<f64>,
}

/// A schedule that was compared.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tried {
    /// Its name and its placement.
    pub name: String,
    /// Its makespan.
    pub makespan: f64,
    /// Its longest span.
    pub span: f64,
    /// The most memory that one of its ranks holds.
    pub peak_memory: f64,
    /// Whether that is within the limit.
    pub fits: bool,
}

/// Finds the shortest schedule that fits the memory. It tries looped and vee placements, all named schedules,
/// and orders that it lists for these costs. The result is never longer than the shortest named schedule that
/// fits. Of equally short ones it has the least memory.
///
/// # Errors
/// [`Error::Plan`] when a number is 0 or there are too many cells. Also when these ranks cannot share the
/// stages that the costs are for, or when nothing fits the memory: the message then says the least memory
/// that works.
pub fn auto(wanted: &Wanted<'_>) -> Result<Auto> {
    wanted.check()?;
    let mut candidates = named(wanted)?;
    for placement in placements(wanted)? {
        candidates.extend(listed(wanted, placement)?);
    }
    let fits = |(_, simulation): &(Schedule, Simulation)| {
        wanted.memory.is_none_or(|memory| simulation.peak_memory() <= memory * (1.0 + 1e-9))
    };
    candidates.sort_by(|a, b| {
        let key = |one: &(Schedule, Simulation)| (!fits(one), score(wanted.goal, &one.1));
        key(a).partial_cmp(&key(b)).expect("simulated times are numbers")
    });
    let tried = candidates.iter().map(|one| Tried {
        name: format!("{} ({})", one.0.name(), describe(one.0.placement())),
        makespan: one.1.makespan,
        span: one.1.span,
        peak_memory: one.1.peak_memory(),
        fits: fits(one),
    });
    let tried: Vec<_> = tried.collect();
    match candidates.into_iter().next() {
        Some((schedule, simulation)) if tried[0].fits => {
            Ok(Auto { schedule, simulation, tried, goal: wanted.goal, memory: wanted.memory })
        }
        _ => Err(too_little(wanted)),
    }
}

impl Wanted<'_> {
    fn check(&self) -> Result<()> {
        let (ranks, micro_batches) = (self.ranks, self.micro_batches);
        if ranks == 0 || micro_batches == 0 || self.chunks == Some(0) {
            let chunks = self.chunks;
            return Err(Error::plan(format!(
                "auto needs at least 1 rank, 1 chunk and 1 micro-batch; it was given {ranks} ranks, {} \
                 chunks and {micro_batches} micro-batches",
                chunks.map_or("any number of".to_owned(), |chunks| chunks.to_string())
            )));
        }
        let chunks = self.chunks.unwrap_or(1);
        let cells = u64::from(ranks) * u64::from(micro_batches);
        if ranks > MOST_RANKS || cells.saturating_mul(chunks.into()) > MOST_CELLS {
            return Err(Error::plan(format!(
                "auto searches up to {MOST_RANKS} ranks and 2^16 cells; {ranks} ranks x {chunks} chunks x \
                 {micro_batches} micro-batches are more: name a schedule"
            )));
        }
        if let Some(memory) = self.memory.filter(|memory| memory.is_nan() || *memory <= 0.0) {
            return Err(Error::plan(format!("the memory limit is {memory}; it has to be a number above 0")));
        }
        match self.costs.stages() {
            Some(stages) if !stages.is_multiple_of(ranks as usize) => Err(Error::plan(format!(
                "there are costs of {stages} stages, which {ranks} ranks cannot share evenly; give costs of \
                 a multiple of {ranks}"
            ))),
            _ => Ok(()),
        }
    }
}

/// The named schedules, at every number of chunks that they can have.
fn named(wanted: &Wanted<'_>) -> Result<Vec<(Schedule, Simulation)>> {
    let mut found = Vec::new();
    for name in Schedule::names() {
        for chunks in chunks(wanted, NAMED_CHUNKS) {
            let made = Schedule::make(name, wanted.ranks, Some(chunks), wanted.micro_batches, wanted.costs);
            if let Ok(schedule) = made {
                found.push(simulated(wanted, schedule)?);
            }
        }
    }
    Ok(found)
}

/// The best order that a search finds on this placement. `None` when the memory does not hold one
/// micro-batch.
fn listed(wanted: &Wanted<'_>, placement: Placement) -> Result<Option<(Schedule, Simulation)>> {
    let stages = wanted.costs.of(&placement)?;
    let most: f64 = stages.iter().map(|stage| stage.saved + stage.pending + stage.restored).sum();
    let memory = wanted.memory.unwrap_or(f64::from(wanted.micro_batches) * most);
    let task = Task {
        placement: &placement,
        micro_batches: wanted.micro_batches,
        stages: &stages,
        comm: wanted.costs.comm(),
        memory,
    };
    let policies = ways(&task);
    let Some((policy, listed)) = best(&task, policies, wanted.goal) else {
        return Ok(None);
    };
    let listed = climb(&task, policy, listed, wanted.goal);
    let schedule = Schedule::from_passes(AUTO, placement, wanted.micro_batches, listed.passes)?;
    simulated(wanted, schedule).map(Some)
}

/// A schedule in the order in which a pipeline runs it, and its step. Backward is split only where
/// backward-weight takes time. A named schedule that is changed by this is no longer that one.
fn simulated(wanted: &Wanted<'_>, schedule: Schedule) -> Result<(Schedule, Simulation)> {
    let costs = wanted.costs.of(schedule.placement())?;
    let is_free = |stage: StageId| costs[stage.index()].backward_weight == 0.0;
    let is_split = |rank| {
        let mut passes = schedule.passes(Rank(rank));
        passes.any(|(pass, cell)| pass == Pass::BackwardInput && is_free(cell.stage))
    };
    let schedule = match (0..schedule.ranks()).any(is_split) {
        true => schedule.joined(AUTO, is_free),
        false => schedule,
    };
    let schedule = schedule.in_turn();
    let simulation = simulate(&schedule, wanted.costs, wanted.links)?;
    Ok((schedule, simulation))
}

/// The policies that a search starts from.
fn ways<'a>(task: &'a Task<'_>) -> impl Iterator<Item = Policy> + 'a {
    let (ranks, stages) = (task.placement.ranks(), task.placement.stages());
    let mut limits = Vec::new();
    if is_vee(task.placement) {
        let share = task.stages.iter().map(|stage| stage.saved).fold(0.0, f64::max);
        limits.extend(vee::in_flight(ranks, (task.memory / share).clamp(2.0, 1e6) as u32));
    }
    let shares = if stages == ranks { &SHARES[..1] } else { &SHARES[..] };
    limits.extend(shares.iter().map(|&share| in_flight(task.placement, task.stages, task.memory, share)));
    let orders: &[bool] = if stages > ranks && !is_vee(task.placement) { &[true, false] } else { &[false] };
    policies(ranks, limits)
        .flat_map(move |policy| orders.iter().map(move |&rounds| Policy { rounds, ..policy.clone() }))
}

fn is_vee(placement: &Placement) -> bool {
    Placement::vee(placement.ranks()).is_ok_and(|vee| vee == *placement)
}

fn chunks(wanted: &Wanted<'_>, most: u32) -> Vec<u32> {
    match (wanted.chunks, wanted.costs.stages()) {
        (Some(chunks), _) => vec![chunks],
        (None, Some(stages)) => vec![(stages as u32) / wanted.ranks.max(1)],
        (None, None) => (1..=most).collect(),
    }
}

fn placements(wanted: &Wanted<'_>) -> Result<Vec<Placement>> {
    let mut placements = Vec::new();
    for chunks in chunks(wanted, LISTED_CHUNKS) {
        placements.push(Placement::looped(wanted.ranks, chunks)?);
        if chunks == 2 {
            placements.push(Placement::vee(wanted.ranks)?);
        }
    }
    Ok(placements)
}

/// The sort key of a schedule: smaller is better, and the first number counts most. Of equally short ones the
/// smallest in memory is best. All are rounded, so that rounding errors do not decide.
fn score(goal: Goal, simulation: &Simulation) -> (f64, f64, f64) {
    let work: f64 = simulation.ranks.iter().map(|rank| rank.busy).sum();
    let [makespan, span] = [simulation.makespan, simulation.span].map(|time| (1e9 * time / work).round());
    // Schedules that hold the same may add it up in another order.
    let memory = f64::from(simulation.peak_memory() as f32);
    match goal {
        Goal::Makespan => (makespan, memory, span),
        Goal::Span => (span, memory, makespan),
    }
}

fn too_little(wanted: &Wanted<'_>) -> Error {
    let least = |placement: Placement| Some(least_memory(&placement, &wanted.costs.of(&placement).ok()?));
    let least = placements(wanted).into_iter().flatten().filter_map(least).fold(f64::INFINITY, f64::min);
    Error::plan(format!(
        "no schedule fits in {} a rank; the least that works on {} ranks is {least}",
        wanted.memory.unwrap_or(f64::INFINITY),
        wanted.ranks
    ))
}

fn describe(placement: &Placement) -> String {
    let (ranks, stages) = (placement.ranks(), placement.stages());
    match stages / ranks {
        1 => "one stage a rank".into(),
        2 if is_vee(placement) => "2 stages a rank, out and back".into(),
        chunks => format!("{chunks} stages a rank, in rounds"),
    }
}

impl fmt::Display for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = &self.tried[0];
        let time = |tried: &Tried| match self.goal {
            Goal::Makespan => short(tried.makespan),
            Goal::Span => short(tried.span),
        };
        let (name, goal, time_of_chosen) = (&chosen.name, self.goal, time(chosen));
        write!(f, "chose {name}: the smallest {goal}, {time_of_chosen}, of {}", self.tried.len())?;
        if let Some(memory) = self.memory {
            let over = self.tried.iter().filter(|tried| !tried.fits).count();
            let held = short(chosen.peak_memory);
            write!(f, ", {over} of which do not fit in {memory} a rank; it holds {held}")?;
        }
        if let Some(next) = self.tried.get(1).filter(|next| next.fits) {
            write!(f, "; next is {} with {}", next.name, time(next))?;
        }
        Ok(())
    }
}

/// A number with five digits. Digits before the point are never cut off.
fn short(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let before = number.abs().max(1e-12).log10().floor() as i32;
    format!("{number:.*}", (4 - before).clamp(0, 12) as usize)
}
