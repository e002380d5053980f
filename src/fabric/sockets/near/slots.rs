//! Whose a slot of shared memory is: the sender's while it is free, the receiver's while it is full. This
//! file needs nothing else, so `tests/interleavings/` runs it with every order of what two threads do.

use std::sync::atomic::Ordering;

/// What a flag says: its slot is the sender's, or the receiver's.
pub(super) const FREE: u32 = 0;
pub(super) const FULL: u32 = 1;

/// The flag of a slot.
pub(super) trait Flag {
    /// Reads it.
    fn load(&self, order: Ordering) -> u32;

    /// Sets it.
    fn store(&self, state: u32, order: Ordering);
}

/// The sender's side: writes `pieces` pieces, each into a free slot (`write` gets the slot and the piece).
/// Returns the slots, a bit for each. `None` if too few are free; what was written then does not count.
pub(super) fn put<'a, F: Flag + 'a>(
    flags: impl Fn(usize) -> &'a F,
    count: usize,
    pieces: usize,
    mut write: impl FnMut(usize, usize),
) -> Option<u64> {
    let free = (0..count).filter(|&slot| flags(slot).load(Ordering::Acquire) == FREE);
    let (mut slots, mut written) = (0, 0);
    for slot in free.take(pieces) {
        write(slot, written);
        slots |= 1 << slot;
        written += 1;
    }
    if written < pieces {
        return None;
    }
    bits(slots).for_each(|slot| flags(slot).store(FULL, Ordering::Release));
    Some(slots)
}

/// The receiver's side: reads `pieces` pieces out of these slots, which are free then. Returns whether the
/// slots hold exactly that number of pieces. If not, nothing is read.
pub(super) fn take<'a, F: Flag + 'a>(
    flags: impl Fn(usize) -> &'a F,
    count: usize,
    slots: u64,
    pieces: usize,
    mut read: impl FnMut(usize),
) -> bool {
    let is_full = |slot: usize| slot < count && flags(slot).load(Ordering::Acquire) == FULL;
    if slots.count_ones() as usize != pieces || !bits(slots).all(is_full) {
        return false;
    }
    for slot in bits(slots) {
        read(slot);
        flags(slot).store(FREE, Ordering::Release);
    }
    true
}

/// The numbers of the bits that are set, in order.
fn bits(set: u64) -> impl Iterator<Item = usize> {
    (0..u64::BITS as usize).filter(move |bit| set >> bit & 1 == 1)
}
