//! Gradients of micro-batches that are kept apart until the end of a step, and noise, on the CPU: for
//! differential privacy.

use multiversion::multiversion;

use crate::cpu::parts::{By, cut};
use crate::cpu::prefetch::LINE;
use crate::cuda::Together;
use crate::error::Result;
use crate::parameter::Parameter;
use crate::parameter::gradient_buffer::GradientBuffer;
use crate::rng::philox;
use crate::tensor::numbers::Numbers;

/// How many times as long a number of noise takes as an addition.
const NOISE: usize = 64;

impl Parameter {
    /// Keeps the gradient, which is of one micro-batch, apart from the next ones, until
    /// [`Parameter::add_apart`] adds them. The next gradient starts a new sum.
    ///
    /// # Errors
    /// None on the CPU. The parameter must not be on a GPU.
    pub fn keep_apart(&mut self, together: &mut Together) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        // Nothing waits yet, so this adds up the groups of rows only.
        self.end_group()?;
        let mut kept = match self.sums.spare.pop() {
            Some(GradientBuffer::Host(numbers)) => numbers,
            _ => Numbers::zeros(self.grad.len()),
        };
        std::mem::swap(&mut kept, &mut self.grad);
        self.sums.apart.push_back(kept);
        self.start_sum(together)
    }

    /// As [`Parameter::grad_squares`], of a gradient that is kept apart, by its place among them.
    ///
    /// # Panics
    /// When there are not as many.
    pub fn apart_squares(&self, place: usize, piece: usize, tell: impl FnMut(usize, f64)) {
        let numbers = self.pieces().numbers(piece..piece + 1);
        self.squares_of(&self.sums.apart[place][numbers], piece, tell);
    }

    /// Adds the oldest gradients that are kept apart to the gradient, which starts at zero: each times its
    /// factor, in their order. They are kept no longer.
    ///
    /// # Errors
    /// None on the CPU.
    ///
    /// # Panics
    /// When there are fewer gradients than factors.
    pub fn add_apart(&mut self, factors: &[f32]) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        if self.starts_sum(false) {
            self.zero_grad()?;
        }
        for &factor in factors {
            let kept = self.sums.apart.pop_front().expect("each micro-batch has left a gradient");
            cut((By(&mut self.grad[..], LINE), By(&kept[..], LINE)), LINE, |_, (sum, kept)| {
                add_scaled(sum, kept, factor);
            });
            self.sums.spare.push(GradientBuffer::Host(kept));
        }
        self.sums.has_all_rows = true;
        Ok(())
    }

    /// Adds normal random numbers with this standard deviation to the gradient, where the optimizer updates
    /// it here. Each number depends on the key, the step and its place in the whole tensor only, so all
    /// layouts have the same.
    ///
    /// The numbers are made of 106 random bits for two (Box-Muller), so they reach out to 8.6 deviations.
    pub fn add_noise(&mut self, key: [u32; 2], step: u64, deviation: f64) {
        let own = self.owned();
        let mut before = 0;
        for places in self.own_places() {
            let here = before..before + places.len();
            before = here.end;
            let (start, end) = (here.start.max(own.start), here.end.min(own.end));
            if start < end {
                let first = (places.start + start - here.start) as u64;
                add_noise_at(&mut self.grad[start..end], first, (key, step), deviation);
            }
        }
    }
}

#[multiversion(targets = "simd")]
fn add_scaled(sum: &mut [f32], numbers: &[f32], factor: f32) {
    for (sum, number) in sum.iter_mut().zip(numbers) {
        *sum += factor * number;
    }
}

/// Adds the noise of the places from `first` on.
fn add_noise_at(numbers: &mut [f32], first: u64, stream: ([u32; 2], u64), deviation: f64) {
    cut(By(numbers, LINE), LINE * NOISE, |line, numbers| {
        let mut drawn = None;
        for (place, number) in (first + (line * LINE) as u64..).zip(numbers) {
            let pair = match drawn {
                Some((of, pair)) if of == place / 2 => pair,
                _ => pair_of_normals(stream, place / 2),
            };
            drawn = Some((place / 2, pair));
            *number += (deviation * pair[(place % 2) as usize]) as f32;
        }
    });
}

/// Two normal random numbers of deviation 1.
fn pair_of_normals((key, step): ([u32; 2], u64), pair: u64) -> [f64; 2] {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let ([low, high], [step_low, step_high]) = (halves(pair), halves(step));
    let words = philox(key, [low, high, step_low, step_high]);
    // In (0, 1], of 53 bits, so that the logarithm is finite.
    let unit = |high: u32, low: u32| {
        let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
        (bits + 1) as f64 / (1_u64 << 53) as f64
    };
    let radius = (-2.0 * unit(words[0], words[1]).ln()).sqrt();
    let angle = std::f64::consts::TAU * unit(words[2], words[3]);
    [radius * angle.cos(), radius * angle.sin()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::init::Init;
    use crate::rng;
    use crate::shards::{Division, Shard, Sharding};

    fn noise_of(parameter: &mut Parameter, step: u64) -> Vec<f32> {
        parameter.grad.fill(0.0);
        parameter.add_noise(rng::key(5, "noise"), step, 2.0);
        parameter.grad.to_vec()
    }

    #[test]
    fn noise_has_its_mean_and_its_deviation_and_differs_by_step() {
        let mut parameter = Parameter::new("w", &[200_000], Init::Zeros, 0);
        let noise = noise_of(&mut parameter, 3);
        let count = noise.len() as f64;
        let mean = noise.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
        let square = noise.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / count;
        let fourth = noise.iter().map(|&x| f64::from(x).powi(4)).sum::<f64>() / count;
        // Five expected errors each.
        assert!(mean.abs() < 5.0 * 2.0 / count.sqrt(), "{mean}");
        assert!((square / 4.0 - 1.0).abs() < 5.0 * (2.0 / count).sqrt(), "{square}");
        assert!((fourth / 48.0 - 1.0).abs() < 5.0 * (96.0 / 9.0 / count).sqrt(), "{fourth}");
        assert_eq!(noise_of(&mut parameter, 3), noise);
        assert_ne!(noise_of(&mut parameter, 4), noise);
        assert_ne!(noise[..100], noise[100..200]);
    }

    #[test]
    fn noise_is_added_to_what_the_optimizer_updates_here_only() {
        let mut parameter = Parameter::new("w", &[70_001], Init::Zeros, 0);
        let whole = noise_of(&mut parameter, 0);
        parameter.own(65_536..70_001);
        let part = noise_of(&mut parameter, 0);
        assert!(part[..65_536].iter().all(|&number| number == 0.0));
        assert_eq!(part[65_536..], whole[65_536..]);
    }

    #[test]
    fn shards_add_the_noise_of_the_whole_tensor() {
        let of = |index, of| Sharding::new(4, Shard { index, of }).expect("they fit");
        for is_first in [true, false] {
            let made = |index, count| {
                let mut parameter = Parameter::new("w", &[24, 24], Init::Zeros, 0);
                let division = Division::new(of(index, count), 8, &[1, 2]).expect("it fits");
                parameter.divide(is_first, &division);
                parameter
            };
            let whole = noise_of(&mut made(0, 1), 7);
            for count in [2, 4] {
                let mut found = vec![0.0; whole.len()];
                for index in 0..count {
                    let mut shard = made(index, count);
                    let noise = noise_of(&mut shard, 7);
                    shard.put_in_whole(index, &noise, &mut found);
                }
                assert_eq!(found, whole, "{count} shards, by rows: {is_first}");
            }
        }
    }
}
