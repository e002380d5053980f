//! Mean squared error.

use std::fmt;

use multiversion::multiversion;

use super::Score;
use super::base::{Loss, check_numbers};
use crate::cpu::lanes::LANES;
use crate::cpu::real::{Real, in_format};
use crate::cuda::launch::{args, kernel};
use crate::cuda::{Gpu, Grid};
use crate::error::Result;
use crate::loss::cuda::{SCORE, Scores};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The threads of a block, and the most blocks on a multiprocessor.
const THREADS: usize = 1024;
const BLOCKS: usize = 4;

/// The squared difference of output and target, summed over all numbers. The weight is how many numbers there
/// are.
#[derive(Clone, Default)]
pub struct MeanSquaredError {
    on_gpu: Scores<3>,
}

impl MeanSquaredError {
    /// Computes the score on the GPU, and turns the output into the gradient.
    fn run_on(&mut self, gpu: &Gpu, micro_batch: u32, output: &mut Tensor, target: &Tensor) -> Result<()> {
        self.check(output.shape(), target.shape())?;
        let count = target.shape().count();
        let target = gpu.upload(bytemuck::cast_slice(target.f32()))?;
        let blocks = count.div_ceil(8 * THREADS).min(gpu.blocks(BLOCKS));
        let scratch = gpu.memory_of(blocks * SCORE)?;
        let place = self.on_gpu.place(micro_batch, true)?;
        let args = args![output.at_mut(gpu)?, &target, &scratch, count];
        let grid = Grid::row(blocks, THREADS as u32);
        gpu.launch(kernel!(output.dtype(), "mean_squared_error"), grid, &args)?;
        gpu.sum_doubles(place, scratch.at(), blocks, 3)
    }

    fn told(&self, micro_batch: u32) -> Score {
        let [sum, weight, _] = self.on_gpu.numbers(micro_batch);
        Score::new(sum, weight)
    }
}

/// It has no settings. The room for scores differs from process to process.
impl fmt::Debug for MeanSquaredError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeanSquaredError")
    }
}

impl Loss<Tensor> for MeanSquaredError {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        check_numbers(output, target)
    }

    fn start(
        &mut self,
        micro_batch: u32,
        mut output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor)> {
        let Some(gpu) = output.gpu()? else {
            return self.forward(output, target).map(|(score, grad)| (Some(score), grad));
        };
        self.run_on(&gpu, micro_batch, &mut output, &target)?;
        Ok((None, output))
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.told(micro_batch)
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }

    fn forward(&mut self, mut output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        if let Some(gpu) = output.gpu()? {
            self.run_on(&gpu, 0, &mut output, &target)?;
            gpu.synchronize()?;
            return Ok((self.told(0), output));
        }
        self.check(output.shape(), target.shape())?;
        let sum = in_format!(output.dtype(), N => differences(output.numbers_mut::<N>(), target.f32()));
        let weight = target.shape().count() as f64;
        Ok((Score::new(sum, weight), output))
    }
}

/// Turns the output into twice its difference from the target, and returns the sum of the squared
/// differences. It is added up in each of [`LANES`] lanes first.
#[multiversion(targets = "simd")]
fn differences<N: Real>(output: &mut [N], target: &[f32]) -> f64 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = output.as_chunks_mut::<LANES>();
    let (targets, rest_of_targets) = target.as_chunks::<LANES>();
    for (chunk, target) in chunks.iter_mut().zip(targets) {
        for lane in 0..LANES {
            sums[lane] += difference(&mut chunk[lane], target[lane]);
        }
    }
    for ((sum, number), &target) in sums.iter_mut().zip(rest).zip(rest_of_targets) {
        *sum += difference(number, target);
    }
    sums.iter().sum()
}

/// Turns a number into twice its difference from the target, and returns the square of the difference.
#[inline(always)]
fn difference<N: Real>(number: &mut N, target: f32) -> f64 {
    let difference = number.wide() - target;
    *number = N::narrow(2.0 * difference);
    f64::from(difference) * f64::from(difference)
}
