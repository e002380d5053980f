//! What a person sees of a run: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::Result;
use crate::pipeline::{Evaluation, StepReport};

const BAR: &str = "{bar:24} {pos}/{len}  {msg}  {eta} left";

/// Shows the steps of a run.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    every: u64,
    last: u64,
    unit: &'static str,
}

impl Progress {
    /// For steps up to `steps`, of which `done` are done; without a terminal every `every`th step is printed.
    pub(super) fn new(done: u64, steps: u64, every: u64, unit: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(BAR).expect("the template is fixed");
            let bar = ProgressBar::new(steps).with_style(style).with_position(done);
            bar.reset_eta();
            bar
        });
        Self {
            bar,
            every,
            last: steps.saturating_sub(1),
            unit,
        }
    }

    /// Shows and says nothing.
    pub(super) fn quiet() -> Self {
        Self {
            bar: Some(ProgressBar::hidden()),
            every: 1,
            last: 0,
            unit: "",
        }
    }

    /// Shows a step that is done.
    pub(super) fn step(&self, report: &StepReport) -> Result<()> {
        match &self.bar {
            Some(bar) => {
                bar.set_message(self.message(report));
                bar.set_position(report.step + 1);
            }
            None if report.step.is_multiple_of(self.every) || report.step == self.last => {
                super::print(&format!("step {:>6}  {}\n", report.step, self.message(report)))?;
            }
            None => {}
        }
        Ok(())
    }

    fn message(&self, report: &StepReport) -> String {
        format!(
            "{}  {} {}/s  bubble {:.0} %",
            score(report.loss, report.accuracy),
            thousands(report.rate()),
            self.unit,
            100.0 * report.bubble()
        )
    }

    /// Says how a validation after so many steps went.
    pub(super) fn validation(&self, steps: u64, result: &Evaluation) -> Result<()> {
        self.say(&format!(
            "validation after {steps} steps: {}",
            Self::score(result)
        ))
    }

    /// A validation's result in words.
    pub(super) fn score(result: &Evaluation) -> String {
        score(result.loss, result.accuracy)
    }

    /// Prints a line, above the bar when there is one.
    pub(super) fn say(&self, line: &str) -> Result<()> {
        match &self.bar {
            Some(bar) => {
                bar.println(line);
                Ok(())
            }
            None => super::print(&format!("{line}\n")),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn score(loss: f64, accuracy: Option<f64>) -> String {
    let accuracy = accuracy.map_or(String::new(), |accuracy| {
        format!("  accuracy {:.1} %", 100.0 * accuracy)
    });
    format!("loss {loss:.4}{accuracy}")
}

/// A rate with the digits that matter.
fn thousands(number: f64) -> String {
    if number < 10_000.0 {
        format!("{number:.0}")
    } else {
        format!("{:.1}k", number / 1000.0)
    }
}
