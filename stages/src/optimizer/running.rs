//! Running means.

use crate::batched_launch::Together;
use crate::error::Result;
use crate::parameter::Parameter;

/// `value += share (mean - value)`, where the mean is over `micro_batches` micro-batches.
pub(super) fn update(
    parameter: &mut Parameter,
    share: f32,
    micro_batches: u32,
    together: &mut Together,
) -> Result<()> {
    if let Some(weights) = parameter.on_gpu_mut() {
        return weights.running_mean(share, micro_batches, &mut together.0);
    }
    let (value, sum, _) = parameter.owned_parts();
    for (value, sum) in value.iter_mut().zip(sum) {
        let mean = sum / micro_batches as f32;
        *value = share.mul_add(mean - *value, *value);
    }
    Ok(())
}
