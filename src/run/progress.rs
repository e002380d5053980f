//! How a run is shown to a person: a bar on a terminal, otherwise lines.

use std::io::{self, Write};

use super::bar::Bar;
use super::event::{Event, cut_has_brought, cut_is_kept, leaves};
use super::samples::Sample;
use crate::Error;
use crate::pipeline::{StepReport, score};
use crate::stages::units::counted;

/// How a run is shown: as a bar on a terminal, with the feature `bar`, or otherwise as lines on standard
/// output.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    every: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { every: 10 }
    }
}

impl Progress {
    /// Without a terminal: prints a line for every `every`th step. Default: 10.
    #[must_use]
    pub fn every(self, every: u64) -> Self {
        Self { every }
    }

    /// Begins to show a run of `steps` steps. `done` of them are done. `targets` names what the rate counts,
    /// for example `tokens`.
    pub(super) fn show(self, (done, steps): (u64, u64), targets: String) -> Screen {
        Screen { bar: Bar::on_terminal(done, steps), progress: self, targets, last: steps.saturating_sub(1) }
    }
}

/// The screen of a run. A clone is for the same one.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    bar: Option<Bar>,
    progress: Progress,
    targets: String,
    last: u64,
}

impl Screen {
    /// Shows what happened.
    pub(super) fn show(&self, event: &Event<'_>) {
        match event {
            Event::Step(report) => self.step(report),
            Event::Lost(lost) => self.complain(&format!("warning: {lost}")),
            Event::Return(back) => self.complain(&back.to_string()),
            Event::Leaves { step, process } => self.complain(&leaves(*step, *process)),
            Event::NewCut(cut) => self.say(&cut.to_string()),
            Event::CutIsKept { before, now } => self.say(&cut_is_kept(*before, *now)),
            Event::CutHasBrought { before, now } => self.say(&cut_has_brought(*before, *now)),
            Event::Restart(restart) => self.complain(&format!("warning: {restart}")),
            Event::Validation { step, evaluation, sources, .. } => {
                self.say(&format!("validation after {}: {evaluation}", counted(*step, "step")));
                sources.iter().for_each(|(name, evaluation)| self.say(&format!("  {name}: {evaluation}")));
            }
            Event::Sample(Sample { step, prompt, text }) => {
                self.say(&format!("sample after {}: {prompt:?} {text:?}", counted(*step, "step")));
            }
            Event::Copied { step, url, seconds } => {
                self.say(&format!(
                    "copied the checkpoint after {} to {url} in {seconds:.1} s",
                    counted(*step, "step")
                ));
            }
            Event::NotCopied { step, url, error } => {
                self.complain(&format!("warning: {}", not_copied(*step, url, error)));
            }
            // Stalls are shown when they happen.
            Event::Checkpoint { .. } | Event::Waits { .. } | Event::Stall(_) => {}
            Event::Predicted(predicted) => {
                self.say(&format!("predicted {predicted} by the passes of the first steps"));
            }
            Event::Warning(warning) => self.complain(&warning.to_string()),
            Event::End(outcome) => {
                self.clear();
                print_line(&outcome.to_string());
            }
            Event::Failed(failed) => {
                self.clear();
                self.complain(&failed.to_string());
            }
        }
    }

    fn step(&self, report: &StepReport) {
        match &self.bar {
            Some(bar) => {
                bar.show(report.step + 1, self.message(report));
            }
            None if report.step.is_multiple_of(self.progress.every.max(1)) || report.step == self.last => {
                print_line(&format!("step {:>6}  {}", report.step, self.message(report)));
            }
            None => {}
        }
    }

    fn message(&self, report: &StepReport) -> String {
        format!(
            "{}  {} {}/s  bubble {:.0} %",
            score(report.loss, report.weight, &report.metrics),
            thousands(report.rate()),
            self.targets,
            100.0 * report.bubble()
        )
    }

    /// Prints a line, above the bar when there is one.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.print(line),
            None => print_line(line),
        }
    }

    /// Prints lines to standard error.
    pub(super) fn complain(&self, lines: &str) {
        let print = || eprintln!("{lines}");
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes the bar.
    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }
}

/// Tells that a checkpoint could not be copied.
pub(super) fn not_copied(step: u64, url: &str, error: &Error) -> String {
    let step = counted(step, "step");
    format!(
        "the checkpoint after {step} could not be copied to {url}: {error}; it is tried again \
         with the next checkpoint, if one follows"
    )
}

/// Prints to standard output. If nobody can read it, the run continues.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A rate with few digits.
fn thousands(number: f64) -> String {
    if number < 10_000.0 { format!("{number:.0}") } else { format!("{:.1}k", number / 1000.0) }
}
