//! Giving a kernel to a device.

use std::ffi::c_void;

use cudarc::driver::result::launch_kernel;

use super::driver::failed;
use super::{Gpu, Ptr};
use crate::error::Result;

/// The most arguments a kernel takes.
const MOST_ARGS: usize = 24;

/// How many blocks of how many threads run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks in each direction.
    pub(crate) blocks: [u32; 3],
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: u32,
}

impl Grid {
    /// So many blocks in a row.
    pub(crate) fn row(blocks: usize, threads: u32) -> Self {
        Self {
            blocks: [blocks as u32, 1, 1],
            threads,
            shared: 0,
        }
    }

    /// A thread for each of `count` things.
    pub(crate) fn each(count: usize, threads: u32) -> Self {
        Self::row(count.div_ceil(threads as usize), threads)
    }
}

/// A kernel's argument: its bytes, of which a kernel reads as many as its type has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg(u64);

impl From<Ptr> for Arg {
    fn from(address: Ptr) -> Self {
        Self(address.0)
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

impl From<f32> for Arg {
    fn from(number: f32) -> Self {
        Self(u64::from(number.to_bits()))
    }
}

/// The name of a kernel for numbers of a type.
macro_rules! kernel {
    ($dtype:expr, $name:literal) => {
        match $dtype {
            $crate::device::DType::F32 => concat!($name, "_f32"),
            $crate::device::DType::Bf16 => concat!($name, "_bf16"),
        }
    };
}
pub(super) use kernel;

impl Gpu {
    /// Puts a kernel on the compute stream. No blocks: nothing to do.
    ///
    /// The caller's addresses point at as much as the kernel uses, and its arguments are those of the kernel's signature.
    ///
    /// # Errors
    /// What the driver reports, of this launch or of work before it.
    pub(crate) fn launch(&self, name: &'static str, grid: Grid, args: &[Arg]) -> Result<()> {
        let [x, y, z] = grid.blocks;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        let function = self.kernels().function(name, grid.shared)?;
        let mut pointers = [std::ptr::null_mut::<c_void>(); MOST_ARGS];
        for (pointer, arg) in pointers.iter_mut().zip(args) {
            *pointer = std::ptr::from_ref(&arg.0).cast_mut().cast();
        }
        // SAFETY: the driver reads each argument through its pointer before it returns. Numbers lie in the low bytes of their eight, which are
        // the first on the machines CUDA runs on.
        unsafe {
            launch_kernel(
                function,
                (x, y, z),
                (grid.threads, 1, 1),
                grid.shared,
                self.stream().raw(),
                &mut pointers[..args.len()],
            )
        }
        .map_err(failed(name))
    }
}
