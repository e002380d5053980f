//! How large frames may be.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::head::{Head, Kind, invalid};

/// The longest text in a frame, in bytes: the name of a call, or an error.
const TEXT: u64 = 1 << 20;

/// The longest part of a process in a call, in bytes. The longest ones are the records of a traced step.
const PART: u64 = 1 << 30;

/// The longest piece of what one process keeps for another.
pub(super) const PIECE: u64 = 1 << 18;

/// The most bytes of wires and of blocks. 0: not known yet.
#[derive(Default)]
pub(super) struct Limits {
    wire: AtomicU64,
    block: AtomicU64,
}

impl Limits {
    /// Raises the limits to `wire` bytes for wires and `block` bytes for blocks. Never lowers them.
    pub(super) fn allow(&self, wire: u64, block: u64) {
        self.wire.fetch_max(wire, Ordering::Relaxed);
        self.block.fetch_max(block, Ordering::Relaxed);
    }

    /// Refuses a frame that is larger than any that belongs to the run. `is_tensor`: whether wires are
    /// tensors. Of other wires, only their own code knows the size.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`].
    pub(super) fn check(&self, head: &Head, is_tensor: bool) -> io::Result<()> {
        let known = |most: &AtomicU64| match most.load(Ordering::Relaxed) {
            0 => u64::MAX,
            most => most,
        };
        let (what, bytes, most) = match head.kind {
            Kind::Wire | Kind::ValidWire if is_tensor => ("wire", head.numbers, known(&self.wire)),
            Kind::Block => ("block", head.length, known(&self.block)),
            Kind::Call | Kind::Failed | Kind::Farewell => ("text", head.length, TEXT),
            Kind::Rejoins => ("loss", head.length, 1),
            Kind::Part => ("part", head.length, PART),
            Kind::Keep => ("piece", head.length, PIECE),
            Kind::Wire | Kind::ValidWire | Kind::Description | Kind::Stopped => return Ok(()),
        };
        match bytes <= most {
            true => Ok(()),
            false => Err(invalid(format!("a {what} of {bytes} bytes, and {most} are the most in this run"))),
        }
    }
}
