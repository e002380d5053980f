//! The head of a frame on a socket.

use std::io::{self, ErrorKind, Read, Write};

use crate::fabric::{Call, Tag};
use crate::id::WorldRank;

/// The longest description of a wire, in bytes.
pub(super) const DESCRIPTION: u64 = 1 << 12;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) enum Kind {
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
pub(in crate::fabric) struct Head {
    pub(super) kind: Kind,
    /// The call that it belongs to.
    pub(super) call: Call,
    /// The sending and the receiving rank.
    pub(super) route: [WorldRank; 2],
    pub(super) tag: Tag,
    /// The bytes of the description, of the block or of the text.
    pub(in crate::fabric) length: u64,
    /// The bytes of a wire's numbers. For a block that does not follow its head, where it is.
    pub(in crate::fabric) numbers: u64,
}

impl Head {
    pub(super) const SIZE: usize = 48;

    pub(in crate::fabric) fn to_bytes(self) -> [u8; Self::SIZE] {
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
pub(in crate::fabric) fn frame_length(mut begin: &[u8]) -> Option<u64> {
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
