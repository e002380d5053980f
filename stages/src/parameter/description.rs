//! What is said of a parameter and its tensors.

/// Which numbers of a parameter are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// [`Parameter::value`](crate::Parameter::value).
    Value,
    /// [`Parameter::grad`](crate::Parameter::grad).
    Gradient,
    /// [`Parameter::state`](crate::Parameter::state).
    State,
}

/// How a parameter is trained, where it differs from the others of its model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// Whether its weights stay as they are. It then has no gradient and no optimizer state, and no layer
    /// computes its gradient.
    pub frozen: bool,
    /// The factor for the learning rate.
    pub rate: f64,
    /// The weight decay, instead of the optimizer's, where its [`Decay`](crate::optimizer::Decay) applies it.
    pub weight_decay: Option<f64>,
}

impl Default for Training {
    /// Like all others.
    fn default() -> Self {
        Self { frozen: false, rate: 1.0, weight_decay: None }
    }
}

/// The length of [a piece](crate::Parameter::PIECE).
pub(crate) const PIECE: usize = 1 << 16;
