//! AdamW.

use bytemuck::cast_slice_mut;
use half::bf16;
use multiversion::multiversion;

use super::base::{Decay, Optimizer, Update, fill_state};
use super::moments::{Block, decode, encode, noise, rounded_at_random, seed, signed_levels, unsigned_levels};
#[cfg(target_arch = "x86_64")]
use super::registers;
use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::state_format::{BLOCK, BLOCK_BYTES, StateFormat, StateTensor};
use crate::parameter::weights::UpdateKernel;

/// Adam with decoupled weight decay, by PyTorch's formula. Loshchilov and Hutter, "Decoupled weight decay
/// regularization" (ICLR 2019).
///
/// With gradient `g`, learning rate `a` and step `t`: `p *= 1 - a * weight_decay`, `m += (1 - b1)(g - m)`, `v
/// = b2 v + (1 - b2) g^2`, `p -= a / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// The share of the mean gradient `m` and of the mean square `v` that each step keeps.
    pub betas: (f64, f64),
    /// Added to the square root of the mean square.
    pub eps: f64,
    /// The share of a weight that each step removes, times the learning rate.
    pub weight_decay: f64,
    /// Which parameters decay.
    pub decay: Decay,
    /// In which number format it keeps `m` and `v`. It computes in `f32`.
    pub state: StateFormat,
}

impl Default for AdamW {
    /// PyTorch's defaults: betas 0.9 and 0.999, eps 1e-8, weight decay 0.01. Moments in `f32`.
    fn default() -> Self {
        Self {
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.01,
            decay: Decay::default(),
            state: StateFormat::F32,
        }
    }
}

impl Optimizer for AdamW {
    fn states(&self, _name: &str, dims: &[usize]) -> Vec<StateTensor> {
        ["exp_avg", "exp_avg_sq"].map(|name| StateTensor::in_format(self.state, name, dims)).into()
    }

