//! Numbers that are not finite: which ones, and where.

use std::fmt;

use pipewright_stages::ErrorKind;
use serde::{Deserialize, Serialize};

use crate::id::{MicroBatch, StageId};

/// What is NaN or infinite, and where it was found first.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotFinite {
    /// The loss of a micro-batch.
    #[error("the loss of micro-batch {micro_batch} is not finite; {}", origin(found.as_ref()))]
    Loss {
        /// The first micro-batch whose loss is not finite.
        micro_batch: MicroBatch,
        /// Where its forward pass fails first; none where the numbers of all layers are finite.
        found: Option<Finding>,
    },
    /// The loss of a micro-batch in a step of a parameter server, or without a barrier, where a rank failed
    /// in the next step. The ranks learnt of it after other steps had begun.
    #[error(
        "the loss of micro-batch {micro_batch} is not finite; later steps had begun, so its layer was not \
         looked for"
    )]
    StaleLoss {
        /// The first micro-batch whose loss is not finite.
        micro_batch: MicroBatch,
    },
    /// The gradient of a parameter.
    #[error("the gradient is not finite, first at `{parameter}` (stage {stage})")]
    Gradient {
        /// The parameter: the last in the model, so the first that backward gave.
        parameter: String,
        /// Its stage.
        stage: StageId,
    },
    /// The loss of the validation before the step.
    #[error("the loss of the validation before it is {loss}")]
    Validation {
        /// The loss.
        loss: f64,
    },
}

/// Where a forward pass fails first, when it is run to search for a number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The stage.
    pub stage: StageId,
    /// The layer, if the stage says which of its layers it is.
    pub layer: Option<String>,
    /// What the stage says of it.
    pub what: Found,
}

/// What a stage says when its forward pass is run to search for a number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Found {
    /// A parameter has a number that is not finite.
    Parameter {
        /// The parameter's name.
        name: String,
    },
    /// The layer's output has a number that is not finite.
    Output,
    /// The stage failed in another way.
    Failure {
        /// The stage's message.
        message: String,
    },
}

impl Finding {
    /// What the error of a stage tells.
    pub(crate) fn new(stage: StageId, error: pipewright_stages::Error) -> Self {
        let what = match &error.kind {
            ErrorKind::ParameterNotFinite(name) => Found::Parameter { name: name.to_string() },
            ErrorKind::OutputNotFinite => Found::Output,
            kind => Found::Failure { message: kind.to_string() },
        };
        let layer = Some(error.place).filter(|layer| !layer.is_empty());
        Self { stage, layer, what }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stage, layer, what } = self;
        match layer {
            Some(layer) => write!(f, "stage {stage}, {layer}: {what}"),
            None => write!(f, "stage {stage}, {what}"),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { name } => write!(f, "parameter `{name}` is not finite (NaN or infinite)"),
            Self::Output => f.write_str("its output is not finite (NaN or infinite)"),
            Self::Failure { message } => f.write_str(message),
        }
    }
}

fn origin(found: Option<&Finding>) -> String {
    match found {
        Some(finding) => format!("first in {finding}"),
        None => "every layer's output is finite, so the loss itself is at fault".to_owned(),
    }
}
