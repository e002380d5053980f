//! Memory that two processes of one machine share. A large block goes through it, and only its head through
//! the connection: so it is copied once on each side, and the system neither copies nor allocates.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::slots::{self, Flag};

/// The bytes of a slot. A block takes as many slots as it needs.
const SLOT: usize = 1 << 17;

/// The slots of each direction.
const SLOTS: usize = 16;

/// Before all slots is a page with a flag for each of them, each flag in a cache line of its own.
const FLAGS: usize = 1 << 12;
const LINE: usize = 64;

const SIZE: usize = FLAGS + 2 * SLOTS * SLOT;

/// One of the two processes' view of the memory.
pub(in crate::fabric::sockets) struct Shared {
    start: NonNull<u8>,
    /// The direction in which this process sends: 0 or 1.
    sends: usize,
}

// SAFETY: it is a place in memory that every thread may use. Who may use a slot is said by its flag, which is
// atomic.
#[allow(unsafe_code, reason = "a pointer says nothing about threads")]
unsafe impl Send for Shared {}
// SAFETY: as above. Only one thread at a time puts, and only one takes.
#[allow(unsafe_code, reason = "a pointer says nothing about threads")]
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes the memory and gives it to the process at the other end. `None` if the system of either has
    /// none to give.
    ///
    /// # Errors
    /// When the other process has gone, or does not answer in time.
    pub(super) fn offer(near: &UnixStream) -> io::Result<Option<Self>> {
        let made = create().and_then(|memory| Ok((Self::map(&memory, 0)?, memory)));
        let (ours, memory) = made.ok().unzip();
        let here = [u8::from(ours.is_some())];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = memory.iter().map(std::os::fd::AsFd::as_fd).collect();
        if !files.is_empty() {
            rights.push(SendAncillaryMessage::ScmRights(&files));
        }
        sendmsg(near, &[IoSlice::new(&here)], &mut rights, SendFlags::NOSIGNAL)?;
        let mut there = [0];
        io::Read::read_exact(&mut &*near, &mut there)?;
        Ok(ours.filter(|_| there == [1]))
    }

    /// Takes the memory that the process at the other end offers.
    ///
    /// # Errors
    /// As for [`Shared::offer`].
    pub(super) fn accept(near: &UnixStream) -> io::Result<Option<Self>> {
        let (mut there, mut space) = ([0], [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))]);
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut there)];
        if recvmsg(near, &mut into, &mut rights, RecvFlags::CMSG_CLOEXEC)?.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let file = rights.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let theirs = file.and_then(|memory| Self::map(&memory, 1).ok());
        io::Write::write_all(&mut &*near, &[u8::from(theirs.is_some())])?;
        Ok(theirs)
    }

    fn map(memory: &OwnedFd, sends: usize) -> io::Result<Self> {
        if fstat(memory)?.st_size != SIZE as i64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: it is new memory, wherever the system puts it, and nobody can make its file smaller.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        let start = unsafe { mmap(std::ptr::null_mut(), SIZE, access, flags, memory, 0)? };
        let start = NonNull::new(start.cast()).expect("the system gives a place");
        Ok(Self { start, sends })
    }

    fn flag(&self, direction: usize, slot: usize) -> &AtomicU32 {
        let at = (direction * SLOTS + slot) * LINE;
        // SAFETY: it is in the first page, aligned, and both processes use it as an atomic only.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        unsafe {
            AtomicU32::from_ptr(self.start.as_ptr().add(at).cast())
        }
    }

    fn slot(&self, direction: usize, slot: usize) -> *mut u8 {
        // SAFETY: it is inside of the memory.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        unsafe {
            self.start.as_ptr().add(FLAGS + (direction * SLOTS + slot) * SLOT)
        }
    }

    /// Copies a block into free slots. Returns which, a bit for each. `None` if too few are free.
    pub(in crate::fabric::sockets) fn put(&self, block: &[u8]) -> Option<u64> {
        let flags = |slot| self.flag(self.sends, slot);
        let write = |slot, piece: usize| {
            let bytes = &block[piece * SLOT..block.len().min((piece + 1) * SLOT)];
            // SAFETY: a free slot is the sender's. It has room for the piece.
            #[allow(unsafe_code, reason = "it is memory of the system")]
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.slot(self.sends, slot), bytes.len());
            }
        };
        slots::put(flags, SLOTS, block.len().div_ceil(SLOT), write)
    }

    /// Copies a block of `length` bytes out of its slots, which are free then.
    ///
    /// # Errors
    /// When the slots do not hold such a block.
    pub(in crate::fabric::sockets) fn take(
        &self,
        slots: u64,
        length: usize,
        into: &mut Vec<u8>,
    ) -> io::Result<()> {
        let comes = 1 - self.sends;
        into.clear();
        let read = |slot| {
            let piece = (length - into.len()).min(SLOT);
            // SAFETY: a full slot is the receiver's. It holds at least `piece` bytes.
            #[allow(unsafe_code, reason = "it is memory of the system")]
            let piece = unsafe { std::slice::from_raw_parts(self.slot(comes, slot), piece) };
            into.extend_from_slice(piece);
        };
        if slots::take(|slot| self.flag(comes, slot), SLOTS, slots, length.div_ceil(SLOT), read) {
            return Ok(());
        }
        let what = "a block that is not in the shared memory";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

impl Flag for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    fn store(&self, state: u32, order: Ordering) {
        self.store(state, order);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: nobody has a place in it any more.
        #[allow(unsafe_code, reason = "it is memory of the system")]
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), SIZE) };
        debug_assert!(unmapped.is_ok(), "it was mapped");
    }
}

