//! The slots of shared memory (`src/fabric/sockets/near/slots.rs`, the same file), with every order in which
//! a sender and a receiver can do what they do, and every value that the memory model lets them see.

#[path = "../../../src/fabric/sockets/near/slots.rs"]
mod slots;

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use slots::{FREE, FULL, Flag};

impl Flag for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn store(&self, state: u32, order: Ordering) {
        AtomicU32::store(self, state, order);
    }
}

/// Two slots of a number each, and the heads of blocks, which come through a connection. Nothing in here
/// orders a head and its slots: the connection need not.
struct Memory {
    flags: [AtomicU32; 2],
    slots: [UnsafeCell<u32>; 2],
    heads: [AtomicU64; 3],
}

impl Memory {
    fn new() -> Self {
        Self {
            flags: [AtomicU32::new(FREE), AtomicU32::new(FREE)],
            slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
            heads: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    fn put(&self, block: &[u32]) -> Option<u64> {
        let write = |slot: usize, piece: usize| {
            // loom finds an access that another thread's is not ordered with.
            self.slots[slot].with_mut(|place| unsafe { *place = block[piece] });
        };
        slots::put(|slot| &self.flags[slot], 2, block.len(), write)
    }

    fn take(&self, slots: u64, pieces: usize) -> Option<Vec<u32>> {
        let mut block = Vec::new();
        let read = |slot: usize| block.push(self.slots[slot].with(|place| unsafe { *place }));
        slots::take(|slot| &self.flags[slot], 2, slots, pieces, read).then_some(block)
    }
}

/// Sends these blocks, as long as there is room, and takes them in another thread.
fn every_order_of(blocks: &'static [&'static [u32]]) {
    loom::model(move || {
        let memory = Arc::new(Memory::new());
        let theirs = Arc::clone(&memory);
        let sender = thread::spawn(move || {
            for (block, head) in blocks.iter().zip(&theirs.heads) {
                let slots = loop {
                    match theirs.put(block) {
                        Some(slots) => break slots,
                        None => thread::yield_now(),
                    }
                };
                head.store(slots, Ordering::Relaxed);
            }
        });
        for (block, head) in blocks.iter().zip(&memory.heads) {
            let got = loop {
                let slots = head.load(Ordering::Relaxed);
                // Without an order the head may be seen before the flags. A connection gives one, but the
                // numbers do not depend on it.
                match (slots != 0).then(|| memory.take(slots, block.len())).flatten() {
                    Some(got) => break got,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(got, *block);
        }
        sender.join().expect("no panic");
        assert!(memory.flags.iter().all(|flag| flag.load(Ordering::Relaxed) == FREE));
    });
}

#[test]
fn blocks_arrive_whole_and_in_order() {
    every_order_of(&[&[1], &[2]]);
    every_order_of(&[&[1, 2], &[3]]);
    every_order_of(&[&[1], &[2, 3]]);
}

#[test]
fn slots_are_used_again() {
    every_order_of(&[&[1, 2], &[3, 4]]);
    every_order_of(&[&[1], &[2], &[3]]);
}

/// A block whose second piece finds no room leaves nothing behind, and a head that is wrong takes nothing.
#[test]
fn what_does_not_fit_or_does_not_exist_changes_nothing() {
    loom::model(|| {
        let memory = Memory::new();
        let first = memory.put(&[1]).expect("there is room");
        assert_eq!(memory.put(&[2, 3]), None);
        for (slots, pieces) in [(first << 1, 1), (first, 2), (first | 1 << 40, 2), (0, 1)] {
            assert_eq!(memory.take(slots, pieces), None);
        }
        assert_eq!(memory.flags[0].load(Ordering::Relaxed), FULL);
        assert_eq!(memory.take(first, 1), Some(vec![1]));
    });
}
