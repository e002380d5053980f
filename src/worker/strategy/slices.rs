//! Which replica adds up, and with a sharded optimizer updates, which numbers of a stage's parameters.

use std::ops::Range;

use pipewright_stages::{Parameter, Pieces};

/// Numbers of one parameter: its place in the stage, and which of its numbers.
pub(in crate::worker) type Span = (usize, Range<usize>);

/// The numbers of a bucket on the host, if there are no more than [`BUCKETS`] of a replica.
const BUCKET: usize = Parameter::PIECE;

/// Equal parts begin with a cache line's first number.
const LINE: usize = 16;

/// The most buckets of a replica. With more numbers, buckets are larger.
const BUCKETS: usize = 256;

/// The numbers of a stage's parameters, divided among the replicas. Each replica owns whole
/// [pieces](Parameter::PIECE), about equally many. They travel in buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::worker) struct Slices {
    /// By replica.
    buckets: Vec<Vec<Vec<Span>>>,
    /// By parameter, then by replica.
    owned: Vec<Vec<Range<usize>>>,
    /// The numbers of a bucket, if there are no more than [`BUCKETS`] of a replica.
    bucket: usize,
}

/// How many numbers a bucket has.
pub(super) fn length_of(spans: &[Span]) -> usize {
    spans.iter().map(|(_, range)| range.len()).sum()
}

impl Slices {
    /// Divides parameters among `replicas` replicas. `parameters`: the pieces of each, and for a tied one the
    /// replica that comes first where pieces are left over. It is the same for all copies. Of other
    /// parameters, the replicas with the least numbers so far get what is left over.
    pub(in crate::worker) fn new(
        parameters: impl Iterator<Item = (Pieces, Option<usize>)>,
        replicas: u32,
    ) -> Self {
        let replicas = replicas as usize;
        let mut loads = vec![0; replicas];
        let owned: Vec<Vec<Range<usize>>> = parameters
            .map(|(pieces, first)| {
                let mut order: Vec<usize> = (0..replicas).collect();
                match first {
                    Some(first) => order.rotate_left(first % replicas),
                    None => order.sort_by_key(|&replica| loads[replica]),
                }
                let parts = parts(&pieces, &order);
                for (load, part) in loads.iter_mut().zip(&parts) {
                    *load += part.len();
                }
                parts
            })
            .collect();
        let slices = Self { buckets: vec![Vec::new(); replicas], owned, bucket: 0 };
        slices.in_buckets_of(BUCKET)
    }

    /// The same slices in buckets of `bucket` numbers, if there are no more than [`BUCKETS`] of a replica.
    #[must_use]
    pub(in crate::worker) fn in_buckets_of(mut self, bucket: usize) -> Self {
        let owned = &self.owned;
        for (replica, buckets) in self.buckets.iter_mut().enumerate() {
            *buckets = divided(owned.iter().map(|parts| parts[replica].clone()), bucket);
        }
        Self { bucket, ..self }
    }

    /// The buckets of a replica.
    pub(in crate::worker) fn of(&self, replica: u32) -> &[Vec<Span>] {
        &self.buckets[replica as usize]
    }

    /// A bucket of a replica. It is empty if there is no such bucket.
    pub(in crate::worker) fn bucket(&self, replica: u32, bucket: usize) -> &[Span] {
        self.of(replica).get(bucket).map_or(&[], Vec::as_slice)
    }

    /// The buckets of all numbers.
    pub(super) fn whole(&self) -> Vec<Vec<Span>> {
        divided(self.lengths().map(|length| 0..length), self.bucket)
    }

    /// The buckets of each replica, if each adds up equally many numbers, no matter which replica owns them.
    pub(super) fn even(&self) -> Vec<Vec<Vec<Span>>> {
        let replicas = self.buckets.len();
        // Each takes a walk over all replicas, so only once.
        let lengths: Vec<usize> = self.lengths().collect();
        let count: usize = lengths.iter().sum();
        let starts = |replica: usize| (count * replica / replicas).next_multiple_of(LINE);
        let part = |replica: usize| {
            let (start, end, mut before) = (starts(replica), starts(replica + 1), 0);
            let ranges = lengths.iter().map(|length| {
                let first = before;
                before += length;
                start.clamp(first, before) - first..end.clamp(first, before) - first
            });
            divided(ranges.collect::<Vec<_>>().into_iter(), self.bucket)
        };
        (0..replicas).map(part).collect()
    }

