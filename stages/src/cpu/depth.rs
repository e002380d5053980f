//! In which order a product is added up over its depth.
//!
//! A product is usually added up from first to last. If its depth is divided among shards, it is added up in
//! groups: each group from zero, then the groups by a binary tree, group 0 and 1, group 2 and 3, and so on. A
//! shard has whole groups, so the sum has the same bits for any number of shards.

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;

/// The depth of a block: the operands are packed, and multiplied, block by block.
pub(crate) const BLOCK_DEPTH: usize = 512;

/// The depth of a product, in the order in which it is added up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Depth<'a> {
    /// From first to last.
    Whole(usize),
    /// In groups.
    InGroups(&'a DepthGroups),
}

/// The groups of a depth. Their number is a power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DepthGroups {
    depth: usize,
    /// All ranges of all groups, in order.
    segments: Vec<Segment>,
    blocks: Vec<Block>,
    /// The segments of all blocks, one block after the other.
    block_segments: Vec<Segment>,
}

/// Consecutive places of the depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// After the last segment of a group: how many sums are added to its sum, by the tree, newest first.
    /// `None`: the sum goes on in the next segment.
    pub(crate) joined: Option<u32>,
}

impl Segment {
    /// The number of places.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.end - self.start
    }

    /// The places.
    pub(crate) fn range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// Segments whose sum is made in registers, as [`DepthGroups`] lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// Where its segments begin in the list.
    first: usize,
    segments: usize,
    /// The places in the blocks before.
    before: usize,
    len: usize,
    onto: bool,
    joined: u32,
}

/// Segments whose sum is made in registers. Then it is added to sums in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepthBlock<'a> {
    first: Segment,
    more: &'a [Segment],
    /// The places in the blocks before.
    pub(crate) before: usize,
    /// The number of places.
    pub(crate) len: usize,
    /// Whether the sum is added to the newest sum in memory. Otherwise it is the newest one itself.
    pub(crate) onto: bool,
    /// How many sums in memory are then added to the newest one, by the tree, newest first.
    pub(crate) joined: u32,
}

impl<'a> DepthBlock<'a> {
    /// Its segments, in order.
    #[inline(always)]
    pub(crate) fn segments(self) -> impl Iterator<Item = Segment> + use<'a> {
        once(self.first).chain(self.more.iter().copied())
    }

    /// Its places, if they are consecutive and one sum.
    #[inline(always)]
    pub(crate) fn whole(self) -> Option<Range<usize>> {
        self.more.is_empty().then_some(self.first.start..self.first.end)
    }

    /// The places of its first segment.
    #[inline(always)]
    pub(crate) fn start(self) -> Range<usize> {
        self.first.start..self.first.end
    }
}

impl<'a> Depth<'a> {
    /// The places of a product, whole or in groups.
    #[inline(always)]
    pub(crate) fn new(places: usize, groups: Option<&'a Arc<DepthGroups>>) -> Self {
        groups.map_or(Self::Whole(places), |groups| Self::InGroups(groups))
    }

    /// The number of places.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Whole(depth) => depth,
            Self::InGroups(groups) => groups.depth,
        }
    }

    /// How many sums there are at once, at most, while the tree adds them up.
    pub(crate) fn most_sums(self) -> usize {
        let (mut count, mut most) = (0, 1);
        for joined in self.segments().filter_map(|segment| segment.joined) {
            count += 1;
            most = most.max(count);
            count -= joined as usize;
        }
        most
    }

    /// Whether it is added up from first to last.
    #[inline(always)]
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Self::Whole(_))
    }

    /// The blocks, in the order in which they are added up. Each has at most [`BLOCK_DEPTH`] places.
    #[inline(always)]
    pub(crate) fn blocks(self) -> impl Iterator<Item = DepthBlock<'a>> {
        let count = match self {
            Self::Whole(depth) => depth.div_ceil(BLOCK_DEPTH),
            Self::InGroups(groups) => groups.blocks.len(),
        };
        (0..count).map(move |index| self.block(index))
    }

    #[inline(always)]
    fn block(self, index: usize) -> DepthBlock<'a> {
        match self {
            Self::Whole(depth) => {
                let start = index * BLOCK_DEPTH;
                let end = depth.min(start + BLOCK_DEPTH);
                let first = Segment { start, end, joined: None };
                DepthBlock { first, more: &[], before: start, len: end - start, onto: index > 0, joined: 0 }
            }
            Self::InGroups(groups) => {
                let Block { first, segments, before, len, onto, joined } = groups.blocks[index];
                let segments = &groups.block_segments[first..first + segments];
                DepthBlock { first: segments[0], more: &segments[1..], before, len, onto, joined }
            }
        }
    }

    /// All segments, in the order in which they are added up.
    #[inline(always)]
    pub(crate) fn segments(self) -> impl Iterator<Item = Segment> + use<'a> {
        let (whole, segments) = match self {
            Self::Whole(end) => (Some(Segment { start: 0, end, joined: Some(0) }), &[][..]),
            Self::InGroups(groups) => (None, &groups.segments[..]),
        };
        whole.into_iter().chain(segments.iter().copied())
    }
}

