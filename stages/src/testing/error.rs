//! What a check finds.

use std::fmt;

use crate::error::Error;
use crate::shape::Shape;

/// What is wrong with a layer or stage.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{problem}", if layer.is_empty() { String::new() } else { format!("{layer}: ") })]
pub struct CheckError {
    /// The layer; empty when a stage was checked.
    pub layer: String,
    /// What is wrong.
    pub problem: Box<Problem>,
}

impl CheckError {
    pub(super) fn new(problem: Problem) -> Self {
        Self {
            layer: String::new(),
            problem: Box::new(problem),
        }
    }

    /// The same, of this layer.
    pub(super) fn at(self, layer: &str) -> Self {
        match *self.problem {
            // It names its own place.
            Problem::Failed(error) => Self::new(Problem::Failed(error.at(layer))),
            problem => Self {
                layer: layer.to_owned(),
                problem: Box::new(problem),
            },
        }
    }
}

impl From<Error> for CheckError {
    fn from(error: Error) -> Self {
        Self::new(Problem::Failed(error))
    }
}

/// What a check found. Tensors are named as in "the gradient of parameter `fc.weight`"; an index has a number for each
/// dimension, outermost first.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A pass failed.
    #[error("{0}")]
    Failed(#[source] Error),
    /// The output of forward has another shape than `output_shape` says.
    #[error("forward gave an output of {got}, and output_shape says {expected}")]
    OutputShape {
        /// What `output_shape` gave.
        expected: Shape,
        /// The shape of forward's output.
        got: Shape,
    },
    /// The input gradient has another shape than the input.
    #[error("backward_input gave an input gradient of {got} for an input of {expected}")]
    InputGradientShape {
        /// The shape of the input.
        expected: Shape,
        /// The shape of its gradient.
        got: Shape,
    },
    /// No input gradient, where the input is made of numbers.
    #[error("backward_input gave no input gradient, and the input is {input}: only ids have none")]
    NoInputGradient {
        /// The shape of the input.
        input: Shape,
    },
    /// A gradient that is not the slope of forward.
    #[error(
        "{of} at {index:?} is {got}, and forward's slope there is {expected} (allowed: {allowed:.1e} apart)"
    )]
    Slope {
        /// The tensor.
        of: String,
        /// The place in it.
        index: Vec<usize>,
        /// The central difference.
        expected: f64,
        /// The gradient.
        got: f32,
        /// The largest difference that is allowed.
        allowed: f64,
    },
    /// Gradients of two micro-batches that do not add up.
    #[error(
        "{of} at {index:?} is {got} after two micro-batches, and the sum of both is {expected} (allowed: {allowed:.1e} \
         apart): add with `+=` in backward_weight"
    )]
    Sum {
        /// The tensor.
        of: String,
        /// The place in it.
        index: Vec<usize>,
        /// The sum of the gradients of each micro-batch alone.
        expected: f64,
        /// The gradient after both.
        got: f32,
        /// The largest difference that is allowed.
        allowed: f64,
    },
    /// Other bits by another way through the same passes.
    #[error("{of} at {index:?} is {got} and not {expected} when {way}")]
    Bits {
        /// The tensor.
        of: String,
        /// The place in it.
        index: Vec<usize>,
        /// The number when each micro-batch runs forward, backward-input and backward-weight in a row.
        expected: f32,
        /// The number by the other way.
        got: f32,
        /// The other way.
        way: Way,
    },
}

/// A way through the passes of a stage that must give the same bits as the plain one: one micro-batch after the other,
/// each forward, backward-input, backward-weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Forward a second time for the same micro-batch.
    Repeated,
    /// Forward of both micro-batches, then backward-input of both, then backward-weight of both.
    Apart,
    /// [`Stage::backward`](crate::Stage::backward) in place of its two halves.
    Whole,
    /// Backward from what [`Stage::forward_again`](crate::Stage::forward_again) keeps.
    Again,
    /// After [`Stage::recompute_interiors`](crate::Stage::recompute_interiors).
    Interiors,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeated => "forward runs a second time for the same micro-batch",
            Self::Apart => {
                "passes of another micro-batch come between: keep nothing of a micro-batch in the layer itself"
            }
            Self::Whole => "backward runs as one and not in its two halves",
            Self::Again => "backward starts from what forward_again keeps",
            Self::Interiors => "the interior is recomputed",
        })
    }
}
