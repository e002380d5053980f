//! What turns gradients into new weights.

mod adamw;
mod learning_rate;
mod sgd;

pub use adamw::AdamW;
pub use learning_rate::LearningRate;
pub use sgd::Sgd;

use crate::error::Result;
use crate::parameter::Parameter;

/// A rule that updates one parameter at a time from its gradient.
pub trait Optimizer: std::fmt::Debug + Send + Sync + 'static {
    /// The names of the tensors in [`Parameter::state`], in its order, as in a checkpoint.
    fn state_names(&self) -> &'static [&'static str];

    /// Updates the weights from `update.scale` times the gradient, which stays as it is. Makes the state when it is empty.
    ///
    /// # Errors
    /// When a GPU that the parameter is on cannot do it.
    fn update(&self, parameter: &mut Parameter, update: Update) -> Result<()>;

    /// Whether it also updates parameters on a GPU.
    fn runs_on_gpus(&self) -> bool {
        false
    }
}

impl Optimizer for Box<dyn Optimizer> {
    fn state_names(&self) -> &'static [&'static str] {
        (**self).state_names()
    }

    fn update(&self, parameter: &mut Parameter, update: Update) -> Result<()> {
        (**self).update(parameter, update)
    }

    fn runs_on_gpus(&self) -> bool {
        (**self).runs_on_gpus()
    }
}

/// What an update is told besides the parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The update's number, from 1.
    pub step: u64,
    /// The learning rate.
    pub learning_rate: f64,
    /// What the gradient is multiplied by: one over the total weight, and the clipping.
    pub scale: f64,
}

/// Which parameters weight decay takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "lowercase")
)]
pub enum Decay {
    /// Those of two or more dimensions: no biases and norms.
    #[default]
    Matrices,
    /// Every parameter.
    All,
}

impl Decay {
    /// The decay that a parameter gets.
    fn of(self, weight_decay: f64, parameter: &Parameter) -> f64 {
        if self == Self::All || parameter.is_matrix() {
            weight_decay
        } else {
            0.0
        }
    }
}

/// Makes the optimizer's tensors, all zeros, before the first update.
fn fill_state(parameter: &mut Parameter, count: usize) {
    if parameter.state.is_empty() {
        parameter.make_state(count);
    }
}

/// What gradients of this global norm are multiplied by, so that the norm is at most `limit`: `limit / (norm + 1e-6)` above
/// it, else 1, as in PyTorch.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    if norm > limit { limit / (norm + 1e-6) } else { 1.0 }
}
