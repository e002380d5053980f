//! Which of several algorithms computes a product fastest, measured on the device.
//!
//! A trial is queued after a product's third use, and the host does not wait for it: until the device is
//! done, the first algorithm is used. A wait could last for ever, because the compute stream may wait for a
//! process that has ended, and a host that waits does not see that. All algorithms of a choice give the same
//! bits, so it does not matter at which use the choice is known, nor that ranks may choose differently.

use super::plan::Operands;
use super::product::{ALIGNMENT, Product, Start};
use crate::cuda::driver::Event;
use crate::cuda::failure::{self, failed};
use crate::cuda::launch::{args, kernel};
use crate::cuda::streams::Streams;
use crate::cuda::{Grid, Pinned, Ptr, driver};
use crate::device::DType;
use crate::error::Result;

/// A product of fewer operations is not measured: it takes about as long as a launch (a few microseconds).
const LEAST_OPERATIONS: usize = 2_000_000_000;

/// How often each algorithm is timed. The shortest time counts, because other work only makes it longer.
const ROUNDS: usize = 3;

/// A trial takes at most this part of the free memory, and leaves the rest to the ranks that share the GPU.
const SHARE_OF_MEMORY: u64 = 2;

/// Another algorithm is used if it takes at most this share of the first one's time. A smaller difference may
/// come from other work on the GPU.
const WORTH_IT: f32 = 0.97;

/// The most blocks of a kernel here: four for each of the 132 multiprocessors of an H200.
const BLOCKS: usize = 528;
const THREADS: u32 = 256;

/// A measurement of a product's algorithms.
#[derive(Debug)]
pub(crate) struct Trial {
    /// How many algorithms there are.
    algorithms: usize,
    /// Events before the first timed run and after each.
    marks: Vec<Event>,
    /// For each algorithm whether its result differs from the first one's: 1, or 0.
    differ: Pinned,
}

impl Trial {
    /// Queues a trial of a product that has this many algorithms. `run` queues the product by one of them. It
    /// returns false if that is not possible. `None` if there is nothing to choose, the product is small, or
    /// there is not enough free memory.
    ///
    /// # Errors
    /// When the driver reports an error, of the trial or of earlier work.
    pub(crate) fn queue(
        streams: &Streams,
        what: Product,
        algorithms: usize,
        run: impl Fn(usize, Operands) -> bool,
    ) -> Result<Option<Self>> {
        let is_small = 2 * what.rows * what.inner * what.columns < LEAST_OPERATIONS;
        if algorithms < 2 || is_small {
            return Ok(None);
        }
        let bytes = Scratch::lay_out(what, Ptr::NONE).end.0;
        let [free, _] = failure::free_and_total().map_err(failed("asking for free memory"))?;
        if free / SHARE_OF_MEMORY < bytes {
            return Ok(None);
        }
        // Not memory of the shelf, which would keep it. CUDA's pool does until it is trimmed.
        let Some(at) = driver::allocate(bytes as usize, streams.stream())? else {
            return Ok(None);
        };
        let trial = Self::new(algorithms).and_then(|trial| {
            trial.fill(streams, what, &Scratch::lay_out(what, at), run)?;
            Ok(trial)
        });
        // SAFETY: the memory was allocated above, and only the work queued above uses it.
        unsafe { driver::free_in_order(at, streams.stream()) }?;
        trial.map(Some)
    }

    fn new(algorithms: usize) -> Result<Self> {
        let marks = (0..=ROUNDS * algorithms).map(|_| Event::new(true));
        Ok(Self { algorithms, marks: marks.collect::<Result<_>>()?, differ: Pinned::new(8 * algorithms)? })
    }

    /// Queues the runs: the first of each algorithm to compare its result, and then the timed ones.
    ///
    /// The operands are numbers of the trial's own. The product's own operands may be zero, as some weights
    /// and gradients are at the start. Then every order of a sum gives the same bits, and a comparison shows
    /// nothing.
    fn fill(
        &self,
        streams: &Streams,
        what: Product,
        scratch: &Scratch,
        run: impl Fn(usize, Operands) -> bool,
    ) -> Result<()> {
        scratch.draw(streams, what)?;
        for algorithm in 0..self.algorithms {
            let out = if algorithm == 0 { scratch.first } else { scratch.other };
            // If an algorithm cannot run, its result is zero, and not the result of the one before it.
            streams.clear(out, what.out_numbers() * what.out.bytes())?;
            run(algorithm, scratch.operands(what, out));
            if algorithm > 0 {
                self.compare(streams, what, scratch, algorithm)?;
            }
        }
        self.marks[0].record(streams.stream())?;
        for (index, mark) in self.marks[1..].iter().enumerate() {
            run(index % self.algorithms, scratch.operands(what, scratch.other));
            mark.record(streams.stream())?;
        }
        Ok(())
    }

