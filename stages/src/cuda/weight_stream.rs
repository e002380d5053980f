//! A stream for the products of weights' gradients. It fills gaps that the compute stream leaves.
//!
//! Nobody needs such a product before the end of a gradient group. Its stream is behind the compute stream in
//! priority, so it gets the multiprocessors that the last blocks of a kernel leave free.
//!
//! Two waits make this right. The product begins after all work that was on the compute stream when it was
//! queued. And the memory that it uses is held here until the compute stream waits for it. So to all others
//! it is as if the compute stream had used the memory at that wait. The order of calls alone says when that
//! is: at most [`MOST_WAITING`] products wait, so that the memory held is bounded.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::env;
use std::sync::Arc;

use crate::cuda::driver::{Event, Stream};
use crate::cuda::memory::device::Memory;
use crate::error::{Error, Result};

/// The variable that switches the stream on, and what to write into it.
pub const BACKWARD_WEIGHT: &str = "PIPEWRIGHT_BACKWARD_WEIGHT";
const BESIDE: &str = "beside";

/// How many products wait at most: as many as a block of a transformer has.
const MOST_WAITING: usize = 4;

/// Whether the user wants such a stream.
///
/// # Errors
/// When the variable has another value.
pub(super) fn is_wanted() -> Result<bool> {
    match env::var_os(BACKWARD_WEIGHT) {
        None => Ok(false),
        Some(way) if way == BESIDE => Ok(true),
        Some(way) => Err(Error::new(format!(
            "{BACKWARD_WEIGHT} is `{}`: write `{BESIDE}` for a stream of its own, or unset it",
            way.display()
        ))),
    }
}

/// The stream, and the products on it that the compute stream has not waited for.
#[derive(Debug)]
pub(crate) struct WeightStream {
    stream: Stream,
    compute: Arc<Stream>,
    /// The work that a product begins after.
    before: Event,
    products: RefCell<Products>,
}

#[derive(Debug, Default)]
struct Products {
    /// How many were queued so far. Each has its number, from 1, by which it can be waited for.
    queued: u64,
    /// The last of them, which the compute stream has not waited for.
    waiting: VecDeque<Waiting>,
    /// Events that are used again.
    spare: Vec<Event>,
}

#[derive(Debug)]
struct Waiting {
    done: Event,
    /// What the product reads and writes.
    _memory: [Memory; 3],
}

impl WeightStream {
    /// A stream beside this compute stream, which should be a [preferred](Stream::preferred) one.
    pub(super) fn new(compute: Arc<Stream>) -> Result<Self> {
        Ok(Self { stream: Stream::new()?, compute, before: Event::new(false)?, products: RefCell::default() })
    }

    /// Queues a product that uses this memory, and nothing else that others use. `run` queues it on the given
    /// stream. Returns its number.
    ///
    /// # Errors
    /// The error of `run`, and when the driver reports an error of earlier work.
    pub(crate) fn queue(&self, memory: [&Memory; 3], run: impl FnOnce(&Stream) -> Result<()>) -> Result<u64> {
        let mut products = self.products.borrow_mut();
        let too_many = (products.waiting.len() + 1).saturating_sub(MOST_WAITING);
        self.join(&mut products, too_many)?;
        self.before.record(&self.compute)?;
        self.stream.wait(&self.before)?;
        let done = products.spare.pop().map_or_else(|| Event::new(false), Ok)?;
        let ran = run(&self.stream);
        if let Err(error) = done.record(&self.stream) {
            // Nothing else waits for the product before the memory is used again.
            let _ = self.stream.synchronize();
            return Err(error);
        }
        products.waiting.push_back(Waiting { done, _memory: memory.map(Memory::clone) });
        products.queued += 1;
        if ran.is_err() {
            // Nobody will have its number, and it may be queued.
            let all = products.waiting.len();
            self.join(&mut products, all)?;
        }
        ran.map(|()| products.queued)
    }

    /// Makes later work on the compute stream wait for the product with this number.
    pub(crate) fn await_product(&self, number: u64) -> Result<()> {
        let mut products = self.products.borrow_mut();
        let awaited = products.queued - products.waiting.len() as u64;
        self.join(&mut products, number.saturating_sub(awaited) as usize)
    }

    /// Makes later work on the compute stream wait for all products so far, which then hold no memory.
    pub(crate) fn await_all(&self) -> Result<()> {
        let mut products = self.products.borrow_mut();
        let all = products.waiting.len();
        self.join(&mut products, all)
    }

    /// The compute stream waits for the first `count` of the products that wait.
    fn join(&self, products: &mut Products, count: usize) -> Result<()> {
        let Some(last) = count.checked_sub(1) else {
            return Ok(());
        };
        // Those before it are done then too.
        self.compute.wait(&products.waiting[last].done)?;
        products.spare.extend(products.waiting.drain(..count).map(|product| product.done));
        Ok(())
    }
}

impl Drop for WeightStream {
    fn drop(&mut self) {
        // If both fail, the device has failed, and the next call reports it.
        let _ = self.await_all().or_else(|_| self.stream.synchronize());
    }
}
