//! The threads of a rank.
//!
//! A layer may use several: [`start`] makes the current thread the first of some, and from then on the layers, the
//! cross-entropy and the optimizers of this crate that run on it cut their rows among them, but for the embedding's gradient. What is computed is the same, bit for bit, for any number.
//! A stage of one's own can do so too: with [`count`] above 1, `rayon::join` and rayon's parallel iterators run on these threads.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::thread::{Builder, JoinHandle};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use crate::error::{Cause, Error, Result, SettingError};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(1) };
}

/// How many threads share the work of the current thread: 1 where nobody has called [`start`].
pub fn count() -> usize {
    COUNT.get()
}

/// Gives the current thread helpers, so that they are `count` threads together. `on_start` runs on each helper first, with its
/// number from 1 on: to pin it to a core. A helper whose `on_start` panics is lost, and work that is cut would wait for it for ever.
/// The helpers end when the result is dropped; some kilobytes of rayon's, which knows the current thread, stay until the process
/// ends.
///
/// # Errors
/// When the system gives no more threads, or the current thread has had helpers before.
pub fn start(count: usize, on_start: impl Fn(usize) + Clone + Send + 'static) -> Result<Threads> {
    let mut threads = Threads {
        pool: None,
        helpers: Vec::new(),
        stays: PhantomData,
    };
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
        threads.pool = Some(pool.map_err(|error| refused(count, error))?);
        COUNT.set(count);
    }
    Ok(threads)
}

fn refused(count: usize, error: ThreadPoolBuildError) -> Error {
    let source = Cause::new(error);
    SettingError::Threads { count, source }.into()
}

/// Helpers of a thread, until it is dropped.
#[must_use]
pub struct Threads {
    pool: Option<ThreadPool>,
    helpers: Vec<JoinHandle<()>>,
    /// It is dropped on the thread that it counts for.
    stays: PhantomData<*const ()>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.pool.take().is_some() {
            COUNT.set(1);
        }
        for helper in self.helpers.drain(..) {
            // A panic in a layer has been carried over to the thread that runs it.
            let _ = helper.join();
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", 1 + self.helpers.len())
    }
}