/// New memory. It takes no room until it is used.
fn create() -> io::Result<OwnedFd> {
    let memory = memfd_create("pipewright", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, SIZE as u64)?;
    // A process that uses memory beyond the end of its file is killed.
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (Shared, Shared) {
        let (one, other) = UnixStream::pair().expect("the system has them");
        let accepts = std::thread::spawn(move || Shared::accept(&other));
        let offered = Shared::offer(&one).expect("the other end is there");
        let accepted = accepts.join().expect("it ends").expect("this end is there");
        (offered.expect("there is memory"), accepted.expect("there is memory"))
    }

    #[test]
    fn blocks_arrive_in_both_directions() {
        let (one, other) = both();
        let mut got = vec![9];
        for size in [1, SLOT, SLOT + 1, 3 * SLOT, SLOTS * SLOT] {
            let block: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
            for (from, to) in [(&one, &other), (&other, &one)] {
                let slots = from.put(&block).expect("all are free");
                to.take(slots, size, &mut got).expect("it is there");
                assert!(got == block, "{size} bytes");
            }
        }
    }

    #[test]
    fn a_block_without_room_is_not_put() {
        let (one, other) = both();
        let first = one.put(&vec![1; SLOT * (SLOTS - 1)]).expect("there is room");
        assert_eq!(one.put(&vec![2; 2 * SLOT]), None);
        let second = one.put(&[3]).expect("there is room");
        let mut got = Vec::new();
        other.take(second, 1, &mut got).expect("it is there");
        assert_eq!(got, [3]);
        other.take(first, SLOT * (SLOTS - 1), &mut got).expect("it is there");
        assert!(got.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn slots_that_hold_no_such_block_are_refused() {
        let (one, other) = both();
        let slots = one.put(&[1]).expect("there is room");
        let mut got = Vec::new();
        for (slots, length) in [(slots << 1, 1), (slots, SLOT + 1), (slots | 1 << 40, 2 * SLOT), (0, 1)] {
            assert!(other.take(slots, length, &mut got).is_err(), "{slots:b} {length}");
        }
        other.take(slots, 1, &mut got).expect("it is still there");
    }
}
