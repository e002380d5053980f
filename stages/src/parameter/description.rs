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

/// A tensor that an optimizer keeps for a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTensor {
    /// Its name. Checkpoints use it.
    pub name: &'static str,
    /// The dimensions, outermost first. If they are the parameter's, an owner of a part of the parameter has
    /// only the same part of this tensor.
    pub dims: Vec<usize>,
}

impl StateTensor {
    /// A tensor with a number for each number of a parameter of these dimensions.
    pub fn for_each(name: &'static str, dims: &[usize]) -> Self {
        let dims = dims.to_vec();
        Self { name, dims }
    }
}

/// The length of [a piece](crate::Parameter::PIECE).
pub(crate) const PIECE: usize = 1 << 16;
