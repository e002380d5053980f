//! Asking for memory ahead of its use.

/// Numbers in a line of the cache.
pub(super) const LINE: usize = 16;

/// Asks for the line that holds number `at`, for reading or writing; any `at` will do.
#[inline(always)]
#[allow(unsafe_code)]
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
