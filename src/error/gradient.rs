//! Gradients that do not fit what they belong to.

use pipewright_stages::Shape;

use crate::id::StageId;

/// A gradient that a stage or the loss did not give, or gave in another shape than that of what it belongs
/// to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GradientError {
    /// A stage's input gradient has another shape than its input.
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
    /// The loss's gradient has another shape than the output that it judges.
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
    /// A stage that is not the first gave no input gradient.
    #[error(
        "stage {stage} gave no input gradient, which the stage before it needs; only the first stage of a \
         model may give none"
    )]
    Missing {
        /// The stage.
        stage: StageId,
    },
}
