//! How one parameter is trained.

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
        Self {
            frozen: false,
            rate: 1.0,
            weight_decay: None,
        }
    }
}
