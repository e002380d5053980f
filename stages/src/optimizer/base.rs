//! What an optimizer is, and the end of a step.

use std::sync::Arc;

use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::state_format::{StateFormat, StateTensor};
use crate::parameter::weights::UpdateKernel;

/// A rule that updates each parameter from its own gradient.
pub trait Optimizer: std::fmt::Debug + Send + Sync + 'static {
    /// The tensors that it keeps for a tensor of this name and these dimensions, in the order of
    /// [`Parameter::state`]. For a parameter in which several are fused, see [`states`].
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor>;

    /// Updates the weights from `update.scale` times the gradient. The gradient does not change. Makes the
    /// state if it is empty ([`Parameter::make_state`]). Called only for parameters that it
    /// [updates](Parameter::is_optimized), by [`update`]. The ready-made optimizers follow what
    /// [`Parameter::training`] says of the learning rate and the weight decay. An update that is not number
    /// by number treats each of [`Parameter::tensors`] by itself.
    ///
    /// On a GPU the update may wait in `together`. An optimizer of your own that calls another one, and then
    /// looks at the weights, first calls [`Together::launch`].
    ///
    /// # Errors
    /// When the parameter is on a GPU that reports an error or cannot run this optimizer.
    fn update(&self, parameter: &mut Parameter, update: Update, together: &mut Together) -> Result<()>;

    /// Whether it also updates parameters on a GPU.
    fn runs_on_gpus(&self) -> bool {
        false
    }

    /// Whether it can update a part of a parameter alone: the numbers of [`Parameter::owned`], from
    /// [`Parameter::owned_parts`]. A replica with a sharded optimizer needs this. An optimizer whose update
    /// of a number depends on other numbers cannot. One that can keeps equally many tensors for every
    /// parameter, each with the parameter's dimensions or in [blocks](StateFormat::Blocks).
    fn updates_parts(&self) -> bool {
        false
    }
}

macro_rules! boxed {
    ($($pointer:ty),*) => {$(
        impl Optimizer for $pointer {
            fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
                (**self).states(name, dims)
            }

            fn update(
                &self,
                parameter: &mut Parameter,
                update: Update,
                together: &mut Together,
            ) -> Result<()> {
                (**self).update(parameter, update, together)
            }

            fn runs_on_gpus(&self) -> bool {
                (**self).runs_on_gpus()
            }

            fn updates_parts(&self) -> bool {
                (**self).updates_parts()
            }
        }
    )*};
}

boxed!(Box<dyn Optimizer>, Arc<dyn Optimizer>);

/// What an optimizer keeps for a parameter.
pub fn states_of(optimizer: &dyn Optimizer, parameter: &Parameter) -> Vec<StateTensor> {
    states(optimizer, parameter.name(), parameter.dims(), parameter.fused())
}

/// What an optimizer keeps for a parameter of these dimensions in which tensors of these sizes are
/// [fused](Parameter::fuse): what it keeps for each tensor, one behind the other along the first dimension.
pub fn states(optimizer: &dyn Optimizer, name: &str, dims: &[usize], fused: &[usize]) -> Vec<StateTensor> {
    let ([first, others @ ..], [_, rest @ ..]) = (fused, dims) else {
        return optimizer.states(name, dims);
    };
    let of = |size: &usize| optimizer.states(name, &[&[*size], rest].concat());
    let mut states = of(first);
    for state in others.iter().map(of) {
        for (all, more) in states.iter_mut().zip(state) {
            let sizes = all.dims.first_mut().zip(more.dims.first());
            sizes.into_iter().for_each(|(all, more)| *all += more);
        }
    }
    // Blocks do not end where a fused tensor ends.
    for state in states.iter_mut().filter(|state| state.format == StateFormat::Blocks) {
        *state = StateTensor::in_format(state.format, state.name, dims);
    }
    states
}

/// The arguments of an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// The number of the update, from 1.
    pub step: u64,
    /// The learning rate.
    pub learning_rate: f64,
    /// The factor for the gradient: one over the total weight, times the clipping factor.
    pub scale: f64,
    /// How many micro-batches the batch had.
    pub micro_batches: u32,
}

/// Updates a parameter at the end of a step: by the optimizer, or as a [running mean](Parameter::running).
/// One that is frozen, or [follows](Parameter::follow) another one, stays as it is. On a GPU the update may
/// wait in `together`.
///
/// # Errors
/// As for [`Optimizer::update`].
pub fn update(
    optimizer: &dyn Optimizer,
    parameter: &mut Parameter,
    update: Update,
    together: &mut Together,
) -> Result<()> {
    match parameter.running_share() {
        _ if parameter.is_frozen() || parameter.follows() => Ok(()),
        Some(share) => update_running_mean(parameter, share, update.micro_batches, together),
        None => optimizer.update(parameter, update, together),
    }
}

/// `value += share (mean - value)`, where the mean is over `micro_batches` micro-batches.
fn update_running_mean(
    parameter: &mut Parameter,
    share: f32,
    micro_batches: u32,
    together: &mut Together,
) -> Result<()> {
    if let Some(weights) = parameter.on_gpu_mut() {
        let (name, args, states) = ("running_mean", &[(micro_batches as f32).into()], &[]);
        return weights.update(UpdateKernel { name, args, states, own: [share, 0.0] }, together);
    }
    let (value, sum, _) = parameter.owned_parts();
    for (value, sum) in value.iter_mut().zip(sum) {
        let mean = sum / micro_batches as f32;
        *value = share.mul_add(mean - *value, *value);
    }
    Ok(())
}

/// Which parameters weight decay applies to: the optimizer's, or a parameter's
/// [own](crate::Training::weight_decay).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Decay {
    /// Parameters of two or more dimensions: no biases and no norms.
    #[default]
    Matrices,
    /// Every parameter.
    All,
}

impl Decay {
    /// The weight decay of this parameter.
    pub(crate) fn of(self, weight_decay: f64, parameter: &Parameter) -> f64 {
        match self == Self::All || parameter.is_matrix() {
            true => parameter.training().weight_decay.unwrap_or(weight_decay),
            false => 0.0,
        }
    }
}

/// Makes the optimizer's tensors, all zeros, before the first update.
pub(crate) fn fill_state(parameter: &mut Parameter, optimizer: &impl Optimizer) {
    if parameter.state.is_empty() {
        parameter.make_state(&states_of(optimizer, parameter));
    }
}

/// The factor that scales gradients of this global norm to a norm of at most `limit`: `limit / (norm + 1e-6)`
/// if the norm is above the limit, else 1, as in PyTorch.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    if norm > limit { limit / (norm + 1e-6) } else { 1.0 }
}
