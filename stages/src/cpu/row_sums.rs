//! The sums that norms need of each row. Registers are named here because the compiler cuts
//! lanes that are folded later into pairs. Sums of one row do not wait for sums of another, so a few rows are
//! best taken at once. Meanwhile the next few rows, which lie behind them, are prefetched.

use pulp::{Arch, Simd, WithSimd};

use super::lanes::{self, LANES};
use super::prefetch::prefetch;
use super::real::Real;

/// Writes the mean and the reciprocal standard deviation of each row. If the rows are not centred: 0 and the
/// reciprocal root mean square.
pub(crate) fn moments<N: Real>(
    stats: &mut [[f32; 2]],
    rows: &[N],
    width: usize,
    epsilon: f32,
    is_centred: bool,
) {
    Arch::new().dispatch(Moments { stats, rows, width, epsilon, is_centred });
}

/// Writes two means over each row: of the gradient of the normalised numbers, and of that gradient times the
/// centred numbers. `stats` has the rows' moments. If the rows are not centred, the first mean is 0.
pub(crate) fn slopes<N: Real>(
    means: &mut [[f32; 2]],
    grads: &[N],
    rows: &[N],
    stats: &[[f32; 2]],
    gain: &[f32],
    is_centred: bool,
) {
    Arch::new().dispatch(Slopes { means, grads, rows, stats, gain, is_centred });
}

struct Moments<'a, N> {
    stats: &'a mut [[f32; 2]],
    rows: &'a [N],
    width: usize,
    epsilon: f32,
    is_centred: bool,
}

impl<N: Real> WithSimd for Moments<'_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let count = self.width as f32;
        for (stats, row) in self.stats.iter_mut().zip(self.rows.chunks_exact(self.width)) {
            stats[0] = if self.is_centred { total(simd, row) / count } else { 0.0 };
        }
        for (stats, row) in self.stats.iter_mut().zip(self.rows.chunks_exact(self.width)) {
            stats[1] = squares(simd, row, stats[0], self.rows.len()) / count + self.epsilon;
        }
        for [_, scale] in self.stats {
            *scale = 1.0 / scale.sqrt();
        }
    }
}

struct Slopes<'a, N> {
    means: &'a mut [[f32; 2]],
    grads: &'a [N],
    rows: &'a [N],
    stats: &'a [[f32; 2]],
    gain: &'a [f32],
    is_centred: bool,
}

impl<N: Real> WithSimd for Slopes<'_, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.gain.len();
        let rows = self.grads.chunks_exact(width).zip(self.rows.chunks_exact(width));
        for ((means, (grad, row)), stats) in self.means.iter_mut().zip(rows).zip(self.stats) {
            let sums = totals(simd, grad, row, self.gain, stats[0], self.rows.len());
            *means = sums.map(|sum| sum / width as f32);
            if !self.is_centred {
                means[0] = 0.0;
            }
        }
    }
}

/// Sixteen numbers in `f32`.
#[inline(always)]
fn wide<N: Real>(chunk: &[N; LANES]) -> [f32; LANES] {
    let mut wide = [0.0; LANES];
    for (wide, number) in wide.iter_mut().zip(chunk) {
        *wide = number.wide();
    }
    wide
}

/// As [`lanes::fold`].
#[inline(always)]
fn fold<S: Simd>(simd: S, lanes: [f32; LANES]) -> f32 {
    match S::as_simd_f32s(&lanes).0 {
        // The lanes of one register are added up by halving, too.
        [all] => simd.reduce_sum_f32s(*all),
        _ => lanes::fold(lanes),
    }
}

/// The sum of a row.
#[inline(always)]
fn total<S: Simd, N: Real>(simd: S, row: &[N]) -> f32 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        let chunk = wide(chunk);
        let sums = S::as_mut_simd_f32s(&mut sums).0.iter_mut();
        for (sum, &x) in sums.zip(S::as_simd_f32s(&chunk).0) {
            *sum = simd.add_f32s(*sum, x);
        }
    }
    let mut total = fold(simd, sums);
    for number in rest {
        total += number.wide();
    }
    total
}

/// The sum of the squared distances from the mean. Prefetches the row that lies `ahead` numbers further on.
#[inline(always)]
pub(crate) fn squares<S: Simd, N: Real>(simd: S, row: &[N], mean: f32, ahead: usize) -> f32 {
    let mut sums = [0.0; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for (index, chunk) in chunks.iter().enumerate() {
        prefetch(row, ahead + index * LANES);
        let chunk = wide(chunk);
        let sums = S::as_mut_simd_f32s(&mut sums).0.iter_mut();
        for (sum, &x) in sums.zip(S::as_simd_f32s(&chunk).0) {
            let centred = simd.sub_f32s(x, simd.splat_f32s(mean));
            *sum = simd.mul_add_f32s(centred, centred, *sum);
        }
    }
    for (sum, number) in sums.iter_mut().zip(rest) {
        let centred = number.wide() - mean;
        *sum = centred.mul_add(centred, *sum);
    }
    fold(simd, sums)
}

/// The sums of a row whose means [`slopes`] writes. Prefetches the rows that lie `ahead` numbers further on.
#[inline(always)]
pub(crate) fn totals<S: Simd, N: Real>(
    simd: S,
    grad: &[N],
    row: &[N],
    gain: &[f32],
    mean: f32,
    ahead: usize,
) -> [f32; 2] {
    let (mut totals, mut alongs) = ([0.0; LANES], [0.0; LANES]);
    let (grads, grad_rest) = grad.as_chunks::<LANES>();
    let (chunks, rest) = row.as_chunks::<LANES>();
    let (gains, gain_rest) = gain.as_chunks::<LANES>();
    for (index, ((grads, chunk), gain)) in grads.iter().zip(chunks).zip(gains).enumerate() {
        prefetch(grad, ahead + index * LANES);
        prefetch(row, ahead + index * LANES);
        let (grads, chunk) = (wide(grads), wide(chunk));
        let numbers = S::as_simd_f32s(&grads).0.iter().zip(S::as_simd_f32s(&chunk).0);
        let sums = S::as_mut_simd_f32s(&mut totals).0.iter_mut();
        let sums = sums.zip(S::as_mut_simd_f32s(&mut alongs).0);
        for (((&grad, &x), &gain), (total, along)) in numbers.zip(S::as_simd_f32s(gain).0).zip(sums) {
            let normal_grad = simd.mul_f32s(grad, gain);
            let centred = simd.sub_f32s(x, simd.splat_f32s(mean));
            *total = simd.add_f32s(*total, normal_grad);
            *along = simd.mul_add_f32s(normal_grad, centred, *along);
        }
    }
    for (lane, ((grad, x), gain)) in grad_rest.iter().zip(rest).zip(gain_rest).enumerate() {
        let normal_grad = grad.wide() * gain;
        totals[lane] += normal_grad;
        alongs[lane] = normal_grad.mul_add(x.wide() - mean, alongs[lane]);
    }
    [fold(simd, totals), fold(simd, alongs)]
}