    fn update(&self, parameter: &mut Parameter, by: Update, together: &mut Together) -> Result<()> {
        let (mean_keep, square_keep) = self.betas;
        let step = by.step as f64;
        let learning_rate = by.learning_rate * parameter.training().rate;
        let weight_decay = self.decay.of(self.weight_decay, parameter);
        let scalars = Scalars {
            scale: by.scale as f32,
            shrink: (1.0 - learning_rate * weight_decay) as f32,
            mean_step: (1.0 - mean_keep) as f32,
            square_keep: square_keep as f32,
            square_step: (1.0 - square_keep) as f32,
            root_scale: (1.0 / (1.0 - square_keep.powf(step)).sqrt()) as f32,
            epsilon: self.eps as f32,
            step_size: (learning_rate / (1.0 - mean_keep.powf(step))) as f32,
            seeds: [0, 1].map(|moment| seed(by.step, moment)),
        };
        if let Some(weights) = parameter.on_gpu_mut() {
            let Scalars { scale, mean_step, square_keep, square_step, root_scale, epsilon, .. } = scalars;
            let args = [scale, mean_step, square_keep, square_step, root_scale, epsilon].map(Into::into);
            let seeds = scalars.seeds.map(Into::into);
            let own = [scalars.shrink, scalars.step_size];
            let (name, args) = match self.state {
                StateFormat::F32 => ("adamw", &args[..]),
                StateFormat::Bf16 => ("adamw_bf16_state", &[&args[..], &seeds].concat()[..]),
                StateFormat::Blocks => ("adamw_8bit_state", &args[..]),
            };
            let states = &[self.state; 2];
            return weights.update(UpdateKernel { name, args, states, own }, together);
        }
        fill_state(parameter, self);
        let (value, grad, [mean, square]) = parameter.owned_parts() else {
            unreachable!("fill_state: two tensors, and checkpoints are checked against `states`")
        };
        match self.state {
            StateFormat::F32 => update(value, grad, mean, square, scalars),
            StateFormat::Bf16 => update_halves(value, grad, mean, square, scalars),
            StateFormat::Blocks => update_blocks(value, grad, mean, square, scalars),
        }
        Ok(())
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn updates_parts(&self) -> bool {
        true
    }
}

/// The scalars of one AdamW update.
#[derive(Clone, Copy)]
struct Scalars {
    /// The factor that the gradient is multiplied by first.
    scale: f32,
    /// `1 - learning_rate * weight_decay`.
    shrink: f32,
    /// `1 - beta1`.
    mean_step: f32,
    /// `beta2`.
    square_keep: f32,
    /// `1 - beta2`.
    square_step: f32,
    /// `1 / sqrt(1 - beta2^step)`.
    root_scale: f32,
    /// Added to the square root.
    epsilon: f32,
    /// `learning_rate / (1 - beta1^step)`.
    step_size: f32,
    /// For rounding `m` and `v` at random.
    seeds: [u32; 2],
}

/// One update of the weights, the mean of the gradient and the mean of its square.
fn update(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    let rows = ((By(value, LINE), By(grad, LINE)), (By(mean, LINE), By(square, LINE)));
    cut(rows, 2 * LINE, |_, ((value, grad), (mean, square))| {
        update_part(value, grad, mean, square, by);
    });
}

#[multiversion(targets = "simd")]
fn update_part(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    for (((value, &grad), mean), square) in value.iter_mut().zip(grad).zip(mean).zip(square) {
        update_number(value, grad, mean, square, by);
    }
}

#[inline(always)]
fn update_number(value: &mut f32, grad: f32, mean: &mut f32, square: &mut f32, by: Scalars) {
    let grad = grad * by.scale;
    *mean = (grad - *mean).mul_add(by.mean_step, *mean);
    *square = (grad * by.square_step).mul_add(grad, *square * by.square_keep);
    let root = square.sqrt().mul_add(by.root_scale, by.epsilon);
    *value = (-by.step_size).mul_add(*mean / root, *value * by.shrink);
}

/// The same with moments in `bf16`.
fn update_halves(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    let [mean, square] = [mean, square].map(|moment| &mut cast_slice_mut::<f32, bf16>(moment)[..value.len()]);
    let rows = ((By(value, LINE), By(grad, LINE)), (By(mean, LINE), By(square, LINE)));
    cut(rows, 2 * LINE, |_, ((value, grad), (mean, square))| {
        update_part_of_halves(value, grad, mean, square, by);
    });
}

#[multiversion(targets = "simd")]
fn update_part_of_halves(
    value: &mut [f32],
    grad: &[f32],
    mean: &mut [bf16],
    square: &mut [bf16],
    by: Scalars,
) {
    for (((value, &grad), mean), square) in value.iter_mut().zip(grad).zip(mean).zip(square) {
        let [mut m, mut v] = [&*mean, &*square].map(|half| f32::from_bits(u32::from(half.to_bits()) << 16));
        update_number(value, grad, &mut m, &mut v, by);
        *mean = rounded_at_random(m, noise(m, grad, by.seeds[0]));
        *square = rounded_at_random(v, noise(v, grad, by.seeds[1]));
    }
}

/// The same with moments in blocks of 8 bits.
fn update_blocks(value: &mut [f32], grad: &[f32], mean: &mut [f32], square: &mut [f32], by: Scalars) {
    let bytes = value.len().div_ceil(BLOCK) * BLOCK_BYTES;
    let [mean, square] = [mean, square].map(|moment| &mut cast_slice_mut::<f32, u8>(moment)[..bytes]);
    let levels = [signed_levels(), unsigned_levels()];
    let rows = ((By(value, BLOCK), By(grad, BLOCK)), (By(mean, BLOCK_BYTES), By(square, BLOCK_BYTES)));
    cut(rows, 2 * BLOCK, |_, ((value, grad), (mean, square))| {
        update_part_of_blocks(value, grad, mean, square, &levels, by);
    });
}

fn update_part_of_blocks(
    value: &mut [f32],
    grad: &[f32],
    mean: &mut [u8],
    square: &mut [u8],
    levels: &[[f32; 256]; 2],
    by: Scalars,
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V4::try_new() {
        return simd.vectorize(InRegisters { simd, value, grad, mean, square, by });
    }
    update_part_of_blocks_plainly(value, grad, mean, square, levels, by);
}

#[multiversion(targets = "simd")]
fn update_part_of_blocks_plainly(
    value: &mut [f32],
    grad: &[f32],
    mean: &mut [u8],
    square: &mut [u8],
    levels: &[[f32; 256]; 2],
    by: Scalars,
) {
    let moments = mean.as_chunks_mut().0.iter_mut().zip(square.as_chunks_mut().0);
    for ((value, grad), (mean, square)) in value.chunks_mut(BLOCK).zip(grad.chunks(BLOCK)).zip(moments) {
        let (mut m, mut v) = ([0.0; BLOCK], [0.0; BLOCK]);
        decode(mean, &levels[0], &mut m);
        decode(square, &levels[1], &mut v);
        update_block(value, grad, &mut m, &mut v, by);
        encode::<true>(&m, mean);
        encode::<false>(&v, square);
    }
}

#[inline(always)]
fn update_block(value: &mut [f32], grad: &[f32], mean: &mut Block, square: &mut Block, by: Scalars) {
    for (((value, &grad), mean), square) in value.iter_mut().zip(grad).zip(mean).zip(square) {
        update_number(value, grad, mean, square, by);
    }
}

/// The same with the moments in registers of AVX-512.
#[cfg(target_arch = "x86_64")]
struct InRegisters<'a> {
    simd: pulp::x86::V4,
    value: &'a mut [f32],
    grad: &'a [f32],
    mean: &'a mut [u8],
    square: &'a mut [u8],
    by: Scalars,
}

#[cfg(target_arch = "x86_64")]
impl pulp::NullaryFnOnce for InRegisters<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { simd, value, grad, mean, square, by } = self;
        let moments = mean.as_chunks_mut().0.iter_mut().zip(square.as_chunks_mut().0);
        for ((value, grad), (mean, square)) in value.chunks_mut(BLOCK).zip(grad.chunks(BLOCK)).zip(moments) {
            let (mut m, mut v) = ([0.0; BLOCK], [0.0; BLOCK]);
            registers::decode::<true>(simd, mean, &mut m);
            registers::decode::<false>(simd, square, &mut v);
            update_block(value, grad, &mut m, &mut v, by);
            registers::encode::<true>(simd, &m, mean);
            registers::encode::<false>(simd, &v, square);
        }
    }
}