    /// How many numbers each parameter has.
    fn lengths(&self) -> impl Iterator<Item = usize> + Clone {
        let length = |parts: &Vec<Range<usize>>| parts.iter().map(ExactSizeIterator::len).sum();
        self.owned.iter().map(length)
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> usize {
        self.lengths().sum()
    }

    /// The numbers of a parameter that a replica owns.
    pub(in crate::worker) fn owned(&self, parameter: usize, replica: u32) -> Range<usize> {
        self.owned[parameter][replica as usize].clone()
    }
}

/// The numbers of each replica: whole pieces. Pieces that are left over go to the first replicas of this
/// order.
fn parts(pieces: &Pieces, order: &[usize]) -> Vec<Range<usize>> {
    let count = pieces.count();
    let mut counts = vec![count / order.len(); order.len()];
    for &replica in &order[..count % order.len()] {
        counts[replica] += 1;
    }
    let mut start = 0;
    let part = |count: usize| {
        let from = start;
        start += count;
        match count {
            0 => 0..0,
            _ => pieces.numbers(from..start),
        }
    };
    counts.into_iter().map(part).collect()
}

/// The buckets of these numbers of each parameter.
fn divided(ranges: impl Iterator<Item = Range<usize>> + Clone, bucket: usize) -> Vec<Vec<Span>> {
    let count: usize = ranges.clone().map(|range| range.len()).sum();
    let size = bucket.max(count.div_ceil(BUCKETS));
    let (mut all, mut bucket, mut room) = (Vec::new(), Vec::new(), size);
    for (parameter, mut rest) in ranges.enumerate() {
        while !rest.is_empty() {
            let end = rest.end.min(rest.start + room);
            bucket.push((parameter, rest.start..end));
            room -= end - rest.start;
            rest.start = end;
            if room == 0 {
                all.push(std::mem::take(&mut bucket));
                room = size;
            }
        }
    }
    if !bucket.is_empty() {
        all.push(bucket);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 7] = [1, 512, 65_536, 65_537, 1_000_003, 0, 3 * 65_536];

    #[test]
    fn every_number_is_owned_once_and_is_in_one_bucket() {
        for replicas in 1..9 {
            let slices =
                Slices::new(LENGTHS.into_iter().map(|length| (Pieces::Even(length), None)), replicas);
            for (index, length) in LENGTHS.into_iter().enumerate() {
                let mut seen = vec![0_u8; length];
                for replica in 0..replicas {
                    let owned = slices.owned(index, replica);
                    assert!(owned.is_empty() || owned.start.is_multiple_of(Parameter::PIECE), "{owned:?}");
                    let spans = slices.of(replica).iter().flatten();
                    for (_, range) in spans.filter(|(parameter, _)| *parameter == index) {
                        assert!(range.start >= owned.start && range.end <= owned.end);
                        seen[range.clone()].iter_mut().for_each(|count| *count += 1);
                    }
                }
                assert!(seen.into_iter().all(|count| count == 1), "{length} over {replicas}");
            }
            assert_eq!(slices.count(), LENGTHS.into_iter().sum::<usize>());
        }
    }

    #[test]
    fn equal_parts_have_every_number_once() {
        for replicas in 1..9 {
            let slices =
                Slices::new(LENGTHS.into_iter().map(|length| (Pieces::Even(length), None)), replicas);
            let parts = slices.even();
            let mut seen = LENGTHS.map(|length| vec![0_u8; length]);
            for (index, range) in parts.iter().flatten().flatten() {
                seen[*index][range.clone()].iter_mut().for_each(|count| *count += 1);
            }
            assert!(seen.iter().flatten().all(|&count| count == 1), "{replicas} replicas");
            let sizes = parts.iter().map(|part| part.iter().flatten().map(|(_, range)| range.len()));
            let sizes: Vec<usize> = sizes.map(Iterator::sum).collect();
            let most = slices.count().div_ceil(replicas as usize) + LINE;
            assert!(sizes.iter().all(|&size| size <= most), "{sizes:?}");
        }
    }

    #[test]
    fn replicas_own_about_equally_many_numbers() {
        let layers = [1 << 16, 256].into_iter().cycle().take(32);
        let lengths = [1_usize << 20; 12].into_iter().chain([512; 24]).chain(layers);
        for replicas in 2..9 {
            let slices = Slices::new(lengths.clone().map(|length| (Pieces::Even(length), None)), replicas);
            let owned = |replica| -> usize {
                let spans = slices.of(replica).iter().flatten();
                spans.map(|(_, range)| range.len()).sum()
            };
            let most = (0..replicas).map(owned).max().expect("there are replicas");
            let even = slices.count() / replicas as usize;
            assert!(most <= even + even / 8, "{most} of {even} over {replicas}");
        }
    }

    #[test]
    fn a_large_stage_has_larger_buckets_and_not_more() {
        let slices = Slices::new([(Pieces::Even(1 << 26), None)].into_iter(), 2);
        assert_eq!(slices.of(0).len(), BUCKETS);
    }
}