impl DepthGroups {
    /// These groups, each of at least one range with a place. `None` if there is only one group of one range,
    /// which is added up from first to last.
    ///
    /// Ranges that follow each other are not one range: in `bf16` each begins a tile of its own.
    pub(crate) fn new(groups: &[Vec<Range<usize>>]) -> Option<Self> {
        assert!(groups.len().is_power_of_two(), "a tree of {} groups", groups.len());
        let ranges = groups.iter().flatten().filter(|range| !range.is_empty());
        if groups.len() == 1 && ranges.count() == 1 {
            return None;
        }
        let mut all = Self { depth: 0, segments: Vec::new(), blocks: Vec::new(), block_segments: Vec::new() };
        for (index, ranges) in groups.iter().enumerate() {
            push_group(&mut all.segments, ranges, joined_after(index));
        }
        let lengths: Vec<usize> = groups.iter().map(|ranges| ranges.iter().map(Range::len).sum()).collect();
        let mut group = 0;
        while group < groups.len() {
            let count = fitting(&lengths, group);
            let joined = joined_after(group / count);
            if lengths[group] > BLOCK_DEPTH {
                all.push_large(&groups[group], joined);
            } else {
                let first = all.block_segments.len();
                for (index, ranges) in groups[group..group + count].iter().enumerate() {
                    push_group(&mut all.block_segments, ranges, joined_after(index));
                }
                // The newest sum in memory is the one that the tree joins with this one first.
                all.push_block(first, joined > 0, joined.saturating_sub(1));
            }
            group += count;
        }
        Some(all)
    }

    /// The ranges of each group.
    pub(crate) fn ranges(&self) -> Vec<Vec<Range<usize>>> {
        let groups = self.segments.split_inclusive(|segment| segment.joined.is_some());
        groups.map(|group| group.iter().map(|segment| segment.range()).collect()).collect()
    }

    /// Adds the blocks of a group that has more places than a block.
    fn push_large(&mut self, ranges: &[Range<usize>], joined: u32) {
        let places: usize = ranges.iter().map(Range::len).sum();
        for start in (0..places).step_by(BLOCK_DEPTH) {
            let end = places.min(start + BLOCK_DEPTH);
            let first = self.block_segments.len();
            push_group(&mut self.block_segments, &within(ranges, start..end), 0);
            self.push_block(first, start > 0, if end == places { joined } else { 0 });
        }
    }

    /// Adds a block of the segments from this one on.
    fn push_block(&mut self, first: usize, onto: bool, joined: u32) {
        let segments = &self.block_segments[first..];
        let len = segments.iter().map(|segment| segment.len()).sum();
        let before = self.depth;
        self.blocks.push(Block { first, segments: segments.len(), before, len, onto, joined });
        self.depth += len;
    }
}

/// Adds the segments of a group.
fn push_group(segments: &mut Vec<Segment>, ranges: &[Range<usize>], joined: u32) {
    let ranges = ranges.iter().filter(|range| !range.is_empty());
    segments.extend(ranges.map(|range| Segment { start: range.start, end: range.end, joined: None }));
    segments.last_mut().expect("a group has a place").joined = Some(joined);
}

/// How many sums the tree adds to the sum of the node with this number, among the nodes of its level.
fn joined_after(node: usize) -> u32 {
    node.trailing_ones()
}

