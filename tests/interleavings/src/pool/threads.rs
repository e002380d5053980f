//! Threads that share memory, drop it and end, in every order. No block is used by two, returned twice or
//! lost.

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::thread;

use super::home::{Block, Pool, drop_block, share_block};
use super::sync::Arc;

/// Memory that counts itself.
struct Memory {
    number: UnsafeCell<u32>,
    alive: std::sync::Arc<AtomicUsize>,
}

impl Memory {
    fn new(alive: &std::sync::Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number: UnsafeCell::new(0), alive: std::sync::Arc::clone(alive) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One of those that share a block. Like a buffer.
struct Shared(Arc<Block<Memory>>);

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self(share_block(&self.0))
    }
}

impl Shared {
    /// A block that nobody else has, from this thread's pool.
    fn taken(pool: &Pool<Memory>, alive: &std::sync::Arc<AtomicUsize>, number: u32) -> Self {
        let mut block = pool.take(1, || Some(Memory::new(alive))).expect("there is memory");
        let alone = Arc::get_mut(&mut block).expect("nobody else has it");
        alone.memory.number.with_mut(|place| unsafe { *place = number });
        Self(block)
    }

    fn number(&self) -> u32 {
        self.0.memory.number.with(|place| unsafe { *place })
    }

    /// On a thread with this pool, or without one.
    fn dropped(self, own: Option<&Pool<Memory>>) {
        drop_block(self.0, own);
    }
}

/// Does this in every order, and finds memory that is not freed in the end.
fn every_order_of(act: fn(&std::sync::Arc<AtomicUsize>)) {
    loom::model(move || {
        let alive = std::sync::Arc::default();
        act(&alive);
        assert_eq!(alive.load(Ordering::Relaxed), 0, "memory is lost");
    });
}

#[test]
fn memory_that_comes_home_is_used_again_and_by_one_thread_only() {
    every_order_of(|alive| {
        let pool = Pool::new();
        let shared = Shared::taken(&pool, alive, 1);
        let other = thread::spawn(move || {
            let own = Pool::new();
            assert_eq!(shared.number(), 1);
            shared.dropped(Some(&own));
        });
        // The first one, if it has come home. Else a new one.
        let next = Shared::taken(&pool, alive, 2);
        assert_eq!(next.number(), 2);
        next.dropped(Some(&pool));
        other.join().expect("no panic");
        let last = Shared::taken(&pool, alive, 3);
        assert!(alive.load(Ordering::Relaxed) <= 2);
        last.dropped(Some(&pool));
    });
}

#[test]
fn a_block_that_two_threads_drop_at_once_is_returned_once() {
    every_order_of(|alive| {
        let pool = Pool::new();
        let shared = Shared::taken(&pool, alive, 1);
        let clone = shared.clone();
        let other = thread::spawn(move || {
            assert_eq!(clone.number(), 1);
            clone.dropped(Some(&Pool::new()));
        });
        assert_eq!(shared.number(), 1);
        shared.dropped(Some(&pool));
        let next = [2, 3].map(|number| Shared::taken(&pool, alive, number));
        assert_eq!([next[0].number(), next[1].number()], [2, 3]);
        next.into_iter().for_each(|next| next.dropped(Some(&pool)));
        other.join().expect("no panic");
        // It has come home: nothing new is made.
        assert!(pool.take(1, || None).is_some());
    });
}

#[test]
fn what_comes_home_to_a_thread_that_ends_is_freed() {
    every_order_of(|alive| {
        let pool = Pool::new();
        let shared = [1, 2].map(|number| Shared::taken(&pool, alive, number));
        let other = thread::spawn(move || {
            // This thread ends too: its own pool is gone already.
            for shared in shared {
                shared.dropped(None);
            }
        });
        drop(pool);
        other.join().expect("no panic");
    });
}

#[test]
fn two_threads_return_memory_to_a_third_one_that_ends() {
    every_order_of(|alive| {
        let pool = Pool::new();
        let threads = [1, 2].map(|number| {
            let shared = Shared::taken(&pool, alive, number);
            thread::spawn(move || shared.dropped(None))
        });
        let next = Shared::taken(&pool, alive, 3);
        next.dropped(Some(&pool));
        drop(pool);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}
