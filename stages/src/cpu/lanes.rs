//! Maxima and scalar products in a fixed order: first within each of sixteen lanes, then over the
//! lanes, then the rest.

use super::real::Real;

/// The number of lanes: one AVX-512 register.
pub(crate) const LANES: usize = 16;

/// The sum of the lanes, by halving.
#[inline(always)]
pub(crate) fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
        half /= 2;
    }
    lanes[0]
}

/// The scalar product of two slices of one length.
#[inline(always)]
pub(crate) fn dot<N: Real>(a: &[N], b: &[N]) -> f32 {
    dots(a, [b])[0]
}

/// The scalar products of a slice with others of its length, each as [`dot`] computes it.
#[inline(always)]
pub(crate) fn dots<N: Real, M: Real, const COUNT: usize>(a: &[N], others: [&[M]; COUNT]) -> [f32; COUNT] {
    let mut lanes = [[0.0; LANES]; COUNT];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let others = others.map(|other| other.as_chunks::<LANES>());
    let chunks = others.map(|(chunks, _)| &chunks[..a.len()]);
    for (index, x) in a.iter().enumerate() {
        for (lanes, chunks) in lanes.iter_mut().zip(chunks) {
            for lane in 0..LANES {
                lanes[lane] = x[lane].wide().mul_add(chunks[index][lane].wide(), lanes[lane]);
            }
        }
    }
    let mut totals = lanes.map(fold);
    for (total, (_, rest)) in totals.iter_mut().zip(others) {
        for (x, y) in a_rest.iter().zip(rest) {
            *total = x.wide().mul_add(y.wide(), *total);
        }
    }
    totals
}

/// The largest number, or negative infinity if there is none. It ignores NaN.
#[inline(always)]
pub(crate) fn max(numbers: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = if chunk[lane] > lanes[lane] {
                chunk[lane]
            } else {
                lanes[lane]
            };
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = if lanes[lane + half] > lanes[lane] {
                lanes[lane + half]
            } else {
                lanes[lane]
            };
        }
        half /= 2;
    }
    let mut largest = lanes[0];
    for &number in rest {
        largest = if number > largest { number } else { largest };
    }
    largest
}
