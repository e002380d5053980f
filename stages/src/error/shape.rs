//! Tensors whose shapes do not fit.

use crate::shape::Shape;

/// Tensors whose shapes do not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// An input whose shape the layer does not accept.
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
    /// An output whose shape the loss does not accept.
    #[error("expected {expected} as the output, got {got}")]
    Output {
        /// What the loss accepts, in words.
        expected: &'static str,
        /// The shape of the output.
        got: Shape,
    },
    /// A target whose shape does not fit the output.
    #[error("expected {expected} as the target, got {got}")]
    Target {
        /// The shape that fits.
        expected: Shape,
        /// The shape of the target.
        got: Shape,
    },
    /// A weight gradient of another length than its weights.
    #[error(
        "backward_weight left a gradient of {got} numbers in `{name}`, which is {dims:?} and needs \
         {expected}: add to `Parameter::grad`, and never replace it"
    )]
    WeightGradient {
        /// The name of the parameter.
        name: String,
        /// Its dimensions.
        dims: Vec<usize>,
        /// How many numbers its gradient must have; none if it is frozen.
        expected: usize,
        /// How many it has.
        got: usize,
    },
    /// A block without a branch.
    #[error("a block needs a branch; one without layers gives its input")]
    NoBranches,
    /// Branches whose outputs do not fit together.
    #[error("{how}, but branch 0 gives {first} and branch {index} gives {other} (branches count from 0)")]
    Branches {
        /// What must fit, in words.
        how: &'static str,
        /// The shape of the first branch's output.
        first: Shape,
        /// Which branch does not fit.
        index: usize,
        /// The shape of its output.
        other: Shape,
    },
    /// Columns that do not fit the branches or the input.
    #[error("the branches get columns {widths:?} of {input}: {wrong}")]
    Columns {
        /// The width of each group of columns.
        widths: Vec<usize>,
        /// The shape of the input.
        input: Shape,
        /// What does not fit, in words.
        wrong: String,
    },
    /// A number of elements that differs from the shape's.
    #[error("{count} elements do not fill {shape}, which has {}", shape.count())]
    Count {
        /// The shape.
        shape: Shape,
        /// The number of elements.
        count: usize,
    },
    /// A parameter that should replace a layer's own, but has other dimensions.
    #[error("expected a weight of {expected:?}, got `{name}` of {got:?}")]
    Weight {
        /// The dimensions of the layer's own parameter.
        expected: Vec<usize>,
        /// The name of the given parameter.
        name: String,
        /// Its dimensions.
        got: Vec<usize>,
    },
}
