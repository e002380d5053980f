//! The rows of one head, gathered into small matrices. Their sizes are whole tiles; the padding is zero.

use multiversion::multiversion;

use crate::cpu::lanes::{self, LANES};
use crate::cpu::prefetch::{LINE, prefetch};
use crate::cpu::small::{View, ViewMut};
use crate::pool::Buffer;

/// Query rows in a block.
pub(crate) const BLOCK: usize = 16;

/// How many rows ahead of their use memory is prefetched.
const AHEAD: usize = 8;

/// One part of every row of `stride` numbers: `width` numbers from `offset` on.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) numbers: &'a [f32],
    pub(crate) stride: usize,
    pub(crate) offset: usize,
    pub(crate) width: usize,
}

impl<'a> Part<'a> {
    /// The number of rows.
    fn count(self) -> usize {
        self.numbers.len() / self.stride
    }

    /// Returns a row, and prefetches a later one.
    #[inline(always)]
    fn row(self, row: usize) -> &'a [f32] {
        ask(self.numbers, (row + AHEAD) * self.stride + self.offset, self.width);
        &self.numbers[row * self.stride + self.offset..][..self.width]
    }

    #[inline(always)]
    fn rows(self) -> impl Iterator<Item = &'a [f32]> {
        (0..self.count()).map(move |row| self.row(row))
    }
}

/// Prefetches `width` numbers.
#[inline(always)]
fn ask(numbers: &[f32], start: usize, width: usize) {
    (start..start + width).step_by(LINE).for_each(|at| prefetch(numbers, at));
}

/// A matrix in a buffer of the pool.
pub(crate) struct Gathered {
    pub(crate) numbers: Buffer,
    pub(crate) stride: usize,
}

impl Gathered {
    /// `rows` rows of `stride` zeros.
    pub(crate) fn zeros(rows: usize, stride: usize) -> Self {
        let mut numbers = Buffer::pooled(rows * stride);
        numbers.fill(0.0);
        Self { numbers, stride }
    }

    /// The rows from this one on.
    pub(crate) fn view(&self, row: usize) -> View<'_> {
        View { numbers: &self.numbers[row * self.stride..], stride: self.stride }
    }

    /// The columns from this one on.
    pub(crate) fn columns(&self, column: usize) -> View<'_> {
        View { numbers: &self.numbers[column..], stride: self.stride }
    }

    /// The rows from this one on, for writing.
    pub(crate) fn view_mut(&mut self, row: usize) -> ViewMut<'_> {
        ViewMut { numbers: &mut self.numbers[row * self.stride..], stride: self.stride }
    }

    /// Copies the rows of a part, times `scale`, into the rows. The rest of the last block becomes zero.
    pub(crate) fn gather(&mut self, from: Part<'_>, scale: f32) {
        gather(&mut self.numbers, self.stride, from, scale);
        let rows = from.count();
        self.numbers[rows * self.stride..rows.next_multiple_of(BLOCK) * self.stride].fill(0.0);
    }

    /// Copies the rows of a part, times `scale`, into the columns.
    pub(crate) fn gather_turned(&mut self, from: Part<'_>, scale: f32) {
        gather_turned(&mut self.numbers, self.stride, from, scale);
    }

    /// Writes each row, times its scale, into rows of `stride` numbers, from column `offset` on.
    pub(crate) fn scatter(
        &self,
        scale: impl Fn(usize) -> f32,
        to: &mut [f32],
        [stride, offset, width]: [usize; 3],
    ) {
        scatter(&self.numbers, self.stride, scale, to, [stride, offset, width]);
    }
}

/// Copies one register of lanes at a time. A head is too narrow for the compiler's unrolled loop.
#[inline(always)]
fn copy_scaled(to: &mut [f32], from: &[f32], scale: f32) {
    let (to, to_rest) = to.as_chunks_mut::<LANES>();
    let (from, from_rest) = from.as_chunks::<LANES>();
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.map(|number| number * scale);
    }
    for (to, &from) in to_rest.iter_mut().zip(from_rest) {
        *to = from * scale;
    }
}

#[multiversion(targets = "simd")]
fn gather(to: &mut [f32], stride: usize, from: Part<'_>, scale: f32) {
    for (row, from) in to.chunks_exact_mut(stride).zip(from.rows()) {
        copy_scaled(&mut row[..from.len()], from, scale);
    }
}

/// Reads as many rows at once as there are lanes, so that columns are written in whole registers.
#[multiversion(targets = "simd")]
fn gather_turned(to: &mut [f32], stride: usize, from: Part<'_>, scale: f32) {
    for column in (0..from.count()).step_by(LANES) {
        // Past the end it reads the last row again. Those columns are padding.
        let row = |index: usize| from.row((column + index).min(from.count() - 1));
        let rows: [&[f32]; LANES] = std::array::from_fn(row);
        for (index, to) in to.chunks_exact_mut(stride).take(from.width).enumerate() {
            let lanes: [f32; LANES] = std::array::from_fn(|lane| rows[lane][index] * scale);
            to[column..column + LANES].copy_from_slice(&lanes);
        }
    }
}

#[multiversion(targets = "simd")]
fn scatter(
    from: &[f32],
    from_stride: usize,
    scale: impl Fn(usize) -> f32,
    to: &mut [f32],
    [stride, offset, width]: [usize; 3],
) {
    let count = to.len() / stride;
    for (row, from) in from.chunks_exact(from_stride).enumerate().take(count) {
        let at = row * stride + offset;
        ask(to, at + AHEAD * stride, width);
        copy_scaled(&mut to[at..at + width], &from[..width], scale(row));
    }
}

/// The scalar products of the rows of two parts.
#[multiversion(targets = "simd")]
pub(crate) fn dots(out: &mut [f32], a: Part<'_>, b: Part<'_>) {
    for (out, (a, b)) in out.iter_mut().zip(a.rows().zip(b.rows())) {
        *out = lanes::dot(a, b);
    }
}
