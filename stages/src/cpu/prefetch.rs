//! Prefetching memory. The operands of a training step are rarely in a cache when it needs them.

/// How many `f32` numbers are in a cache line.
pub(crate) const LINE: usize = 16;

/// Prefetches the cache line of the number at index `at`, for reading or writing. Any `at` is allowed.
#[inline(always)]
#[allow(unsafe_code, reason = "there is no safe prefetch")]
pub(super) fn prefetch<T>(numbers: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch neither faults nor changes anything that a program can see, whatever the
        // address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(numbers.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (numbers, at);
}

/// Cache lines in rows, to be prefetched little by little.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) numbers: &'a [f32],
    /// The first number.
    pub(super) start: usize,
    /// The distance from one row to the next.
    pub(super) stride: usize,
    pub(super) rows: usize,
    /// The number of lines in a row.
    pub(super) lines: usize,
}

impl Lines<'_> {
    /// Nothing to prefetch.
    pub(super) const NONE: Self = Lines {
        numbers: &[],
        start: 0,
        stride: 0,
        rows: 0,
        lines: 1,
    };

    /// Prefetches one of `shares` equal shares of the lines.
    #[inline(always)]
    pub(super) fn ask(&self, share: usize, shares: usize) {
        let count = self.rows * self.lines;
        let size = count.div_ceil(shares);
        for line in share * size..count.min((share + 1) * size) {
            let (row, line) = (line / self.lines, line % self.lines);
            prefetch(self.numbers, self.start + row * self.stride + line * LINE);
        }
    }
}
