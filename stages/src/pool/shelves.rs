//! Unused values of one thread.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// Unused values of one thread, by size.
pub(crate) struct Shelves<V>(RefCell<BTreeMap<usize, Vec<V>>>);

impl<V> Shelves<V> {
    /// Empty shelves.
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(BTreeMap::new()))
    }

    /// The value of this size that was put there last.
    pub(crate) fn take(&self, size: usize) -> Option<V> {
        self.0.borrow_mut().get_mut(&size)?.pop()
    }

    /// The smallest value of at least this size, and of at most twice this size.
    pub(crate) fn take_about(&self, size: usize) -> Option<V> {
        let mut shelves = self.0.borrow_mut();
        let mut about = shelves.range_mut(size..=size.saturating_mul(2));
        about.find_map(|(_, values)| values.pop())
    }

    /// Takes all values.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().values_mut().for_each(Vec::clear);
    }

    /// Puts a value of this size there.
    pub(crate) fn put(&self, size: usize, what: V) {
        self.0.borrow_mut().entry(size).or_default().push(what);
    }
}
