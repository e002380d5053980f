//! Prefetching memory. The operands of a training step are rarely in a cache when it needs them.

/// How many `f32` numbers are in a cache line.
pub(crate) const LINE: usize = 16;

/// Prefetches the cache line of the number at index `at`, for reading or writing. Any `at` is allowed.
#[inline(always)]
#[allow(unsafe_code, reason = "there is no safe prefetch")]
pub(crate) fn prefetch<N>(numbers: &[N], at: usize) {
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

/// Prefetches what lies `ahead` numbers further on than these numbers.
#[inline(always)]
pub(crate) fn prefetch_ahead<N>(numbers: &[N], ahead: usize) {
    for at in (0..numbers.len()).step_by(LINE * size_of::<f32>() / size_of::<N>()) {
        prefetch(numbers, ahead + at);
    }
}

/// Cache lines in rows, to be prefetched little by little.
#[derive(Clone, Copy)]
pub(crate) struct Lines<'a> {
    pub(crate) numbers: &'a [f32],
    /// The first number.
    pub(crate) start: usize,
    /// The distance from one row to the next.
    pub(crate) stride: usize,
    pub(crate) rows: usize,
    /// The number of lines in a row.
    pub(crate) lines: usize,
}

impl<'a> Lines<'a> {
    /// Nothing to prefetch.
    pub(crate) const NONE: Self = Lines { numbers: &[], start: 0, stride: 0, rows: 0, lines: 1 };

    /// All these numbers but the first two kilobytes, which are read before they could arrive.
    pub(crate) fn all(numbers: &'a [f32]) -> Self {
        const SOON: usize = 32;
        Lines {
            numbers,
            start: SOON * LINE,
            stride: 0,
            rows: 1,
            lines: (numbers.len() / LINE).saturating_sub(SOON).max(1),
        }
    }

    /// Prefetches the lines in this many turns.
    #[inline(always)]
    pub(crate) fn in_turns(self, turns: usize) -> Ahead<'a> {
        let rest = self.rows * self.lines;
        Ahead {
            numbers: self.numbers,
            at: self.start,
            of_row: self.lines,
            lines: self.lines,
            skip: self.stride.wrapping_sub(self.lines * LINE),
            each: rest.div_ceil(turns),
            rest,
        }
    }
}

/// Prefetches lines, some in each turn.
pub(crate) struct Ahead<'a> {
    numbers: &'a [f32],
    /// The next number.
    at: usize,
    /// How many lines of this row are left.
    of_row: usize,
    /// The number of lines in a row.
    lines: usize,
    /// The distance from the end of a row to the start of the next.
    skip: usize,
    /// How many lines a turn prefetches.
    each: usize,
    /// How many lines are left.
    rest: usize,
}

impl Ahead<'_> {
    /// Takes a turn.
    #[inline(always)]
    pub(crate) fn ask(&mut self) {
        for _ in 0..self.each.min(self.rest) {
            prefetch(self.numbers, self.at);
            self.at = self.at.wrapping_add(LINE);
            self.rest -= 1;
            self.of_row -= 1;
            if self.of_row == 0 {
                self.of_row = self.lines;
                self.at = self.at.wrapping_add(self.skip);
            }
        }
    }
}
