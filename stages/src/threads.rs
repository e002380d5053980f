//! The threads of a rank.
//!
//! [`start`] makes the current thread the first of several. From then on the layers, the cross-entropy and
//! the optimizers of this crate that run on it share their rows among these threads. Only the embedding's
//! gradient stays on one thread. The results are the same, bit for bit, for any number of threads. A stage of
//! your own can use the threads too: if [`count`] is above 1, `rayon::join` and rayon's parallel iterators
//! run on them.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::thread::{Builder, JoinHandle};

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(1) };
}

/// How many threads share the work of the current thread. 1 if nobody has called [`start`].
pub fn count() -> usize {
    COUNT.get()
}

/// Gives the current thread helpers, so that they are `count` threads together. First, each helper calls
/// `on_start` with its number, from 1 on, for example to pin itself to a core. `on_start` must not panic: a
/// helper that panics there is lost, and shared work would wait for it for ever. The helpers end when the
/// result is dropped. Some kilobytes of rayon's state for the current thread stay until the process ends.
///
/// # Errors
/// When the system gives no more threads, or the current thread has had helpers before.
pub fn start(count: usize, on_start: impl Fn(usize) + Clone + Send + 'static) -> Result<Threads> {
    let mut threads = Threads { pool: None, helpers: Vec::new(), stays: PhantomData };
    if count > 1 {
        let helpers = &mut threads.helpers;
        let pool = ThreadPoolBuilder::new()
            .num_threads(count)
            .use_current_thread()
            .spawn_handler(|helper| {
                let on_start = on_start.clone();
                let name = format!("helper {}", helper.index());
                helpers.push(Builder::new().name(name).spawn(move || {
                    on_start(helper.index());
                    helper.run();
                })?);
                Ok(())
            })
            .build();
        threads.pool = Some(pool.map_err(|error| Error::new(format!("no {count} threads: {error}")))?);
        COUNT.set(count);
    }
    Ok(threads)
}

/// Runs `work` on parts of a slice, each as long as `size` but the last. It also gets the place of a part's
/// first item. The rank's threads share the parts.
///
/// # Errors
/// What `work` returns for some part. Then parts may be left out.
pub fn share<T: Send, E: Send>(
    slice: &mut [T],
    size: usize,
    work: impl Fn(usize, &mut [T]) -> std::result::Result<(), E> + Sync,
) -> std::result::Result<(), E> {
    let work = |(index, part): (usize, &mut [T])| work(index * size, part);
    match count() {
        1 => slice.chunks_mut(size).enumerate().try_for_each(work),
        _ => slice.par_chunks_mut(size).enumerate().try_for_each(work),
    }
}

/// The helpers of a thread. They end when this is dropped.
#[must_use]
pub struct Threads {
    pool: Option<ThreadPool>,
    helpers: Vec<JoinHandle<()>>,
    /// Keeps the value on its thread: it must be dropped on the thread that it counts for.
    stays: PhantomData<*const ()>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.pool.take().is_some() {
            COUNT.set(1);
        }
        for helper in self.helpers.drain(..) {
            // A panic in a layer has already been passed to the thread that runs it.
            let _ = helper.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", 1 + self.helpers.len())
    }
}
