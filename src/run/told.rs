//! How far a run has told of its steps. After the loss of a process it repeats some, and does not tell of
//! them again.

use std::collections::VecDeque;

use crate::error::{RestartError, Result};
use crate::pipeline::StepReport;

/// The number of steps whose numbers are kept, to compare them with the numbers of repeated steps.
const KEPT: usize = 1024;

/// The last step of each kind of news that was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) steps: Last,
    pub(super) lines: Last,
    pub(super) validations: Last,
    pub(super) samples: Last,
    /// The loss and the gradient norm of the newest steps.
    numbers: VecDeque<(u64, [f64; 2])>,
}

/// The last step that was told.
#[derive(Debug, Default)]
pub(super) struct Last(Option<u64>);

impl Last {
    /// Whether this step was not told yet. From now on it is.
    pub(super) fn is_new(&mut self, step: u64) -> bool {
        let is_new = self.0.is_none_or(|last| step > last);
        if is_new {
            self.0 = Some(step);
        }
        is_new
    }
}

impl Told {
    /// Whether this step was not told yet.
    ///
    /// # Errors
    /// [`RestartError`] if it is repeated and has other numbers than before.
    pub(super) fn is_new(&mut self, report: &StepReport) -> Result<bool> {
        let (step, numbers) = (report.step, [report.loss, report.grad_norm]);
        if self.steps.is_new(step) {
            if self.numbers.len() == KEPT {
                self.numbers.pop_front();
            }
            self.numbers.push_back((step, numbers));
            return Ok(true);
        }
        let before = self.numbers.iter().find(|(of, _)| *of == step);
        match before {
            Some((_, before)) if before.map(f64::to_bits) != numbers.map(f64::to_bits) => {
                let (before, now) = (*before, numbers);
                Err(RestartError::new(format!(
                    "step {step} was repeated after the loss of a process, and gave loss {} and gradient \
                     norm {}, not {} and {} as before: a stage may depend only on its parameters, its input, \
                     the step and the micro-batch; with one that does not, set `train.restarts` to 0",
                    now[0], now[1], before[0], before[1]
                ))
                .into())
            }
            _ => Ok(false),
        }
    }
}
