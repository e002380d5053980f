//! Which samples a step takes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which samples each step takes. Samples are numbered from 0 over all epochs.
///
/// A training that is resumed with another batch goes on with the sample after the last one that it has used:
/// see [`Course::go_on`]. So no sample of an epoch is used twice, and none is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The step from which on this holds.
    step: u64,
    /// The first sample of that step.
    sample: u64,
    /// The samples of a step.
    each: u64,
}

impl Course {
    /// Each step takes `each` samples, from sample 0 at step 0 on.
    pub fn new(each: u64) -> Self {
        let (step, sample) = (0, 0);
        Self { step, sample, each }
    }

    /// The first sample of a step.
    pub fn first(self, step: u64) -> u64 {
        match step.checked_sub(self.step) {
            Some(steps) => self.sample + steps * self.each,
            None => self.sample.saturating_sub((self.step - step) * self.each),
        }
    }

    /// The course of a training that has done `step` steps on this one, and goes on with `each` samples a
    /// step.
    #[must_use]
    pub fn go_on(self, step: u64, each: u64) -> Self {
        if each == self.each {
            return self;
        }
        let sample = self.first(step);
        Self { step, sample, each }
    }
}

impl fmt::Display for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, sample, each } = self;
        write!(f, "{each} samples a step")?;
        if *step > 0 {
            write!(f, " from sample {sample} at step {step} on")?;
        }
        Ok(())
    }
}
