//! What a rank can be told to do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ScheduleError;
use crate::id::{MicroBatch, StageId};

/// A piece of one stage's work on one micro-batch.
///
/// A backward is done whole, [`Pass::Backward`], or in two halves: [`Pass::BackwardInput`], which the stage
/// before waits for, and [`Pass::BackwardWeight`], which no stage waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Pass {
    /// The output from the input; written `F`.
    Forward,
    /// Both gradients at once; written `B`.
    Backward,
    /// The gradient of the input; written `I`.
    BackwardInput,
    /// The gradients of the weights; written `W`.
    BackwardWeight,
}

impl Pass {
    /// The pass's letter: `F`, `B`, `I` or `W`.
    pub fn letter(self) -> char {
        match self {
            Self::Forward => 'F',
            Self::Backward => 'B',
            Self::BackwardInput => 'I',
            Self::BackwardWeight => 'W',
        }
    }

    /// The pass in words, such as `backward-input`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::BackwardInput => "backward-input",
            Self::BackwardWeight => "backward-weight",
        }
    }

    /// What the pass makes for a neighbouring stage; `None` for [`Pass::BackwardWeight`].
    pub fn output(self) -> Option<Flow> {
        match self {
            Self::Forward => Some(Flow::Activation),
            Self::Backward | Self::BackwardInput => Some(Flow::Gradient),
            Self::BackwardWeight => None,
        }
    }
}

/// What travels between two neighbouring stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Flow {
    /// A stage's output, on its way to the next stage; written `F`.
    Activation,
    /// The gradient of a stage's input, on its way to the stage before; written `B`.
    Gradient,
}

impl Flow {
    /// The flow's letter: `F` or `B`.
    pub fn letter(self) -> char {
        match self {
            Self::Activation => 'F',
            Self::Gradient => 'B',
        }
    }

    /// The stage that gets what `stage` sends; `None` when the number would fall below 0.
    pub fn after(self, stage: StageId) -> Option<StageId> {
        match self {
            Self::Activation => stage.0.checked_add(1).map(StageId),
            Self::Gradient => stage.0.checked_sub(1).map(StageId),
        }
    }

    /// The stage that sends what `stage` gets; `None` when the number would fall below 0.
    pub fn before(self, stage: StageId) -> Option<StageId> {
        match self {
            Self::Activation => Self::Gradient.after(stage),
            Self::Gradient => Self::Activation.after(stage),
        }
    }
}

/// One stage and one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The stage.
    pub stage: StageId,
    /// The micro-batch.
    pub micro_batch: MicroBatch,
}

impl Cell {
    /// The cell of stage number `stage` and micro-batch number `micro_batch`.
    pub fn new(stage: u32, micro_batch: u32) -> Self {
        Self { stage: StageId(stage), micro_batch: MicroBatch(micro_batch) }
    }
}

/// One entry of a rank's list.
///
/// Its text form is PyTorch's, with the stage in front and the micro-batch behind: `2F0`, `2B0`, `2I0`,
/// `2W0`, `2SEND_F0`, `2RECV_F0`, `3SEND_B1`, `3RECV_B1`. A reduction is `2REDUCE_GRAD`. A step is `2STEP`;
/// PyTorch has no word for it, as its caller does the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Run this pass once its inputs are there.
    Compute(Pass, Cell),
    /// Send what this cell's stage has made to the neighbour that needs it. The rank continues at once.
    /// `0SEND_F1` is stage 0's output for micro-batch 1, on its way to stage 1.
    Send(Flow, Cell),
    /// Announce that this cell's stage receives data. The rank continues at once; the pass that needs the
    /// data waits. `1RECV_F1` receives what `0SEND_F1` sent.
    Recv(Flow, Cell),
    /// Start the sum of this stage's gradients over its replicas. The rank continues at once; the step waits
    /// for the sum.
    Reduce(StageId),
    /// Update this stage's parameters from the gradients of the whole batch.
    Step(StageId),
}

