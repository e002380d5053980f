//! Sharing work on rows among the threads of a rank.

use crate::threads;

/// The least work for which a part is worth waking a thread: some microseconds. The unit of work is one
/// number read or written by a plain loop.
const LEAST: usize = 16 * 1024;

/// How many multiply-adds take as long as one unit of work.
pub(crate) const PRODUCTS: usize = 32;

/// How many units of work one exponential takes.
pub(crate) const EXP: usize = 4;

/// Rows that can be cut in two. Either a slice in units of rows, or several such slices with equally many
/// units.
pub(crate) trait Rows: Send + Sized {
    /// The plain slices.
    type Slices;

    /// The number of units.
    fn units(&self) -> usize;

    /// The first `units` units, and the rest.
    fn split(self, units: usize) -> (Self, Self);

    /// The slices to work on.
    fn slices(self) -> Self::Slices;
}

/// A slice in units of this many numbers. The last unit may be shorter.
pub(crate) struct By<S>(pub(crate) S, pub(crate) usize);

impl<'a, T: Sync> Rows for By<&'a [T]> {
    type Slices = &'a [T];

    fn units(&self) -> usize {
        self.0.len().div_ceil(self.1)
    }

    fn split(self, units: usize) -> (Self, Self) {
        let (first, others) = self.0.split_at(units * self.1);
        (Self(first, self.1), Self(others, self.1))
    }

    fn slices(self) -> Self::Slices {
        self.0
    }
}

impl<'a, T: Send> Rows for By<&'a mut [T]> {
    type Slices = &'a mut [T];

    fn units(&self) -> usize {
        self.0.len().div_ceil(self.1)
    }

    fn split(self, units: usize) -> (Self, Self) {
        let (first, others) = self.0.split_at_mut(units * self.1);
        (Self(first, self.1), Self(others, self.1))
    }

    fn slices(self) -> Self::Slices {
        self.0
    }
}

impl<A: Rows, B: Rows> Rows for (A, B) {
    type Slices = (A::Slices, B::Slices);

    fn units(&self) -> usize {
        self.0.units()
    }

    fn split(self, units: usize) -> (Self, Self) {
        let (a, b) = (self.0.split(units), self.1.split(units));
        ((a.0, b.0), (a.1, b.1))
    }

    fn slices(self) -> Self::Slices {
        (self.0.slices(), self.1.slices())
    }
}

/// Rows beside others, which may be missing.
impl<R: Rows> Rows for Option<R> {
    type Slices = Option<R::Slices>;

    fn units(&self) -> usize {
        self.as_ref().map_or(0, Rows::units)
    }

    fn split(self, units: usize) -> (Self, Self) {
        self.map(|rows| rows.split(units)).unzip()
    }

    fn slices(self) -> Self::Slices {
        self.map(Rows::slices)
    }
}

/// How many threads share this much work.
pub(crate) fn parts(weight: usize) -> usize {
    match threads::count() {
        1 => 1,
        threads => (weight / LEAST).clamp(1, threads),
    }
}

/// Runs `work` on all rows. `weight` is the work for each unit. The threads share the rows if there is enough
/// work. Each part also gets the number of its first unit.
pub(crate) fn cut<R: Rows>(rows: R, weight: usize, work: impl Fn(usize, R::Slices) + Sync) {
    let units = rows.units();
    share(parts(units * weight).min(units), 0, rows, &work);
}

fn share<R: Rows>(parts: usize, first: usize, rows: R, work: &(impl Fn(usize, R::Slices) + Sync)) {
    if parts <= 1 {
        return work(first, rows.slices());
    }
    let half = parts / 2;
    let units = rows.units() * half / parts;
    let (mine, others) = rows.split(units);
    rayon::join(|| share(half, first, mine, work), || share(parts - half, first + units, others, work));
}

/// Copies numbers or bytes to a slice of the same length. The [threads](crate::threads) of the current thread
/// share the work.
///
/// ```
/// let mut to = [0.0; 3];
/// pipewright_stages::copy(&[1.0, 2.0, 3.0], &mut to);
/// assert_eq!(to, [1.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// When the lengths differ.
pub fn copy<T: Copy + Send + Sync>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "a copy is as long as what is copied");
    let number = (size_of::<f32>() / size_of::<T>().max(1)).max(1);
    cut((By(from, number), By(to, number)), 1, |_, (from, to)| to.copy_from_slice(from));
}
