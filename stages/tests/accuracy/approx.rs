//! Numbers in double precision, each with the error that single precision is expected to make.

use std::ops::{Add, Div, Mul, Neg, Sub};

use half::bf16;
use pipewright_stages::{DType, Device};

use super::place;
use crate::erfc;

/// The largest error of one rounding to single precision, relative to the number.
pub(crate) const ROUNDING: f64 = 1.0 / 16_777_216.0;

/// The same for `bf16`, as a multiple of [`ROUNDING`].
const HALF_ROUNDING: f64 = 65_536.0;

/// The kernels' exponential is zero where the result would be smaller than this, `exp(-87.3)`.
const FLUSH: f64 = 1.3e-38;

/// The bound that holds here, of one for the CPU and one for a GPU.
pub(crate) fn here([on_cpu, on_gpu]: [f64; 2]) -> f64 {
    match place().device {
        Device::Cpu => on_cpu,
        Device::Cuda(_) => on_gpu,
    }
}

/// A number, and the error that computing it in single precision is expected to make.
///
/// Every operation rounds once. It also passes on the errors of its operands, to first order. Errors are
/// independent, so their squares add up: the expected error of a sum of `k` numbers grows as `sqrt(k)`.
/// Higham and Mary, "A new approach to probabilistic rounding error analysis" (2019).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Approx {
    /// The number, in double precision.
    pub(crate) value: f64,
    /// The square of the expected error, in units of [`ROUNDING`].
    square: f64,
}

/// The square of the error of one rounding. It does not shrink further below the smallest normal number.
fn rounding(value: f64) -> f64 {
    let size = value.abs().max(f64::from(f32::MIN_POSITIVE));
    size * size
}

impl Approx {
    /// A number without an error.
    pub(crate) fn exact(number: impl Into<f64>) -> Self {
        Self { value: number.into(), square: 0.0 }
    }

    /// A number that single precision cannot represent.
    pub(crate) fn rounded(value: f64) -> Self {
        Self { value, square: rounding(value) }
    }

    /// The expected error.
    pub(crate) fn error(self) -> f64 {
        ROUNDING * self.square.sqrt()
    }

    /// The number as it is stored between layers. This rounds if the format is `bf16`.
    pub(crate) fn stored(self) -> Self {
        match place().dtype {
            DType::F32 => self,
            DType::Bf16 => {
                Self { square: self.square + HALF_ROUNDING * HALF_ROUNDING * rounding(self.value), ..self }
            }
        }
    }

    /// The number as a library function of NVIDIA's computes it on a GPU, or an instruction for `bf16` on the
    /// CPU. Denormal numbers may become zero there.
    pub(crate) fn by_library(self) -> Self {
        let floor = match (place().device, place().dtype) {
            (Device::Cpu, DType::F32) => 0.0,
            _ => f64::from(f32::MIN_POSITIVE) / ROUNDING,
        };
        Self { square: self.square + floor * floor, ..self }
    }

    /// The error alone, around zero.
    pub(crate) fn slip(self) -> Self {
        Self { value: 0.0, ..self }
    }

    /// A function of this number. Its own error is `own` roundings.
    fn map(self, value: f64, slope: f64, own: f64) -> Self {
        let floor = FLUSH / ROUNDING;
        Self { value, square: slope * slope * self.square + own * own * rounding(value) + floor * floor }
    }

    /// `e^x`, with an error of two roundings. If results are stored as `bf16`, an instruction computes it
    /// that also rounds its argument.
    pub(crate) fn exp(self) -> Self {
        let value = self.value.exp();
        let argument = match place().dtype {
            DType::F32 => 0.0,
            DType::Bf16 => 2.0 * self.value.abs(),
        };
        self.map(value, value, 2.0 + argument)
    }

    /// `1 / (1 + e^-x)`.
    pub(crate) fn sigmoid(self) -> Self {
        let value = 1.0 / (1.0 + (-self.value).exp());
        self.map(value, value * (1.0 - value), 2.0)
    }

    /// The complementary error function of `z >= 0`: an exponential whose argument, about `-z^2`, is rounded.
    pub(crate) fn erfc(self) -> Self {
        let z = self.value;
        let slope = 2.0 / std::f64::consts::PI.sqrt() * (-z * z).exp();
        self.map(erfc::erfc(z), slope, 2.0 + z * z)
    }

    /// The natural logarithm of a number that is not small.
    pub(crate) fn ln(self) -> Self {
        self.map(self.value.ln(), 1.0 / self.value, 1.0)
    }

    /// The square root.
    pub(crate) fn sqrt(self) -> Self {
        let value = self.value.sqrt();
        let carried = ((self.value + self.error()).sqrt() - value) / ROUNDING;
        Self { value, square: carried * carried + rounding(value) }
    }

    /// The sum of numbers, with a rounding at each.
    pub(crate) fn sum(numbers: impl IntoIterator<Item = Self>) -> Self {
        numbers.into_iter().reduce(|sum, number| sum + number).unwrap_or(Self::exact(0.0))
    }

    /// The sum of numbers in double precision.
    pub(crate) fn sum_in_double(numbers: impl IntoIterator<Item = Self>) -> Self {
        let sum = |sum: Self, number: Self| Self {
            value: sum.value + number.value,
            square: sum.square + number.square,
        };
        numbers.into_iter().fold(Self::exact(0.0), sum)
    }

    /// The sum of products, with a rounding at each product.
    pub(crate) fn dot(pairs: impl IntoIterator<Item = (Self, Self)>) -> Self {
        pairs.into_iter().fold(Self::exact(0.0), |sum, (a, b)| a.times_plus(b, sum))
    }

    /// `a b + c`, rounded once.
    pub(crate) fn times_plus(self, factor: Self, addend: Self) -> Self {
        let value = self.value * factor.value + addend.value;
        Self { value, square: self.product_square(factor) + addend.square + rounding(value) }
    }

    /// The squared error that a product gets from its factors.
    fn product_square(self, other: Self) -> f64 {
        self.value * self.value * other.square + other.value * other.value * self.square
    }
}

impl Add for Approx {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let value = self.value + other.value;
        Self { value, square: self.square + other.square + rounding(value) }
    }
}

impl Neg for Approx {
    type Output = Self;

    fn neg(self) -> Self {
        Self { value: -self.value, ..self }
    }
}

impl Sub for Approx {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for Approx {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let value = self.value * other.value;
        Self { value, square: self.product_square(other) + rounding(value) }
    }
}

impl Div for Approx {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        let carried = self.square + value * value * other.square;
        Self { value, square: carried / (other.value * other.value) + rounding(value) }
    }
}

/// A number as it is stored between layers.
pub(crate) fn stored(number: f32) -> f32 {
    match place().dtype {
        DType::F32 => number,
        DType::Bf16 => bf16::from_f32(number).to_f32(),
    }
}

/// Asserts that every number is within `limit` expected errors of its reference, and NaN where the reference
/// is NaN. Prints the largest error.
pub(crate) fn assert_within(limit: f64, what: &str, got: &[f32], expected: &[Approx]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let mut worst = 0.0_f64;
    for (index, (&got, expected)) in got.iter().zip(expected).enumerate() {
        let off = (f64::from(got) - expected.value).abs();
        if off == 0.0 || got.is_nan() && expected.value.is_nan() {
            continue;
        }
        let share = off / expected.error();
        assert!(
            share <= limit,
            "{what}[{index}]: {got} and {:e} are {share:.2} expected errors apart, \
             at most {limit} are allowed",
            expected.value
        );
        worst = worst.max(share);
    }
    println!("{what}: {worst:.2} of {limit}");
}
