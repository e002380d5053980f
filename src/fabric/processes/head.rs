//! The head of a frame on a socket, and how large a frame may be.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fabric::{Call, Tag};
use crate::id::WorldRank;

/// The longest description of a wire, in bytes.
pub(super) const DESCRIPTION: u64 = 1 << 12;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A wire: its description, its numbers, and a byte that says whether all numbers are valid.
    Wire,
    /// The description of a wire whose numbers a carrier moves.
    Description,
    /// A block, from rank to rank.
    Block,
    /// The sending rank has stopped.
    Stopped,
    /// A wire between the two ranks has failed; the text says why.
    Failed,
    /// The next call of the sending process.
    Call,
    /// A process's block for all.
    Part,
    /// The process leaves. The text says why, if it is because of a failure.
    Farewell,
    /// A wire whose numbers are all valid: its description and its numbers.
    ValidWire,
    /// The process leaves, because another one was lost, mostly to join the run again. The number is that
    /// process, and a byte says how it was lost. If it is its own, another one shall take its place.
    Rejoins,
    /// A piece of what one process keeps for another: see [`Kept`](super::kept::Kept).
    Keep,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Wire,
        Self::Description,
        Self::Block,
        Self::Stopped,
        Self::Failed,
        Self::Call,
        Self::Part,
        Self::Farewell,
        Self::ValidWire,
        Self::Rejoins,
        Self::Keep,
    ];
}

/// The head of a frame: six numbers of 8 bytes, little endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    /// The call that it belongs to.
    pub(super) call: Call,
    /// The sending and the receiving rank.
    pub(super) route: [WorldRank; 2],
    pub(super) tag: Tag,
    /// The bytes of the description, of the block or of the text.
    pub(super) length: u64,
    /// The bytes of a wire's numbers. For a block that does not follow its head, where it is.
    pub(super) numbers: u64,
}

impl Head {
    pub(super) const SIZE: usize = 48;

    pub(super) fn to_bytes(self) -> [u8; Self::SIZE] {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let numbers = [
            pair(self.call.attempt, self.kind as u32),
            pair(self.route[0].0, self.route[1].0),
            self.call.number,
            self.tag.0,
            self.length,
            self.numbers,
        ];
        bytemuck::cast(numbers.map(u64::to_le))
    }

    pub(super) fn write(self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())
    }

    /// Reads the next frame's head.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] for bytes that are not a head.
    pub(super) fn read(from: &mut (impl Read + ?Sized)) -> io::Result<Self> {
        let mut bytes = [0; Self::SIZE];
        from.read_exact(&mut bytes)?;
        let number = |index: usize| u64::from_le_bytes(bytes.as_chunks().0[index]);
        let pair = |index| [(number(index) >> 32) as u32, number(index) as u32];
        let [attempt, kind] = pair(0);
        let kind = Kind::ALL.get(kind as usize).ok_or_else(|| invalid("a frame of no known kind"))?;
        Ok(Self {
            kind: *kind,
            call: Call { attempt, number: number(2) },
            route: pair(1).map(WorldRank),
            tag: Tag(number(3)),
            length: number(4),
            numbers: number(5),
        })
    }
}

/// How many bytes a frame has that begins with these. `None` if they are not a whole head. What is no head
/// has as many as one: the reader refuses it. A block that does not follow its head is not counted.
pub(super) fn frame_length(mut begin: &[u8]) -> Option<u64> {
    let head = match Head::read(&mut begin) {
        Ok(head) => head,
        Err(error) if error.kind() == ErrorKind::InvalidData => return Some(Head::SIZE as u64),
        Err(_) => return None,
    };
    let numbers = match head.kind {
        Kind::Wire => head.numbers.saturating_add(1),
        Kind::ValidWire => head.numbers,
        _ => 0,
    };
    Some((Head::SIZE as u64).saturating_add(head.length).saturating_add(numbers))
}

/// An error for bytes that are not valid.
pub(super) fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

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
