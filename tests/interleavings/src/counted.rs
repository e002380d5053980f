//! `Arc` and `Weak` with a count that `loom` can look into, and with the orders of the standard library's.

use std::ops::Deref;
use std::sync;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::sync::atomic::{AtomicUsize, fence};

/// The count says who has it. The memory itself is the standard library's.
pub(crate) struct Arc<T> {
    owners: sync::Arc<AtomicUsize>,
    value: sync::Arc<T>,
}

pub(crate) struct Weak<T> {
    owners: sync::Arc<AtomicUsize>,
    value: sync::Weak<T>,
}

impl<T> Arc<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { owners: sync::Arc::new(AtomicUsize::new(1)), value: sync::Arc::new(value) }
    }

    pub(crate) fn get_mut(this: &mut Self) -> Option<&mut T> {
        match this.owners.load(Acquire) {
            1 => sync::Arc::get_mut(&mut this.value),
            _ => None,
        }
    }

    pub(crate) fn as_ptr(this: &Self) -> *const T {
        sync::Arc::as_ptr(&this.value)
    }

    pub(crate) fn downgrade(this: &Self) -> Weak<T> {
        Weak { owners: sync::Arc::clone(&this.owners), value: sync::Arc::downgrade(&this.value) }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        self.owners.fetch_add(1, Relaxed);
        Self { owners: sync::Arc::clone(&self.owners), value: sync::Arc::clone(&self.value) }
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        // No thread takes its turn between this and the drop of the value.
        if self.owners.fetch_sub(1, Release) == 1 {
            fence(Acquire);
        }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Weak<T> {
    pub(crate) fn as_ptr(&self) -> *const T {
        self.value.as_ptr()
    }

    pub(crate) fn upgrade(&self) -> Option<Arc<T>> {
        let more = |owners| (owners > 0).then_some(owners + 1);
        self.owners.fetch_update(Acquire, Relaxed, more).ok()?;
        Some(Arc {
            owners: sync::Arc::clone(&self.owners),
            value: self.value.upgrade().expect("it is counted"),
        })
    }
}
