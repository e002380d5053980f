//! Asking for memory ahead of its use: operands of a training step come from far away.

/// Numbers in a line of the cache.
pub(crate) const LINE: usize = 16;

/// Asks for the line that holds number `at`, to be read or written; any `at` will do.
#[inline(always)]
#[allow(unsafe_code, reason = "there is no safe prefetch")]
pub(super) fn prefetch(numbers: &[f32], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch neither faults nor changes anything that a program can see, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(numbers.as_ptr().wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (numbers, at);
}

/// Lines of the cache in rows, to be asked for little by little.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) numbers: &'a [f32],
    /// The first number.
    pub(super) start: usize,
    /// From a row to the next.
    pub(super) stride: usize,
    pub(super) rows: usize,
    /// The lines of a row.
    pub(super) lines: usize,
}

impl Lines<'_> {
    /// Nothing to ask for.
    pub(super) const NONE: Self = Lines {
        numbers: &[],
        start: 0,
        stride: 0,
        rows: 0,
        lines: 1,
    };

    /// Asks for one of `shares` equal shares of the lines.
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
