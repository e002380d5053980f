//! The calls of MPI. Several threads make them.

use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pipewright::Result;
use pipewright::error::FabricError;

use super::messages::{Arrived, Kind, Memory, Posted};

/// The most bytes of one message: MPI counts them in an `int`.
pub(super) const MOST: usize = 1 << 30;

/// All processes of the run, connected by MPI.
pub(super) struct Mpi {
    /// A copy of the world, so that no message is taken for one of another library.
    all: SimpleCommunicator,
}

// SAFETY: communicators are handles, which MPI lets every thread use: see `Mpi::start`.
#[allow(unsafe_code, reason = "the crate does not say it")]
unsafe impl Send for Mpi {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "the crate does not say it")]
unsafe impl Sync for Mpi {}

impl Mpi {
    /// Starts MPI, which a process can do once. It ends when the universe is dropped, on this same thread,
    /// and when all processes do it.
    ///
    /// # Errors
    /// When it was started before, or when it does not let several threads call it.
    pub(super) fn start() -> Result<(Universe, &'static Self)> {
        let started = mpi::initialize_with_threading(Threading::Multiple);
        let (universe, threading) = started.ok_or_else(|| {
            FabricError::refused(
                "MPI was started in this process before: a process can take part in one run by MPI",
            )
        })?;
        if threading != Threading::Multiple {
            return Err(FabricError::refused(
                "this MPI does not let several threads call it (MPI_THREAD_MULTIPLE): build MPI with \
                 threads, or set launch.fabric = \"sockets\"",
            )
            .into());
        }
        let all = universe.world().duplicate();
        // MPI cannot start again, so this is the only one.
        Ok((universe, Box::leak(Box::new(Self { all }))))
    }

    /// This process's number.
    pub(super) fn process(&self) -> u32 {
        self.all.rank() as u32
    }

    /// The number of processes.
    pub(super) fn processes(&self) -> u32 {
        self.all.size() as u32
    }

    /// The processes on this one's machine, with this one, in order. All processes call it.
    pub(super) fn local(&self) -> Vec<u32> {
        let here = self.all.split_shared(self.all.rank());
        let mut local = vec![0_u32; here.size() as usize];
        here.all_gather_into(&self.process(), &mut local[..]);
        local
    }

    /// The bytes of every process, in order. All processes call it.
    pub(super) fn gather(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        let mut lengths = vec![0_u64; self.processes() as usize];
        self.all.all_gather_into(&(mine.len() as u64), &mut lengths[..]);
        let longest = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
        let mut padded = mine.to_vec();
        padded.resize(longest, 0);
        let mut all = vec![0_u8; longest * lengths.len()];
        self.all.all_gather_into(&padded[..], &mut all[..]);
        let parts = all.chunks(longest).zip(lengths);
        parts.map(|(part, length)| part[..length as usize].to_vec()).collect()
    }

    /// Begins to send a message.
    pub(super) fn posted(&self, to: u32, kind: Kind, memory: Memory) -> Posted {
        Posted::new(&self.all.process_at_rank(to as i32), kind, memory)
    }

    /// The process whose message of this kind is the next one, if any has come.
    pub(super) fn sender(&self, kind: Kind) -> Option<u32> {
        let status = self.all.any_process().immediate_probe_with_tag(kind as i32)?;
        Some(status.source_rank() as u32)
    }

    /// The next message of a process, if it has come.
    pub(super) fn next(&self, from: u32, kind: Kind) -> Option<Arrived> {
        let process = self.all.process_at_rank(from as i32);
        let (message, status) = process.immediate_matched_probe_with_tag(kind as i32)?;
        Some(Arrived { message, length: status.count(u8::equivalent_datatype()) as usize })
    }
}
