//! What a parameter knows of the sum in its gradient.

use crate::parameter::gradient_buffer::GradientBuffer;

/// The sum in a gradient, and the earlier sums that wait to be added to it.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Whether the layer asks [`Parameter::starts_sum`](crate::Parameter::starts_sum) each time before it
    /// adds a gradient.
    pub(crate) by_layer: bool,
    /// What the next gradient finds.
    pub(crate) found: Found,
    /// The sums of earlier gradient groups, oldest first.
    pub(crate) waiting: Vec<GradientBuffer>,
    /// How many of the sums before this one, newest first, are added to it when it is complete.
    pub(crate) due: usize,
    /// Memory of sums that have been added.
    pub(crate) spare: Vec<GradientBuffer>,
}

/// What is in the gradient when a layer adds to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sum, which may be zero.
    #[default]
    Sum,
    /// Unspecified numbers. They count as zeros.
    Nothing,
    /// The newest of the sums that wait. It has not been put aside yet, since the next gradient may be added
    /// to it in place.
    Newest,
}
