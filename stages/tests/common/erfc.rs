//! The complementary error function in double precision.

/// `erfc(z)` for `z >= 0`, to 1e-13 of itself: one less the Taylor series of erf below 2, Laplace's continued fraction above.
pub(crate) fn erfc(z: f64) -> f64 {
    use std::f64::consts::PI;
    if z < 2.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..60 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - 2.0 / PI.sqrt() * sum;
    }
    let fraction = (1..150).rev().fold(z, |rest, n| z + 0.5 * f64::from(n) / rest);
    (-z * z).exp() / (PI.sqrt() * fraction)
}
