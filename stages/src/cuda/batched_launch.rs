//! One launch for the arrays of many parameters.

use std::sync::Arc;

use smallvec::SmallVec;

use super::launch::Arg;
use super::{Gpu, Grid, Memory, Pinned, Ptr};
use crate::error::Result;

/// The most parameters of a launch. `MOST` in kernels/prelude.cu is the same.
const MOST: usize = 64;

/// Work on several parameters of a GPU that waits, so that a launch does it for many of them. A model has
/// many small parameters, and a launch for each would take longer than their work.
///
/// At most one piece of work waits for each parameter: before a second one, all that waits is launched. What
/// is never [launched](Together::launch) is never done. On the CPU nothing waits. What is used for every step
/// allocates in the first steps only.
#[derive(Debug, Default)]
pub struct Together {
    waiting: Vec<Launch>,
    /// Launches that were made. Their lists are used again.
    made: Vec<Launch>,
}

/// A launch of one kernel.
#[derive(Debug, Default)]
struct Launch {
    gpu: u32,
    kernel: &'static str,
    /// The threads of a block.
    threads: u32,
    /// The arguments after the parameters.
    args: SmallVec<[Arg; 8]>,
    entries: Vec<u64>,
    /// By parameter: the block after its last one.
    ends: Vec<u32>,
    /// The parameters.
    of: Vec<Ptr>,
    /// The memory of the parameters, until the launch.
    used: Vec<Used>,
}

/// Memory that a launch uses.
#[derive(Debug)]
pub(crate) enum Used {
    Device { _memory: Memory },
    Host { _memory: Arc<Pinned> },
}

impl From<&Memory> for Used {
    fn from(memory: &Memory) -> Self {
        Self::Device { _memory: memory.clone() }
    }
}

impl From<&Arc<Pinned>> for Used {
    fn from(memory: &Arc<Pinned>) -> Self {
        Self::Host { _memory: Arc::clone(memory) }
    }
}

/// What a kernel does for one parameter.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    /// The words of the kernel's entry.
    pub(crate) words: &'a [u64],
    /// Where the parameter's whole gradient is, which tells it from others.
    pub(crate) of: Ptr,
    /// How many blocks do it.
    pub(crate) blocks: usize,
    /// The memory that the words point at.
    pub(crate) memory: SmallVec<[Used; 5]>,
}

impl Together {
    /// Does something, and launches what it leaves waiting.
    ///
    /// # Errors
    /// The error of `act`; or when the GPU reports an error, of this call or of earlier work.
    pub fn now(act: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let mut together = Self::default();
        act(&mut together)?;
        together.launch()
    }

    /// Adds an entry to the launch of this kernel with these arguments, which waits until it is full. If
    /// other work on the parameter waits, all that waits is launched first.
    ///
    /// # Errors
    /// When the driver reports an error, of a launch or of earlier work.
    pub(crate) fn add(
        &mut self,
        gpu: &Gpu,
        (kernel, threads): (&'static str, u32),
        args: &[Arg],
        entry: Entry<'_>,
    ) -> Result<()> {
        if entry.blocks == 0 {
            return Ok(());
        }
        if self.waiting.iter().any(|launch| launch.of.contains(&entry.of)) {
            self.launch()?;
        }
        let fits = |launch: &Launch| {
            let which = (launch.gpu, launch.kernel, launch.threads);
            which == (gpu.index(), kernel, threads) && launch.args[..] == *args
        };
        let place = self.waiting.iter().position(fits).unwrap_or_else(|| {
            self.waiting.push(Launch {
                gpu: gpu.index(),
                kernel,
                threads,
                args: args.into(),
                ..self.made.pop().unwrap_or_default()
            });
            self.waiting.len() - 1
        });
        let launch = &mut self.waiting[place];
        let begin = launch.ends.last().copied().unwrap_or(0);
        launch.ends.push(begin + entry.blocks as u32);
        launch.entries.extend_from_slice(entry.words);
        launch.of.push(entry.of);
        launch.used.extend(entry.memory);
        match launch.ends.len() {
            MOST => {
                let mut launch = self.waiting.swap_remove(place);
                let launched = launch.launch();
                self.put_by(launch);
                launched
            }
            _ => Ok(()),
        }
    }

    /// Launches all that waits.
    ///
    /// # Errors
    /// When the GPU reports an error, of this call or of earlier work.
    pub fn launch(&mut self) -> Result<()> {
        let launched = self.waiting.iter_mut().try_for_each(Launch::launch);
        self.forget();
        launched
    }

    /// What waits is never done.
    pub(crate) fn forget(&mut self) {
        while let Some(launch) = self.waiting.pop() {
            self.put_by(launch);
        }
    }

    fn put_by(&mut self, mut launch: Launch) {
        launch.entries.clear();
        launch.ends.clear();
        launch.of.clear();
        launch.used.clear();
        self.made.push(launch);
    }
}

impl Launch {
    fn launch(&mut self) -> Result<()> {
        let parameters = self.ends.len();
        let blocks = self.ends.last().map_or(0, |end| *end as usize);
        // As `Together` in kernels/prelude.cu.
        let words = self.entries.len() / parameters;
        self.entries.resize(words * MOST, 0);
        self.ends.resize(MOST, u32::MAX);
        let ends = self.ends.as_chunks().0.iter();
        let words = ends.map(|&[low, high]| u64::from(low) | u64::from(high) << 32);
        self.entries.extend(words);
        let grid = Grid::row(blocks, self.threads);
        Gpu::of(self.gpu)?.launch_with(self.kernel, grid, &self.entries, &self.args)
    }
}