impl Action {
    /// The stage that the action belongs to.
    pub fn stage(self) -> StageId {
        match self {
            Self::Compute(_, cell) | Self::Send(_, cell) | Self::Recv(_, cell) => cell.stage,
            Self::Reduce(stage) | Self::Step(stage) => stage,
        }
    }

    /// The action's cell. `None` for a reduction and for a step: they are about all micro-batches.
    pub fn cell(self) -> Option<Cell> {
        match self {
            Self::Compute(_, cell) | Self::Send(_, cell) | Self::Recv(_, cell) => Some(cell),
            Self::Reduce(_) | Self::Step(_) => None,
        }
    }

    /// The pass and its cell. `None` for an action that is no pass.
    pub fn compute(self) -> Option<(Pass, Cell)> {
        match self {
            Self::Compute(pass, cell) => Some((pass, cell)),
            _ => None,
        }
    }

    /// The other end of a transfer: the receive that takes what this sends, or the send that feeds this
    /// receive.
    pub fn partner(self) -> Option<Self> {
        match self {
            Self::Send(flow, cell) => Some(Self::Recv(flow, Cell { stage: flow.after(cell.stage)?, ..cell })),
            Self::Recv(flow, cell) => {
                Some(Self::Send(flow, Cell { stage: flow.before(cell.stage)?, ..cell }))
            }
            Self::Compute(..) | Self::Reduce(_) | Self::Step(_) => None,
        }
    }

    /// Whether the fabric carries it out: a transfer or a reduction. On ordered links it enters its rank's
    /// queue.
    pub(super) fn is_communication(self) -> bool {
        matches!(self, Self::Send(..) | Self::Recv(..) | Self::Reduce(_))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(pass, cell) => write!(f, "{}{}{}", cell.stage, pass.letter(), cell.micro_batch),
            Self::Send(flow, cell) => write!(f, "{}SEND_{}{}", cell.stage, flow.letter(), cell.micro_batch),
            Self::Recv(flow, cell) => write!(f, "{}RECV_{}{}", cell.stage, flow.letter(), cell.micro_batch),
            Self::Reduce(stage) => write!(f, "{stage}REDUCE_GRAD"),
            Self::Step(stage) => write!(f, "{stage}STEP"),
        }
    }
}

impl FromStr for Action {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        parse(text).ok_or_else(|| {
            ScheduleError::new(format!(
                "{text:?} is not an action; known are 2F0, 2B0, 2I0, 2W0, 2SEND_F0, 2RECV_F0, 2SEND_B0, \
                 2RECV_B0 (stage, action, micro-batch), 2REDUCE_GRAD and 2STEP (stage)"
            ))
        })
    }
}

fn parse(text: &str) -> Option<Action> {
    let (stage, word, micro_batch) = split(text);
    let stage = StageId(stage.parse().ok()?);
    let of_stage: Option<fn(StageId) -> Action> = match word {
        "REDUCE_GRAD" => Some(Action::Reduce),
        "STEP" => Some(Action::Step),
        _ => None,
    };
    if let Some(action) = of_stage {
        return micro_batch.is_empty().then(|| action(stage));
    }
    let cell = Cell { stage, micro_batch: MicroBatch(micro_batch.parse().ok()?) };
    Some(match word {
        "F" => Action::Compute(Pass::Forward, cell),
        "B" => Action::Compute(Pass::Backward, cell),
        "I" => Action::Compute(Pass::BackwardInput, cell),
        "W" => Action::Compute(Pass::BackwardWeight, cell),
        "SEND_F" => Action::Send(Flow::Activation, cell),
        "RECV_F" => Action::Recv(Flow::Activation, cell),
        "SEND_B" => Action::Send(Flow::Gradient, cell),
        "RECV_B" => Action::Recv(Flow::Gradient, cell),
        _ => return None,
    })
}

/// The digits in front, the word between and the digits behind.
pub(super) fn split(text: &str) -> (&str, &str, &str) {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let word = rest.trim_end_matches(|c: char| c.is_ascii_digit());
    (&text[..text.len() - rest.len()], word, &rest[word.len()..])
}