    /// Queues the comparison of an algorithm's result with the first one's.
    fn compare(&self, streams: &Streams, what: Product, scratch: &Scratch, algorithm: usize) -> Result<()> {
        let halves = what.out_numbers() * what.out.bytes() / 2;
        let args = args![self.differ.at().offset(8 * algorithm), scratch.first, scratch.other, halves];
        streams.launch("find_difference", grid(halves.div_ceil(8)), &args)
    }

    /// The fastest algorithm that gives the bits of the first. `None` as long as the device is not done.
    ///
    /// # Errors
    /// When the driver reports an error of earlier work.
    pub(crate) fn best(&self) -> Result<Option<usize>> {
        let last = self.marks.last().expect("there is one before the first run");
        if !last.is_done()? {
            return Ok(None);
        }
        let mut best = (0, WORTH_IT * self.milliseconds(0)?);
        for algorithm in 1..self.algorithms {
            let time = self.milliseconds(algorithm)?;
            if self.differ.numbers()[algorithm] == 0.0 && time < best.1 {
                best = (algorithm, time);
            }
        }
        Ok(Some(best.0))
    }

    /// The shortest time of an algorithm.
    fn milliseconds(&self, algorithm: usize) -> Result<f32> {
        let mut least = f32::INFINITY;
        for round in 0..ROUNDS {
            let run = round * self.algorithms + algorithm;
            least = least.min(self.marks[run + 1].since(&self.marks[run])?);
        }
        Ok(least)
    }
}

/// Where the matrices of a trial lie.
#[derive(Debug)]
struct Scratch {
    left: Ptr,
    right: Ptr,
    /// What the sums start with, if they start with something.
    start: Ptr,
    bias: Ptr,
    /// The first algorithm's result.
    first: Ptr,
    /// Another one's result.
    other: Ptr,
    end: Ptr,
}

impl Scratch {
    fn lay_out(what: Product, at: Ptr) -> Self {
        let mut next = at;
        let mut take = |count: usize, dtype: DType| {
            let at = next;
            next = at.offset((count * dtype.bytes()).next_multiple_of(ALIGNMENT as usize));
            at
        };
        let [left, right, start, bias] = counts(what);
        Self {
            left: take(left, what.dtype),
            right: take(right, what.dtype),
            start: take(start, what.out),
            bias: take(bias, what.out),
            first: take(what.out_numbers(), what.out),
            other: take(what.out_numbers(), what.out),
            end: next,
        }
    }

    fn operands(&self, what: Product, out: Ptr) -> Operands {
        Operands {
            out,
            old: if what.start == Start::Old { self.start } else { out },
            left: self.left,
            right: self.right,
            bias: what.bias.then_some(self.bias),
        }
    }

    /// Queues writing of the operands.
    fn draw(&self, streams: &Streams, what: Product) -> Result<()> {
        let parts = [
            (self.left, what.dtype),
            (self.right, what.dtype),
            (self.start, what.out),
            (self.bias, what.out),
        ];
        for (seed, ((at, dtype), count)) in parts.into_iter().zip(counts(what)).enumerate() {
            let args = args![at, count, seed];
            streams.launch(kernel!(dtype, "trial_numbers"), grid(count), &args)?;
        }
        Ok(())
    }
}

/// How many numbers are in `left`, in `right`, in what the sums start with, and in the bias.
fn counts(what: Product) -> [usize; 4] {
    let start = match what.start {
        Start::Zero => 0,
        Start::Old => what.out_numbers(),
    };
    let bias = if what.bias { what.columns } else { 0 };
    [what.left_numbers(), what.inner * what.columns, start, bias]
}

/// A grid for this many items.
fn grid(items: usize) -> Grid {
    Grid::row(items.div_ceil(THREADS as usize).min(BLOCKS), THREADS)
}
