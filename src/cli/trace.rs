//! `train --trace`: what really happened in a step, and beside it what was planned.

use super::run_dir::RunDir;
use crate::draw::{Panel, Picture, Units, trace_events};
use crate::plan::Costs;
use crate::schedule::{Links, Schedule, Timeline};
use crate::{Error, Result};

/// Steps at the beginning that are not traced: memory is still being got, caches are cold.
const SETTLING: u64 = 2;

/// Traces some steps of a run, and writes down the one that took the middle time.
#[derive(Debug)]
pub(super) struct Tracer {
    first: u64,
    steps: u64,
    taken: Vec<Traced>,
    /// Once the files are written.
    summary: Option<String>,
}

#[derive(Debug)]
struct Traced {
    step: u64,
    seconds: f64,
    timeline: Timeline,
}

impl Tracer {
    /// Will trace so many steps of a run that has `done` steps behind it and goes up to `last`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are fewer to come.
    pub(super) fn new(steps: u64, done: u64, last: u64) -> Result<Self> {
        let left = last.saturating_sub(done);
        if steps == 0 || SETTLING.saturating_add(steps) > left {
            let advice = match left.saturating_sub(SETTLING) {
                0 => format!("let the run go on for at least {} steps", SETTLING + 1),
                most => format!("trace at least 1 and at most {most}"),
            };
            return Err(Error::Invalid(format!(
                "--trace={steps}: {done} of {last} steps are done, so {left} are to come, and the first {SETTLING} of \
                 these are not traced: {advice}"
            )));
        }
        Ok(Self {
            first: done + SETTLING,
            steps,
            taken: Vec::new(),
            summary: None,
        })
    }

    /// Whether this step is to be traced.
    pub(super) fn wants(&self, step: u64) -> bool {
        (self.first..self.first + self.steps).contains(&step)
    }

    /// Takes a traced step; after the last one, writes the files.
    pub(super) fn take(
        &mut self,
        (step, seconds, timeline): (u64, f64, Timeline),
        schedule: &Schedule,
        run_dir: &RunDir,
    ) -> Result<()> {
        self.taken.push(Traced {
            step,
            seconds,
            timeline,
        });
        if self.taken.len() as u64 == self.steps {
            self.taken.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let costs = Costs::measured(self.taken.iter().map(|traced| &traced.timeline))?;
            let middle = &self.taken[self.taken.len() / 2];
            write(middle, schedule, &costs, run_dir)?;
            self.summary = Some(format!(
                "traced    step {}: trace.svg, trace.json (for ui.perfetto.dev) and plan-and-trace.svg in {}\n",
                middle.step,
                run_dir.path().display()
            ));
        }
        Ok(())
    }

    /// What to say at the end of the run.
    pub(super) fn summary(&self) -> &str {
        let none = "traced    nothing: the run ended before the steps to trace\n";
        self.summary.as_deref().unwrap_or(none)
    }
}

/// Writes the step as a picture, as events, and as a picture together with the plan at these costs.
fn write(traced: &Traced, schedule: &Schedule, costs: &Costs, run_dir: &RunDir) -> Result<()> {
    let planned = schedule.timeline(costs, Links::Buffered)?;
    let sizes = super::title(schedule);
    let measured = Panel {
        title: format!("{sizes}, step {} as measured", traced.step),
        timeline: &traced.timeline,
    };
    let events = trace_events(&measured.title, measured.timeline);
    let planned = Panel {
        title: format!("{sizes}, planned at the measured medians"),
        timeline: &planned,
    };
    let svg = |panels: &[Panel<'_>]| {
        let picture = Picture {
            panels: panels.to_vec(),
            units: Units::SecondsAndBytes,
            transfers: true,
        };
        picture.svg()
    };
    run_dir.write("trace.svg", &svg(std::slice::from_ref(&measured))?)?;
    run_dir.write("trace.json", &events)?;
    run_dir.write("plan-and-trace.svg", &svg(&[planned, measured])?)
}
