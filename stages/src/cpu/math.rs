//! Exponential and error function by polynomials. They contain no calls, so loops over them vectorise.

/// Coefficients of `(exp(r) - 1 - r) / r^2` for `|r| <= ln(2) / 2`, lowest first (relative error of exp:
/// 1e-8).
const EXP: [f32; 5] = [0.5, 0.166_665_76, 0.041_666_556, 0.008_363_179, 0.001_392_618_4];

/// Below `-EXP_RANGE`, `exp` gives zero. Above `EXP_RANGE` it gives `e^EXP_RANGE`, so that it stays finite.
const EXP_RANGE: f32 = 87.3;

/// Coefficients of `ln(erfc(z) exp(z^2) / t)` in `t = 1 / (1 + z / 2)`, lowest first. A Chebyshev fit: Press
/// et al., "Numerical Recipes", section 6.2 (error: 8e-8).
const ERFC: [f32; 10] = [
    -1.265_505_9,
    0.999_894_2,
    0.375_108_57,
    0.092_849_806,
    -0.178_492_38,
    0.272_659_36,
    -1.138_936_5,
    1.500_143,
    -0.830_886_2,
    0.173_166_11,
];

/// The polynomial with these coefficients, lowest first.
#[inline(always)]
fn polynomial<const N: usize>(coefficients: [f32; N], x: f32) -> f32 {
    let mut sum = coefficients[N - 1];
    for index in (0..N - 1).rev() {
        sum = sum.mul_add(x, coefficients[index]);
    }
    sum
}

/// `e^x` with a relative error of 1e-7. Zero below -87.3, at most `e^87.3`; NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let value = bounded_exp(x);
    if x < -EXP_RANGE { 0.0 } else { value }
}

/// Like [`exp`], but `e^-87.3` below -87.3.
#[inline(always)]
pub(crate) fn bounded_exp(x: f32) -> f32 {
    // After adding 1.5 * 2^23, the low bits of the sum hold the rounded integer.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -0.000_212_194_44;
    let bounded = if x < -EXP_RANGE { -EXP_RANGE } else { x };
    let bounded = if bounded > EXP_RANGE { EXP_RANGE } else { bounded };
    let shifted = bounded.mul_add(std::f32::consts::LOG2_E, ROUND);
    let whole = shifted - ROUND;
    let rest = whole.mul_add(-LN2_LOW, whole.mul_add(-LN2_HIGH, bounded));
    let series = (rest * rest).mul_add(polynomial(EXP, rest), rest) + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    series * power
}

/// `1 / (1 + e^-x)`, and one minus that, from `e^-x`.
#[inline(always)]
pub(crate) fn sigmoid(power: f32) -> [f32; 2] {
    let value = 1.0 / (1.0 + power);
    [value, power * value]
}

/// `tanh(x)` with a relative error of 3e-7. NaN stays NaN.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let power = -2.0 * x.abs();
    // `exp(power) - 1`. Near 0 the difference would lose digits, and the polynomial is exact enough.
    let near = (power * power).mul_add(polynomial(EXP, power), power);
    let far = bounded_exp(power) - 1.0;
    let less_one = if power > -0.34 { near } else { far };
    (-less_one / (2.0 + less_one)).copysign(x)
}

/// The complementary error function of `z >= 0`.
#[inline(always)]
pub(crate) fn erfc(z: f32) -> f32 {
    let t = 1.0 / z.mul_add(0.5, 1.0);
    t * exp(z.mul_add(-z, polynomial(ERFC, t)))
}

#[cfg(test)]
#[path = "../../tests/common/erfc.rs"]
pub(crate) mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        for step in -87_299..87_299 {
            let x = step as f32 * 1e-3 + 3.7e-4;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= 1.6e-7 * exact, "exp({x})");
        }
    }

    #[test]
    fn exp_saturates_and_keeps_nan() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert!(exp(f32::INFINITY).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_within_five_units_in_the_last_place() {
        for step in -20_000..20_000 {
            let x = step as f32 * 1e-3 + 3.7e-6;
            let exact = f64::from(x).tanh();
            let off = (f64::from(tanh(x)) - exact).abs();
            assert!(off <= 3e-7 * exact.abs(), "tanh({x})");
        }
        assert_eq!(tanh(1e-30), 1e-30);
        assert_eq!([f32::INFINITY, -1e30].map(tanh), [1.0, -1.0]);
        assert!(tanh(f32::NAN).is_nan());
    }

    /// The error comes from rounding the exponential's argument, which is about `-z^2`. Largest measured:
    /// three quarters of the bound.
    #[test]
    fn erfc_is_as_near_as_its_argument() {
        for step in 0..9_150 {
            let z = step as f32 * 1e-3;
            let exact = reference::erfc(f64::from(z));
            let bound = 4e-7 + 1.6e-7 * f64::from(z * z);
            let off = (f64::from(erfc(z)) - exact).abs();
            assert!(off <= bound * exact, "erfc({z}) = {}, not {exact:e}", erfc(z));
        }
    }

    #[test]
    fn erfc_ends_and_keeps_nan() {
        assert!((erfc(0.0) - 1.0).abs() < 1e-6);
        assert_eq!(erfc(9.5), 0.0);
        assert!(erfc(f32::NAN).is_nan());
    }
}
