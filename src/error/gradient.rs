//! Gradients that are missing or have the wrong shape.

use pipewright_stages::Shape;

use crate::id::StageId;

/// A gradient that a stage or the loss did not return, or whose shape differs from the shape of the value it
/// belongs to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GradientError {
    /// The shape of a stage's input gradient differs from the shape of its input.
    #[error(
        "stage {stage} gave a gradient of {got} for an input of {input}: a gradient has the shape of what it \
         belongs to"
    )]
    OfInput {
        /// The stage.
        stage: StageId,
        /// The shape of its input.
        input: Shape,
        /// The shape of the gradient.
        got: Shape,
    },
    /// The shape of the loss's gradient differs from the shape of the model's output.
    #[error(
        "the loss gave a gradient of {got} for an output of {output}: a gradient has the shape of what it \
         belongs to"
    )]
    OfOutput {
        /// The shape of the output.
        output: Shape,
        /// The shape of the gradient.
        got: Shape,
    },
    /// A stage returned no input gradient, and it is not the first one.
    #[error(
        "stage {stage} gave no input gradient, which the stage before it needs; only the first stage of a \
         model may give none"
    )]
    Missing {
        /// The stage.
        stage: StageId,
    },
}
