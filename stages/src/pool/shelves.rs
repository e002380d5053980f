//! Unused values of one thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::sizes::Sizes;

/// Unused values of one thread, by size.
pub(crate) struct Shelves<V> {
    by_size: RefCell<BTreeMap<usize, Vec<V>>>,
    /// Of the values that are here, and of those that were taken.
    sizes: Cell<Sizes>,
}

impl<V> Shelves<V> {
    /// Empty shelves.
    pub(crate) const fn new() -> Self {
        Self { by_size: RefCell::new(BTreeMap::new()), sizes: Cell::new(Sizes::NONE) }
    }

    /// The value of this size that was put there last.
    pub(crate) fn take(&self, size: usize) -> Option<V> {
        let value = self.by_size.borrow_mut().get_mut(&size)?.pop()?;
        self.count(|sizes| sizes.taken(size));
        Some(value)
    }

    /// If one more value of this size would be too much: the smallest one of at least this size and at most
    /// twice this size.
    pub(crate) fn take_larger(&self, size: usize) -> Option<V> {
        if !self.would_be_too_much(size) {
            return None;
        }
        let mut by_size = self.by_size.borrow_mut();
        let mut about = by_size.range_mut(size..=size.saturating_mul(2));
        let (size, value) = about.find_map(|(size, values)| Some((*size, values.pop()?)))?;
        drop(by_size);
        self.count(|sizes| sizes.taken(size));
        Some(value)
    }

    /// Whether one more value of this size would be too much: see [`Sizes`].
    pub(crate) fn would_be_too_much(&self, size: usize) -> bool {
        self.sizes.get().would_be_too_much(size)
    }

    /// Drops all values.
    pub(crate) fn clear(&self) {
        self.by_size.borrow_mut().values_mut().for_each(Vec::clear);
        self.count(Sizes::freed_unused);
    }

    /// Drops those values that `may_go`.
    pub(crate) fn clear_if(&self, may_go: impl Fn(&V) -> bool) {
        let mut freed = 0;
        for (size, values) in self.by_size.borrow_mut().iter_mut() {
            let before = values.len();
            values.retain(|value| !may_go(value));
            freed += size * (before - values.len());
        }
        self.count(|sizes| sizes.freed(freed));
    }

    /// Counts a new value of this size, which will be put here.
    pub(crate) fn made(&self, size: usize) {
        self.count(|sizes| sizes.made(size));
    }

    /// Puts a value of this size there.
    pub(crate) fn put(&self, size: usize, what: V) {
        self.by_size.borrow_mut().entry(size).or_default().push(what);
        self.count(|sizes| sizes.put(size));
    }

    fn count(&self, change: impl FnOnce(&mut Sizes)) {
        let mut sizes = self.sizes.get();
        change(&mut sizes);
        self.sizes.set(sizes);
    }
}
