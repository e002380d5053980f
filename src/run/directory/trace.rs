//! The timeline of a measured step, and the planned one beside it.

use super::folder::RunDir;
use crate::draw::{Panel, Picture, Units, trace_events};
use crate::error::RunError;
use crate::plan::Costs;
use crate::schedule::{LinkKind, Schedule, Timeline};
use crate::{Result, whole};

/// The first steps are not traced: memory is still being allocated, and caches are cold.
const SETTLING: u64 = 2;

/// Traces some steps of a run, and writes the one with the median time.
#[derive(Debug)]
pub(in crate::run) struct Tracer {
    first: u64,
    steps: u64,
    taken: Vec<Traced>,
}

#[derive(Debug)]
struct Traced {
    step: u64,
    seconds: f64,
    timeline: Timeline,
}

impl Tracer {
    /// Traces `steps` steps of a run that has done `done` steps and ends after `last`.
    pub(in crate::run) fn new(steps: u64, done: u64, last: u64) -> Result<Self> {
        let left = last.saturating_sub(done);
        if steps == 0 || SETTLING.saturating_add(steps) > left {
            let cure = match last.saturating_sub(done + SETTLING) {
                0 => format!("let the run go on for at least {} steps", SETTLING + 1),
                most => format!("trace at least 1 and at most {most}"),
            };
            return Err(RunError::new(format!(
                "--trace={steps}: {done} of {last} steps are done, so {left} are to come, and the first \
                 {SETTLING} of these are not traced: {cure}"
            ))
            .into());
        }
        Ok(Self { first: done + SETTLING, steps, taken: Vec::new() })
    }

    /// The model is cut elsewhere after `done` steps: steps before it do not count.
    pub(in crate::run) fn begin_again(&mut self, done: u64) {
        if self.wants(done) {
            self.first = done;
            self.taken.clear();
        }
    }

    /// Whether to trace this step.
    pub(in crate::run) fn wants(&self, step: u64) -> bool {
        (self.first..self.first + self.steps).contains(&step)
    }

    /// Takes a traced step. `sizes`: how many replicas and shards there are; the schedule is the first
    /// replica's. After the last step it writes the files and returns the number of the step in them.
    pub(in crate::run) fn take(
        &mut self,
        (step, seconds, timeline): (u64, f64, Timeline),
        (schedule, sizes): (&Schedule, [u32; 2]),
        dir: &RunDir,
    ) -> Result<Option<u64>> {
        self.taken.push(Traced { step, seconds, timeline });
        if (self.taken.len() as u64) < self.steps {
            return Ok(None);
        }
        let mut taken = std::mem::take(&mut self.taken);
        taken.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let costs = Costs::measured(taken.iter().map(|traced| &traced.timeline))?;
        let median = &taken[taken.len() / 2];
        write(median, (schedule, sizes), &costs, dir)?;
        Ok(Some(median.step))
    }
}

/// Writes the step as a picture, as events, and as a picture together with the plan of the first replica for
/// these costs.
fn write(
    traced: &Traced,
    (schedule, [replicas, shards]): (&Schedule, [u32; 2]),
    costs: &Costs,
    dir: &RunDir,
) -> Result<()> {
    let planned = schedule.timeline(costs, LinkKind::Buffered)?;
    let sizes = title(schedule);
    let (mut all, first) = match replicas {
        1 => (String::new(), ""),
        _ => (format!(", replicas {replicas}"), ", replica 0"),
    };
    if shards > 1 {
        all += &format!(", shards {shards}");
    }
    let measured = Panel {
        title: format!("{sizes}{all}, step {} as measured", traced.step),
        timeline: &traced.timeline,
        replicas,
        shards,
    };
    let events = trace_events(&measured);
    let planned = Panel {
        title: format!("{sizes}{first}, planned at the measured medians"),
        timeline: &planned,
        replicas: 1,
        shards: 1,
    };
    let svg = |panels: &[Panel<'_>]| {
        let picture = Picture { panels: panels.to_vec(), units: Units::SecondsAndBytes, transfers: true };
        picture.svg()
    };
    let file = |name| dir.path().join(name);
    whole::write(&file("trace.svg"), &svg(std::slice::from_ref(&measured))?)?;
    whole::write(&file("trace.json"), &events)?;
    whole::write(&dir.plan_and_trace(), &svg(&[planned, measured])?)
}

/// The title of a schedule's picture.
pub fn title(schedule: &Schedule) -> String {
    format!(
        "{}: ranks {}, stages {}, micro-batches {}",
        schedule.name(),
        schedule.ranks(),
        schedule.stages(),
        schedule.micro_batches()
    )
}
