//! How much privacy a training has spent: epsilon at a delta, by Rényi differential privacy.
//!
//! Mironov, "Rényi differential privacy" (CSF 2017); Mironov, Talwar and Zhang, "Rényi differential privacy
//! of the sampled Gaussian mechanism" (2019); the conversion to epsilon: Balle et al., "Hypothesis
//! testing interpretations and Rényi differential privacy" (AISTATS 2020).

use std::f64::consts::TAU;
use std::fmt;

/// Counts the privacy that a training has spent.
///
/// Each step takes each sample with the probability `rate`, independently, and adds Gaussian noise with
/// `noise` times the standard deviation of what one sample may change. Two sets of samples are neighbours if
/// one has a sample more.
///
/// ```
/// use pipewright::privacy::Accountant;
///
/// let accountant = Accountant::new(1.1, 256.0 / 60_000.0, 1e-5);
/// assert!((accountant.epsilon(3_500) - 1.28).abs() < 0.01);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Accountant {
    delta: f64,
    /// The orders, and the Rényi divergence that a step spends of each. None without noise.
    spent: Vec<(f64, f64)>,
}

impl Accountant {
    /// An accountant of a training with this noise and this rate, whose bound may fail with the probability
    /// `delta`.
    pub fn new(noise: f64, rate: f64, delta: f64) -> Self {
        let orders = orders().filter(|_| noise > 0.0);
        Self { delta, spent: orders.map(|order| (order, renyi(noise, rate.min(1.0), order))).collect() }
    }

    /// What is spent after this many steps.
    pub fn spent(&self, steps: u64) -> Spent {
        Spent { epsilon: self.epsilon(steps), delta: self.delta }
    }

    /// Epsilon after this many steps. It is infinite without noise, and 0 without a step.
    pub fn epsilon(&self, steps: u64) -> f64 {
        if steps == 0 {
            return 0.0;
        }
        let of_order = |&(order, spent): &(f64, f64)| {
            let rest = order - 1.0;
            steps as f64 * spent - (self.delta.ln() + order.ln()) / rest + (rest / order).ln()
        };
        self.spent.iter().map(of_order).fold(f64::INFINITY, f64::min).max(0.0)
    }
}

/// How much privacy was spent: what is learnt from the trained weights of a person is bounded by `epsilon`,
/// but for a probability of `delta`. Dwork et al., "Our data, ourselves" (EUROCRYPT 2006).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// The bound.
    pub epsilon: f64,
    /// The probability with which it may fail.
    pub delta: f64,
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epsilon {:.2} at delta {:e}", self.epsilon, self.delta)
    }
}

/// Further away than this many standard deviations, a Gaussian counts for nothing.
const FAR: f64 = 12.0;

/// The orders. The one that gives the smallest epsilon counts.
fn orders() -> impl Iterator<Item = f64> {
    let fractions = (1..100).map(|tenths| 1.0 + f64::from(tenths) / 10.0);
    fractions.chain((11..64).map(f64::from))
}

/// The Rényi divergence of a step, of an order above 1: of the mixture of two Gaussians, one of them moved by
/// 1, from the one that is not moved.
fn renyi(noise: f64, rate: f64, order: f64) -> f64 {
    if rate == 1.0 {
        return order / (2.0 * noise * noise);
    }
    log_moment(noise, rate, order) / (order - 1.0)
}

/// The logarithm of the mean, over the Gaussian that is not moved, of a power of the ratio of both densities.
/// It is added up at points of equal distances, which for such functions is exact to the last digits: the
/// ratio is 0 nowhere nearer to the real line than pi times the variance.
fn log_moment(noise: f64, rate: f64, order: f64) -> f64 {
    let variance = noise * noise;
    let step = noise.min(variance) / 8.0;
    let mut sum = LogSum::default();
    // The power of the ratio moves the centre by up to the order.
    let (first, last) = (-FAR * noise, order + FAR * noise);
    for index in 0..=((last - first) / step) as u64 {
        let at = first + index as f64 * step;
        let moved = ((2.0 * at - 1.0) / (2.0 * variance)) + rate.ln();
        let still = (-rate).ln_1p();
        let ratio = moved.max(still) + (-(moved - still).abs()).exp().ln_1p();
        sum.add(order * ratio - at * at / (2.0 * variance));
    }
    sum.ln() + (step / noise).ln() - 0.5 * TAU.ln()
}

/// The logarithm of a sum whose parts are given by their logarithms.
#[derive(Clone, Copy)]
struct LogSum {
    largest: f64,
    /// The sum, divided by `e` to the power of `largest`.
    sum: f64,
}

impl Default for LogSum {
    fn default() -> Self {
        Self { largest: f64::NEG_INFINITY, sum: 0.0 }
    }
}

impl LogSum {
    fn add(&mut self, part: f64) {
        if part > self.largest {
            self.sum = self.sum * (self.largest - part).exp() + 1.0;
            self.largest = part;
        } else if part > f64::NEG_INFINITY {
            self.sum += (part - self.largest).exp();
        }
    }

    fn ln(self) -> f64 {
        self.largest + self.sum.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_spent_without_steps_and_all_without_noise() {
        assert_eq!(Accountant::new(1.0, 0.1, 1e-5).epsilon(0), 0.0);
        assert_eq!(Accountant::new(0.0, 0.1, 1e-5).epsilon(1), f64::INFINITY);
    }

    /// The binomial sum of Mironov, Talwar and Zhang, which is there for whole orders only.
    fn by_binomials(noise: f64, rate: f64, order: u32) -> f64 {
        let (mut sum, mut choices) = (LogSum::default(), 0.0);
        for term in 0..=order {
            let (term, other) = (f64::from(term), f64::from(order - term));
            let shift = (term * term - term) / (2.0 * noise * noise);
            sum.add(choices + term * rate.ln() + other * (-rate).ln_1p() + shift);
            choices += (other / (term + 1.0)).ln();
        }
        sum.ln()
    }

    #[test]
    fn moments_of_whole_orders_are_binomial_sums() {
        for noise in [0.3, 0.8, 1.0, 3.0, 20.0] {
            for rate in [1e-4, 0.01, 0.3, 0.9] {
                for order in [2, 3, 8, 32, 63] {
                    let expected = by_binomials(noise, rate, order);
                    let found = log_moment(noise, rate, f64::from(order));
                    let is_near = (found - expected).abs() <= 1e-12 * expected.abs() + 2e-14;
                    assert!(is_near, "{noise} {rate} {order}: {found}, expected {expected}");
                }
            }
        }
    }
}
