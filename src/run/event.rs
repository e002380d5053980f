//! The events that a run reports to its listeners.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory::cut::{NewCut, seconds};
use super::forecast::{ForecastReport, StepTime};
use super::samples::Sample;
use super::validation::Best;
use crate::pipeline::{Evaluation, StepReport};
use crate::privacy::Spent;
use crate::situation::Stall;
use crate::stages::units::counted;
use crate::{Error, Restart, Staleness};

/// An event of a run. Events come in the order in which they happen. Every process reports the same events;
/// only their seconds and files differ.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step is done.
    Step(&'a StepReport),
    /// A rank failed in the step that is told next, and was built again.
    Restart(&'a Restart),
    /// Another process was lost.
    Lost(&'a LostProcess),
    /// The run goes on after the loss of another process. The steps that are repeated are not told again.
    Return(&'a Return),
    /// A validation is done.
    Validation {
        /// The steps done.
        step: u64,
        /// Its result.
        evaluation: &'a Evaluation,
        /// Where there are several sources, the result of each, with its name.
        sources: &'a [(String, Evaluation)],
        /// Whether its loss is the lowest so far.
        best: bool,
    },
    /// The model has written a text.
    Sample(&'a Sample),
    /// A checkpoint is on the disk. Steps may have been done since it was due: see [`Run::save_beside`].
    ///
    /// [`Run::save_beside`]: super::Run::save_beside
    Checkpoint {
        /// The steps done when it was due.
        step: u64,
        /// Its folder.
        path: &'a Path,
        /// The seconds for which the steps stood still for it.
        stalled: f64,
    },
    /// A checkpoint is due, but the one before is not yet on the disk. The steps stand still until it is.
    Waits {
        /// The steps done.
        step: u64,
        /// The steps done when the checkpoint before was due.
        earlier: u64,
    },
    /// A checkpoint was copied to the store of [`Run::copy_to`](super::Run::copy_to). Only the process that
    /// leads tells it.
    Copied {
        /// The steps done when the checkpoint was due.
        step: u64,
        /// Where the copy is.
        url: &'a str,
        /// The seconds that it took. Steps were done meanwhile.
        seconds: f64,
    },
    /// A checkpoint could not be copied to the store. Only the process that leads tells it.
    NotCopied {
        /// The steps done when the checkpoint was due.
        step: u64,
        /// Where the copy should be.
        url: &'a str,
        /// Why it is not.
        error: &'a Error,
    },
    /// A process was asked to end, and leaves before this step. The others go on.
    Leaves {
        /// The step before which it leaves.
        step: u64,
        /// Its number.
        process: u32,
    },
    /// The run goes on with another cut of its model: see [`Run::replan`](super::Run::replan).
    NewCut(&'a NewCut),
    /// Steps are shorter with the newest cut, and so it is kept.
    CutIsKept {
        /// The seconds of a step before it: a median.
        before: f64,
        /// The seconds of a step with it: a median.
        now: f64,
    },
    /// How long steps take with the newest cut, which somebody asked for.
    CutHasBrought {
        /// The seconds of a step before it: a median.
        before: f64,
        /// The seconds of a step with it: a median.
        now: f64,
    },
    /// The predicted time of a step, from the passes of the first steps: of the run, or since it was last cut
    /// anew.
    Predicted(StepTime),
    /// A task besides the training failed. The run continues.
    Warning(&'a Warning),
    /// Nothing moved for a while, or it moves again. It comes just before the next event, so only when the
    /// step, the validation or the checkpoint that stands still goes on or fails: listeners are called on the
    /// thread that waits for it. The screen and the history are told at once, and so is
    /// [`PipelineBuilder::on_stall`](crate::PipelineBuilder::on_stall), on a thread of its own.
    Stall(&'a Stall),
    /// The run has ended normally, and everything is saved.
    End(&'a Outcome),
    /// The run ends because something failed. [`Session::train`](super::Session::train) returns the error.
    Failed(&'a Failed),
}

/// A listener's answer: what the run does next. `()` means [`Next::Continue`], so a closure need not return
/// anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The run continues.
    Continue,
    /// The run saves and ends after this step. Steps [without a barrier](crate::PipelineBuilder::barrier)
    /// that have begun are completed first: up to two, with several processes up to four.
    Stop,
}

impl From<()> for Next {
    fn from((): ()) -> Self {
        Self::Continue
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps are done.
    Done,
    /// It was interrupted from outside: see [`Interrupt`](super::Interrupt).
    Interrupted,
    /// A listener answered [`Next::Stop`].
    Stopped,
    /// This process was asked to end by SIGTERM, and has left. The run goes on in the others, since
    /// [`Membership::fewest`](crate::fabric::Membership::fewest) allows it. The pipeline of this one can do
    /// nothing more.
    Left,
}

/// What is told of a process that leaves before a step.
pub(super) fn leaves(step: u64, process: u32) -> String {
    format!("process {process} leaves before step {step}: it was asked to end, and the others go on")
}

/// What is told of a cut that has helped.
pub(super) fn cut_is_kept(before: f64, now: f64) -> String {
    let [before, now] = [before, now].map(seconds);
    format!("the new cut is kept: a step took {before}, and takes {now}")
}

/// What is told of a cut that somebody asked for.
pub(super) fn cut_has_brought(before: f64, now: f64) -> String {
    let [before, now] = [before, now].map(seconds);
    format!("with the new cut a step takes {now}; before it took {before}")
}

/// What is told of a process that ends while the run waits for another one.
pub(super) fn ends_alone(process: u32) -> String {
    format!("process {process} was asked to end while the run waits: the others may go on without it")
}

/// The result of a run that ended normally.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// The steps done in total, with those before it was resumed.
    pub steps: u64,
    /// The steps done since it began or was resumed.
    pub trained: u64,
    /// The seconds of these steps, with validations and checkpoints.
    pub seconds: f64,
    /// The last validation, if it was after the last step.
    pub validation: Option<Evaluation>,
    /// The last checkpoint. A process that has left saves none, so there need not be one.
    pub checkpoint: PathBuf,
    /// The checkpoint with the lowest validation loss, if there was a validation.
    pub best: Option<Best>,
    /// The prediction of a step and its measured values, if a forecast was asked for.
    pub forecast: Option<ForecastReport>,
    /// The step whose trace was written, if traces were asked for.
    pub traced: Option<u64>,
    /// The seconds for which the steps stood still for checkpoints.
    pub stalled: f64,
    /// How stale the weights of all ranks were, with a server whose weights may be stale.
    pub staleness: Option<Staleness>,
    /// The privacy that was spent, if it is counted.
    pub privacy: Option<Spent>,
    /// The first failure of each task besides the training.
    pub warnings: Vec<Warning>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.ended {
            Ended::Done => "done",
            Ended::Interrupted => "interrupted",
            Ended::Stopped => "stopped",
            Ended::Left => "left",
        };
        match (self.ended, self.trained) {
            (Ended::Done, 0) => write!(
                f,
                "done before: {}; with more (train.steps or --steps) the run goes on",
                counted(self.steps, "step")
            )?,
            _ => write!(f, "{word}: {} in {:.1} s", counted(self.trained, "step"), self.seconds)?,
        }
        if self.stalled >= 0.05 {
            write!(f, " (checkpoints: {:.1} s)", self.stalled)?;
        }
        if let Some(validation) = &self.validation {
            write!(f, ", validation {validation}")?;
        }
        if let Some(staleness) = &self.staleness {
            write!(f, ", {staleness}")?;
        }
        if let Some(spent) = &self.privacy {
            write!(f, ", privacy spent: {spent}")?;
        }
        match self.ended {
            Ended::Left => f.write_str("; the other processes go on"),
            _ => write!(f, "; saved as {}", self.checkpoint.display()),
        }
    }
}

/// A task besides the training that failed. Only the first failure of each task is reported.
#[derive(Debug)]
#[non_exhaustive]
pub struct Warning {
    /// The task.
    pub task: Task,
    /// Why it failed.
    pub error: Error,
}

/// A task of a run besides training. Its failure never ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// To add a line to `metrics.jsonl`.
    Metrics,
    /// To add a text to `samples.jsonl`.
    Samples,
    /// To add the numbers of a step to what TensorBoard reads.
    TensorBoard,
    /// To add a line to `history.jsonl`.
    History,
    /// To draw `loss.svg`.
    Picture,
    /// To draw a traced step.
    Trace,
    /// To predict how long a step takes.
    Forecast,
    /// To cut the model elsewhere.
    Replan,
    /// To write a checkpoint when the run failed.
    Checkpoint,
    /// To remove old checkpoints.
    Prune,
    /// To write into `run.json` which checkpoints are the last and the best one.
    Mark,
    /// To hold the lock of the run directory.
    Lock,
    /// To keep the files of the run, which somebody has removed.
    Files,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = match self.task {
            Task::Metrics => "write the numbers of a step",
            Task::Samples => "write the text of the model",
            Task::TensorBoard => "write the numbers of a step for TensorBoard",
            Task::History => "write the history of the run",
            Task::Picture => "draw the losses",
            Task::Trace => "draw the traced step",
            Task::Forecast => "predict how long a step takes",
            Task::Replan => "cut the model elsewhere",
            Task::Checkpoint => "write the checkpoint",
            Task::Prune => "remove old checkpoints",
            Task::Mark => "write which checkpoints are the last and the best one",
            Task::Lock => "hold the lock of the run directory all the time",
            Task::Files => "keep the files of the run all the time",
        };
        write!(
            f,
            "warning: could not {task}: {}; the run continues, and later failures of this kind are not \
             reported",
            self.error
        )
    }
}

/// The state of a run after a failure.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// The new path of a checkpoint whose weights gave numbers that are not finite.
    pub set_aside: Option<PathBuf>,
    /// The checkpoint from which a resumed run continues.
    pub last: Option<PathBuf>,
    /// Whether the weights of `last` gave numbers that are not finite. Then it is the only checkpoint.
    pub last_is_bad: bool,
    /// Whether the same failure would happen again with the same settings.
    pub repeats: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(aside) = &self.set_aside {
            let aside = aside.display();
            writeln!(f, "the checkpoint whose weights gave these numbers is set aside as {aside}")?;
        }
        let Some(last) = &self.last else {
            return write!(f, "there is no checkpoint yet");
        };
        let last = last.display();
        if self.last_is_bad {
            return write!(
                f,
                "the only checkpoint, {last}, holds the weights that gave these numbers: begin another run"
            );
        }
        write!(f, "the newest checkpoint is {last}: --resume continues from it")?;
        if self.repeats {
            write!(
                f,
                "; with the same settings it ends the same way, so change one, such as \
                 optimizer.learning_rate"
            )?;
        }
        Ok(())
    }
}

/// Another process was lost. The run waits for one that takes its place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LostProcess {
    /// The step that could not be ended.
    pub step: u64,
    /// What is known of it.
    pub why: String,
    /// How long the run waits.
    pub waits: Duration,
    /// The run then goes on without the lost process, if this many are there.
    pub needed: Option<u32>,
    /// The number with which the process was started, if it has another one now.
    pub started_as: Option<u32>,
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
    /// The seconds since the loss was noticed, or since they began to join again.
    pub seconds: f64,
    /// How many processes there are, and how many there were when the run began.
    pub processes: [u32; 2],
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

impl fmt::Display for LostProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, why, waits, needed, started_as } = self;
        write!(
            f,
            "step {step}: {why}; the run waits {} s at most for one that takes its place: start it again in \
             the same way",
            waits.as_secs_f64()
        )?;
        if let Some(number) = started_as {
            write!(f, ", with RANK {number}, which it had at the beginning")?;
        }
        match needed {
            Some(1) => write!(f, "; then it goes on without it, with 1 process or more"),
            Some(needed) => write!(f, "; then it goes on without it, with {needed} processes or more"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, repeats, from, seconds, processes: [there, whole] } = self;
        let steps = if *repeats == 1 { "step" } else { "steps" };
        let all = match there == whole {
            true => "all".to_owned(),
            false => format!("{there} of {whole}"),
        };
        write!(
            f,
            "{all} processes are there after {seconds:.2} s: the run goes on with step {step}, from {from}, \
             and repeats {repeats} {steps}"
        )
    }
}
