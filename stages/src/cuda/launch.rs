//! Launching kernels.

use std::ffi::c_void;

use cudarc::driver::result::launch_kernel;
use smallvec::SmallVec;

use super::driver::Ptr;
use super::failure::failed;
use super::memory::device::Memory;
use super::streams::Streams;
use crate::error::Result;

/// Most kernels have no more arguments.
const MOST_ARGS: usize = 24;

/// How many blocks run a kernel, and with how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// The number of blocks in each dimension.
    pub(crate) blocks: [u32; 3],
    /// The number of threads in a block.
    pub(crate) threads: u32,
    /// The bytes of dynamic shared memory of a block.
    pub(crate) shared: u32,
}

impl Grid {
    /// A grid of one dimension.
    pub(crate) fn row(blocks: usize, threads: u32) -> Self {
        Self { blocks: [blocks as u32, 1, 1], threads, shared: 0 }
    }

    /// A grid with a thread for each of `count` items.
    pub(crate) fn each(count: usize, threads: u32) -> Self {
        Self::row(count.div_ceil(threads as usize), threads)
    }

    /// A grid with a block for each row, of a warp for every 256 numbers of the row, and of eight at most.
    pub(crate) fn of_rows(rows: usize, width: usize) -> Self {
        Self::row(rows, width.div_ceil(8).next_multiple_of(32).min(256) as u32)
    }
}

/// A kernel's argument as bytes. A kernel reads as many of them as its argument's type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arg(u64);

impl Arg {
    fn at(&self) -> *const u64 {
        &raw const self.0
    }
}

impl From<Ptr> for Arg {
    fn from(address: Ptr) -> Self {
        Self(address.0)
    }
}

impl From<&Memory> for Arg {
    fn from(memory: &Memory) -> Self {
        memory.at().into()
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Self {
        Self(u64::from(number))
    }
}

impl From<u64> for Arg {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<usize> for Arg {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}

impl From<f32> for Arg {
    fn from(number: f32) -> Self {
        Self(u64::from(number.to_bits()))
    }
}

/// The name of a kernel for numbers of this type.
macro_rules! kernel {
    ($dtype:expr, $name:literal) => {
        match $dtype {
            $crate::device::DType::F32 => concat!($name, "_f32"),
            $crate::device::DType::Bf16 => concat!($name, "_bf16"),
        }
    };
}
pub(crate) use kernel;

/// The arguments of a kernel.
macro_rules! args {
    ($($arg:expr),* $(,)?) => {
        [$($crate::cuda::launch::Arg::from($arg)),*]
    };
}
pub(crate) use args;

impl Streams {
    /// Queues a kernel on the compute stream. Does nothing if there are no blocks.
    ///
    /// The caller's addresses must point at as much memory as the kernel uses, and the arguments must match
    /// the kernel's signature.
    ///
    /// # Errors
    /// When the driver reports an error, of this launch or of earlier work.
    pub(crate) fn launch(&self, name: &'static str, grid: Grid, args: &[Arg]) -> Result<()> {
        self.launch_at(name, grid, args.iter().map(Arg::at))
    }

    /// As [`Streams::launch`], of a kernel whose first argument is these words.
    pub(crate) fn launch_with(
        &self,
        name: &'static str,
        grid: Grid,
        first: &[u64],
        args: &[Arg],
    ) -> Result<()> {
        let first = std::iter::once(first.as_ptr());
        self.launch_at(name, grid, first.chain(args.iter().map(Arg::at)))
    }

    /// As [`Streams::launch`]. Here the arguments are.
    fn launch_at(
        &self,
        name: &'static str,
        grid: Grid,
        args: impl Iterator<Item = *const u64>,
    ) -> Result<()> {
        let [x, y, z] = grid.blocks;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        let function = self.kernels().function(name, grid.shared)?;
        let mut pointers = SmallVec::<[*mut c_void; MOST_ARGS]>::new();
        pointers.extend(args.map(|arg| arg.cast_mut().cast()));
        // SAFETY: the driver reads each argument through its pointer before it returns. A number lies in the
        // low bytes of its eight; on CUDA's machines (little-endian) these come first. A first argument that
        // is longer has as many words as its class.
        unsafe {
            launch_kernel(
                function,
                (x, y, z),
                (grid.threads, 1, 1),
                grid.shared,
                self.stream().raw(),
                &mut pointers,
            )
        }
        .map_err(failed(name))
    }
}
