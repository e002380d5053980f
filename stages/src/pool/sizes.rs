//! How much memory there is, and when it is too much.

/// Sums of the sizes of some blocks of memory that are used again.
///
/// Micro-batches may have many shapes, and each would leave blocks of its own behind. So there should never
/// be more than twice the memory that was ever in use at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizes {
    all: usize,
    unused: usize,
    most_used: usize,
}

impl Sizes {
    pub(crate) const NONE: Self = Self { all: 0, unused: 0, most_used: 0 };

    /// Whether one more block of this size would be too much.
    pub(crate) fn would_be_too_much(&self, size: usize) -> bool {
        self.all + size > 2 * self.most_used.max(self.used() + size)
    }

    /// A new block is there, and in use.
    pub(crate) fn made(&mut self, size: usize) {
        self.all += size;
        self.most_used = self.most_used.max(self.used());
    }

    /// An unused block is in use.
    pub(crate) fn taken(&mut self, size: usize) {
        self.unused = self.unused.saturating_sub(size);
        self.most_used = self.most_used.max(self.used());
    }

    /// A block is no longer in use.
    pub(crate) fn put(&mut self, size: usize) {
        self.unused += size;
    }

    /// An unused block is freed.
    pub(crate) fn freed(&mut self, size: usize) {
        self.all = self.all.saturating_sub(size);
        self.unused = self.unused.saturating_sub(size);
    }

    /// All unused blocks are freed.
    pub(crate) fn freed_unused(&mut self) {
        self.freed(self.unused);
    }

    fn used(&self) -> usize {
        self.all.saturating_sub(self.unused)
    }
}
