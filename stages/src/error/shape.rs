//! Tensors whose shapes do not fit.

use crate::shape::Shape;

/// Tensors whose shapes do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// An input that the layer does not work on.
    #[error("expected an input of {expected}, got {got}")]
    Input {
        /// What the layer accepts, in words.
        expected: String,
        /// The shape that arrived.
        got: Shape,
    },
    /// An input gradient of another shape than the input.
    #[error(
        "backward_input gave an input gradient of {got}, and the input was {expected}: they must have one \
         shape"
    )]
    InputGradient {
        /// The shape of the input.
        expected: Shape,
        /// The shape of its gradient.
        got: Shape,
    },
    /// An output that the loss does not judge.
    #[error("expected {expected} as the output, got {got}")]
    Output {
        /// What the loss accepts, in words.
        expected: &'static str,
        /// The shape of the output.
        got: Shape,
    },
    /// A target that does not fit the output.
    #[error("expected {expected} as the target, got {got}")]
    Target {
        /// The shape that fits.
        expected: Shape,
        /// The shape of the target.
        got: Shape,
    },
    /// The layers inside a residual give another shape than they take, so that the two cannot be added.
    #[error("the layers inside a residual must keep the shape: {input} became {output}")]
    Residual {
        /// The shape of the input.
        input: Shape,
        /// What it became.
        output: Shape,
    },
    /// More or fewer elements than the shape has.
    #[error("{count} elements do not fill {shape}, which has {}", shape.count())]
    Count {
        /// The shape.
        shape: Shape,
        /// The elements.
        count: usize,
    },
    /// A parameter that is given to a layer in place of its own, and has other dimensions.
    #[error("expected a weight of {expected:?}, got `{name}` of {got:?}")]
    Weight {
        /// The dimensions of the layer's own.
        expected: Vec<usize>,
        /// The name of the given one.
        name: String,
        /// Its dimensions.
        got: Vec<usize>,
    },
}
