//! The threads that candle's kernels use.

use std::cell::OnceCell;

use pipewright_stages::threads;
use rayon::{ThreadPool, ThreadPoolBuilder};

thread_local! {
    static ALONE: OnceCell<Option<ThreadPool>> = const { OnceCell::new() };
}

/// Keeps candle's kernels on the threads of the current rank. They use the pool of rayon's that the current
/// thread is in. A rank with several threads is in one. A rank with one thread would use the global pool,
/// which all ranks share and which nobody pins, so it gets a pool that is its thread alone.
pub(crate) fn stay_on_this_rank() {
    if threads::count() > 1 || rayon::current_thread_index().is_some() {
        return;
    }
    ALONE.with(|pool| {
        pool.get_or_init(|| {
            let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread();
            // Without it, the kernels are slower, and right.
            pool.build().ok()
        });
    });
}
