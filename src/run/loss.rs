//! What a run tells when a process is lost, and when it goes on.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Another process was lost. The run waits for one that takes its place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The step that could not be ended.
    pub step: u64,
    /// What is known of it.
    pub why: String,
    /// How long the run waits.
    pub waits: Duration,
}

/// The run goes on after a loss.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Return {
    /// The step with which it goes on.
    pub step: u64,
    /// How many steps are repeated.
    pub repeats: u64,
    /// Where the weights come from.
    pub from: GoesOnFrom,
    /// The seconds since the loss was noticed.
    pub seconds: f64,
}

/// Where the weights come from with which a run goes on after a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoesOnFrom {
    /// From what the processes kept for each other in memory.
    Memory,
    /// From this checkpoint.
    Checkpoint(PathBuf),
    /// There is neither. The run begins again, with its first weights.
    Start,
}

impl fmt::Display for GoesOnFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("what the processes kept in memory"),
            Self::Checkpoint(folder) => write!(f, "{}", folder.display()),
            Self::Start => f.write_str("its first weights, since there is no checkpoint yet"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, why, waits } = self;
        write!(
            f,
            "step {step}: {why}; the run waits {} s at most for one that takes its place: start it again in \
             the same way",
            waits.as_secs_f64()
        )
    }
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, repeats, from, seconds } = self;
        let steps = if *repeats == 1 { "step" } else { "steps" };
        write!(
            f,
            "all processes are there after {seconds:.2} s: the run goes on with step {step}, from {from}, \
             and repeats {repeats} {steps}"
        )
    }
}
