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
    let mut lanes = [0.0; LANES];
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a.iter().zip(b) {
        for lane in 0..LANES {
            lanes[lane] = x[lane].wide().mul_add(y[lane].wide(), lanes[lane]);
        }
    }
    let mut total = fold(lanes);
    for (x, y) in a_rest.iter().zip(b_rest) {
        total = x.wide().mul_add(y.wide(), total);
    }
    total
}

/// The largest number, or negative infinity if there is none. It ignores NaN.
#[inline(always)]
pub(crate) fn max<N: Real>(numbers: &[N]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = numbers.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let number = chunk[lane].wide();
            lanes[lane] = if number > lanes[lane] { number } else { lanes[lane] };
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = if lanes[lane + half] > lanes[lane] { lanes[lane + half] } else { lanes[lane] };
        }
        half /= 2;
    }
    let mut largest = lanes[0];
    for number in rest.iter().map(|number| number.wide()) {
        largest = if number > largest { number } else { largest };
    }
    largest
}

/// The sum of the squares of these numbers, in double precision, always added up in the same order.
pub(crate) fn sum_of_squares(numbers: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; 8];
    let (chunks, rest) = numbers.as_chunks::<8>();
    for chunk in chunks {
        for (lane, &number) in lanes.iter_mut().zip(chunk) {
            *lane += f64::from(number) * f64::from(number);
        }
    }
    let squares = |number: &f32| f64::from(*number) * f64::from(*number);
    lanes.iter().sum::<f64>() + rest.iter().map(squares).sum::<f64>()
}
