//! Layer normalisation, row by row. Ba, Kiros and Hinton, "Layer normalization" (2016).

use multiversion::multiversion;

use super::lanes;

/// Mean and reciprocal deviation of a row.
#[inline(always)]
fn moments(row: &[f32], epsilon: f32) -> [f32; 2] {
    let mean = lanes::sum(row) / row.len() as f32;
    let mut squares = [0.0; lanes::LANES];
    let (chunks, rest) = row.as_chunks::<{ lanes::LANES }>();
    for chunk in chunks {
        for lane in 0..lanes::LANES {
            let centred = chunk[lane] - mean;
            squares[lane] = centred.mul_add(centred, squares[lane]);
        }
    }
    let mut variance = lanes::fold(squares);
    for &number in rest {
        variance = (number - mean).mul_add(number - mean, variance);
    }
    [mean, 1.0 / (variance / row.len() as f32 + epsilon).sqrt()]
}

/// Normalises every row to mean 0 and deviation 1, then scales and shifts it. Writes (mean, reciprocal deviation) of
/// every row to `stats`.
#[multiversion(targets = "simd")]
pub(crate) fn forward(
    out: &mut [f32],
    stats: &mut [f32],
    input: &[f32],
    gain: &[f32],
    shift: &[f32],
    epsilon: f32,
) {
    let width = gain.len();
    let rows = input
        .chunks_exact(width)
        .zip(out.chunks_exact_mut(width))
        .zip(stats.as_chunks_mut::<2>().0);
    for ((row, out), stats) in rows {
        *stats = moments(row, epsilon);
        let [mean, scale] = *stats;
        for (((out, &x), &gain), &shift) in out.iter_mut().zip(row).zip(gain).zip(shift) {
            *out = ((x - mean) * scale).mul_add(gain, shift);
        }
    }
}

/// Turns the output gradient into the input gradient, in place, and adds the gradients of gain and shift to `gain_grad`
/// and `shift_grad`.
#[multiversion(targets = "simd")]
pub(crate) fn backward(
    grad: &mut [f32],
    input: &[f32],
    stats: &[f32],
    gain: &[f32],
    gain_grad: &mut [f32],
    shift_grad: &mut [f32],
) {
    let width = gain.len();
    let rows = grad
        .chunks_exact_mut(width)
        .zip(input.chunks_exact(width))
        .zip(stats.as_chunks::<2>().0);
    for ((grad, row), &[mean, scale]) in rows {
        let mut along = 0.0;
        let mut total = 0.0;
        for index in 0..width {
            let normal = (row[index] - mean) * scale;
            let grad = grad[index];
            gain_grad[index] = grad.mul_add(normal, gain_grad[index]);
            shift_grad[index] += grad;
            along += grad * gain[index] * normal;
            total += grad * gain[index];
        }
        let (along, total) = (along / width as f32, total / width as f32);
        for index in 0..width {
            let normal = (row[index] - mean) * scale;
            grad[index] = scale * (grad[index] * gain[index] - total - normal * along);
        }
    }
}
