//! What a check finds.

use std::fmt;

use crate::error::Error;
use crate::shape::Shape;

/// What is wrong with a layer or stage. `Debug` writes the message too, for a `main` that returns it.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{}{problem}", if layer.is_empty() { String::new() } else { format!("{layer}: ") })]
pub struct CheckError {
    /// The layer. Empty if a stage was checked.
    pub layer: String,
    /// What is wrong.
    pub problem: Box<Problem>,
}

impl fmt::Debug for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CheckError {
    pub(super) fn new(problem: Problem) -> Self {
        Self { layer: String::new(), problem: Box::new(problem) }
    }

    /// The same error, at this layer.
    pub(super) fn at(self, layer: &str) -> Self {
        match *self.problem {
            // This error names its layer itself.
            Problem::Failed(error) => Self::new(Problem::Failed(error.at(layer))),
            problem => Self { layer: layer.to_owned(), problem: Box::new(problem) },
        }
    }
}

impl From<Error> for CheckError {
    fn from(error: Error) -> Self {
        Self::new(Problem::Failed(error))
    }
}

/// What a check found. Tensors are named as in "the gradient of parameter `fc.weight`". An index has one
/// number per dimension, outermost first.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A pass failed.
    #[error("{0}")]
    Failed(#[source] Error),
    /// The output of forward does not have the shape that `output_shape` gave.
    #[error("forward gave an output of {got}, and output_shape says {expected}")]
    OutputShape {
        /// What `output_shape` gave.
        expected: Shape,
        /// The shape of forward's output.
        got: Shape,
    },
    /// The input gradient does not have the shape of the input.
    #[error("backward_input gave an input gradient of {got} for an input of {expected}")]
    InputGradientShape {
        /// The shape of the input.
        expected: Shape,
        /// The shape of its gradient.
        got: Shape,
    },
    /// There is no input gradient, but the input is made of numbers.
    #[error("backward_input gave no input gradient, and the input is {input}: only ids have none")]
    NoInputGradient {
        /// The shape of the input.
        input: Shape,
    },
    /// A gradient that is not the derivative of forward.
    #[error(
        "{of} at {index:?} is {got}, and forward's slope there is {expected} (allowed: {allowed:.1e} apart)"
    )]
    Slope {
        /// The tensor.
        of: String,
        /// The index in the tensor.
        index: Vec<usize>,
        /// The central difference.
        expected: f64,
        /// The gradient.
        got: f32,
        /// The largest difference that is allowed.
        allowed: f64,
    },
    /// The gradients of two micro-batches do not add up.
    #[error(
        "{of} at {index:?} is {got} after two micro-batches, and the sum of both is {expected} \
         (allowed: {allowed:.1e} apart): add with `+=` in backward_weight"
    )]
    Sum {
        /// The tensor.
        of: String,
        /// The index in the tensor.
        index: Vec<usize>,
        /// The sum of the gradients of each micro-batch alone.
        expected: f64,
        /// The gradient after both.
        got: f32,
        /// The largest difference that is allowed.
        allowed: f64,
    },
    /// Another order or form of the same passes gave other bits.
    #[error("{of} at {index:?} is {got} and not {expected} when {way}")]
    Bits {
        /// The tensor.
        of: String,
        /// The index in the tensor.
        index: Vec<usize>,
        /// The number when each micro-batch runs forward, backward-input and backward-weight one after the
        /// other.
        expected: f32,
        /// The number of the other way.
        got: f32,
        /// The other way.
        way: Way,
    },
}

/// A way to run the passes that must give the same bits as the plain way. In the plain way, each micro-batch
/// runs forward, backward-input and backward-weight before the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Forward runs a second time for the same micro-batch.
    Repeated,
    /// Forward of both micro-batches, then backward-input of both, then backward-weight of both.
    Apart,
    /// [`Stage::backward`](crate::Stage::backward) instead of its two halves.
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
                "passes of another micro-batch come between: keep nothing of a micro-batch in the \
                 layer itself"
            }
            Self::Whole => "backward runs as one and not in its two halves",
            Self::Again => "backward starts from what forward_again keeps",
            Self::Interiors => "the interior is recomputed",
        })
    }
}