/// How many groups, from this one on, are a node of the tree that fits in a block. One if not even that fits.
fn fitting(lengths: &[usize], group: usize) -> usize {
    let mut count = 1;
    while group.is_multiple_of(2 * count)
        && group + 2 * count <= lengths.len()
        && lengths[group..group + 2 * count].iter().sum::<usize>() <= BLOCK_DEPTH
    {
        count *= 2;
    }
    count
}

/// The ranges of these places, counted over all ranges.
fn within(ranges: &[Range<usize>], places: Range<usize>) -> Vec<Range<usize>> {
    let mut before = 0;
    let mut found = Vec::new();
    for range in ranges {
        let start = places.start.max(before) - before;
        let end = places.end.clamp(before, before + range.len()) - before;
        if start < end {
            found.push(range.start + start..range.start + end);
        }
        before += range.len();
    }
    found
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a group may have one range")]
mod tests {
    use super::*;

    /// The sum of letters by the blocks: as the CPU's kernels add.
    fn added(groups: &DepthGroups) -> String {
        let mut memory: Vec<String> = Vec::new();
        for block in Depth::InGroups(groups).blocks() {
            assert!(block.len <= BLOCK_DEPTH);
            let mut waiting: Vec<String> = Vec::new();
            let mut sum = String::new();
            for segment in block.segments() {
                let before = if sum.is_empty() { "" } else { " " };
                sum += &format!("{before}{}-{}", segment.start, segment.end);
                if let Some(joined) = segment.joined {
                    for _ in 0..joined {
                        let earlier: String = waiting.pop().expect("a sum");
                        sum = format!("({earlier} {sum})");
                    }
                    waiting.push(std::mem::take(&mut sum));
                }
            }
            let sum = waiting.pop().expect("a sum");
            assert!(waiting.is_empty(), "a block is one sum");
            match block.onto {
                true => {
                    let newest = memory.pop().expect("a sum");
                    memory.push(format!("({newest} {sum})"));
                }
                false => memory.push(sum),
            }
            for _ in 0..block.joined {
                let later = memory.pop().expect("a sum");
                let earlier = memory.pop().expect("a sum");
                memory.push(format!("({earlier} {later})"));
            }
        }
        assert_eq!(memory.len(), 1, "{memory:?}");
        memory.remove(0)
    }

    /// As many groups of this many places.
    fn equal(count: usize, each: usize) -> DepthGroups {
        let groups: Vec<_> = (0..count).map(|group| vec![group * each..(group + 1) * each]).collect();
        DepthGroups::new(&groups).expect("several groups")
    }

    #[test]
    fn groups_are_added_by_the_tree_however_large_they_are() {
        assert_eq!(added(&equal(4, 10)), "((0-10 10-20) (20-30 30-40))");
        assert_eq!(added(&equal(4, 256)), "((0-256 256-512) (512-768 768-1024))");
        assert_eq!(added(&equal(4, 300)), "((0-300 300-600) (600-900 900-1200))");
        let eight = added(&equal(8, 200));
        assert_eq!(
            eight,
            "(((0-200 200-400) (400-600 600-800)) ((800-1000 1000-1200) (1200-1400 1400-1600)))"
        );
        let large = added(&equal(2, 1100));
        assert_eq!(large, "(((0-512 512-1024) 1024-1100) ((1100-1612 1612-2124) 2124-2200))");
    }

    #[test]
    fn a_group_may_have_several_ranges() {
        let groups = [vec![0..3, 6..7], vec![3..6, 7..8]];
        let groups = DepthGroups::new(&groups).expect("several groups");
        assert_eq!(added(&groups), "(0-3 6-7 3-6 7-8)");
        assert_eq!(Depth::InGroups(&groups).len(), 8);
        let groups = [vec![0..500, 900..1000], vec![500..900, 1000..1100]];
        let groups = DepthGroups::new(&groups).expect("several groups");
        assert_eq!(added(&groups), "((0-500 900-912 912-1000) 500-900 1000-1100)");
    }

    #[test]
    fn one_group_is_added_from_first_to_last() {
        assert_eq!(DepthGroups::new(&[vec![0..700]]), None);
        assert!(DepthGroups::new(&[vec![0..5, 5..9]]).is_some(), "two ranges");
        let blocks: Vec<_> = Depth::Whole(1100).blocks().map(|block| (block.whole(), block.onto)).collect();
        assert_eq!(blocks, [(Some(0..512), false), (Some(512..1024), true), (Some(1024..1100), true)]);
    }
}
