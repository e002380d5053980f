//! Which micro-batches a replica has, and in which order a batch's gradients are added.
//!
//! The micro-batches of a batch are divided into *gradient groups*: consecutive ones, almost equally many in
//! each. A group's gradients are added one after the other. Then the groups are added by a binary tree over
//! their numbers: group 0 and 1, group 2 and 3, then these two sums, and so on. A replica has whole groups.
//! So each sum is made of the same numbers in the same order, however many replicas there are, and its bits
//! are the same.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The gradient groups of a batch.
///
/// ```
/// use pipewright_schedule::groups::GradientGroups;
///
/// // 12 micro-batches in 8 groups, for 2 replicas.
/// let groups = GradientGroups::new(12, 8);
/// assert_eq!(groups.of_replica(0, 2), 0..4);
/// assert_eq!([groups.share(0, 2), groups.share(1, 2)], [0..6, 6..12]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientGroups {
    micro_batches: u32,
    groups: u32,
}

impl GradientGroups {
    /// How many groups there are for `replicas` replicas if nobody says otherwise: one for each replica,
    /// rounded up to a power of two.
    pub fn usual(replicas: u32) -> u32 {
        replicas.max(1).checked_next_power_of_two().unwrap_or(u32::MAX)
    }

    /// Divides a batch of `micro_batches` into `groups`. With fewer micro-batches than groups, each
    /// micro-batch is a group of its own.
    pub fn new(micro_batches: u32, groups: u32) -> Self {
        Self { micro_batches, groups: groups.min(micro_batches).max(1) }
    }

    /// How many micro-batches the batch has.
    pub fn micro_batches(self) -> u32 {
        self.micro_batches
    }

    /// How many groups there are.
    pub fn count(self) -> u32 {
        self.groups
    }

    /// The micro-batches before this group, which is also the number of its first one.
    fn before(self, group: u32) -> u32 {
        (u64::from(group) * u64::from(self.micro_batches) / u64::from(self.groups)) as u32
    }

    /// The group of a micro-batch.
    pub fn of(self, micro_batch: u32) -> u32 {
        let guess = (u64::from(micro_batch) * u64::from(self.groups) / u64::from(self.micro_batches)) as u32;
        guess + u32::from(guess + 1 < self.groups && self.before(guess + 1) <= micro_batch)
    }

    /// Whether a micro-batch is the last one of its group.
    pub fn ends_with(self, micro_batch: u32) -> bool {
        self.before(self.of(micro_batch) + 1) == micro_batch + 1
    }

    /// The groups of replica `replica` of `replicas`. With more replicas than groups, some have none; the
    /// first one always has one.
    pub fn of_replica(self, replica: u32, replicas: u32) -> Range<u32> {
        let before =
            |replica: u32| (u64::from(replica) * u64::from(self.groups)).div_ceil(u64::from(replicas)) as u32;
        before(replica)..before(replica + 1)
    }

    /// The micro-batches of these consecutive groups.
    pub fn micro_batches_of(self, groups: Range<u32>) -> Range<u32> {
        self.before(groups.start)..self.before(groups.end)
    }

    /// The micro-batches of replica `replica` of `replicas`.
    pub fn share(self, replica: u32, replicas: u32) -> Range<u32> {
        self.micro_batches_of(self.of_replica(replica, replicas))
    }

    /// The most micro-batches that one of `replicas` replicas has.
    pub fn largest_share(self, replicas: u32) -> u32 {
        let shares = (0..replicas.min(self.groups)).map(|replica| self.share(replica, replicas).len());
        shares.max().unwrap_or(0) as u32
    }
}

/// The most numbers of a sum that each replica makes itself.
const FEW: usize = 1 << 14;

/// Whether replicas that add up `numbers` numbers send all of them to each other, and each adds up
/// everything. Otherwise each adds up a part, and sends the others its total. Between two replicas the first
/// way sends no more. For few numbers it is quicker, because nobody waits for an answer.
pub fn is_exchanged(numbers: usize, replicas: u32) -> bool {
    replicas <= 2 || numbers <= FEW
}

/// A node of the tree that adds the groups: the sum of `2^level` consecutive groups, or of fewer at the end.
/// A node of level 0 is a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    level: u32,
    /// Among the nodes of its level.
    index: u32,
}

impl Node {
    /// The node of one group.
    pub fn of_group(group: u32) -> Self {
        Self { level: 0, index: group }
    }

    /// The first group of its sum.
    pub fn first_group(self) -> u32 {
        self.index << self.level
    }

    /// The node that has this one and the next one of the same level as its two parts, if there is one.
    pub fn parent_after(self, left: Self) -> Option<Self> {
        let siblings = left.level == self.level && left.index + 1 == self.index && self.index % 2 == 1;
        siblings.then_some(Self { level: self.level + 1, index: self.index / 2 })
    }
}

/// Adds the values of consecutive groups by the tree, as they come.
///
/// It holds the sums that still wait for a later one: at most two for each level of the tree.
#[derive(Clone, Debug)]
pub struct Sums<T> {
    /// In the order of their groups.
    nodes: Vec<(Node, T)>,
}

impl<T> Default for Sums<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<T> Sums<T> {
    /// Takes the next node's value. Adds it to the nodes before where the tree says so: `add` makes the sum
    /// of an earlier and a later value.
    pub fn push(&mut self, node: Node, value: T, mut add: impl FnMut(T, T) -> T) {
        let (mut node, mut value) = (node, value);
        while let Some((left, _)) = self.nodes.last()
            && let Some(parent) = node.parent_after(*left)
        {
            let (_, earlier) = self.nodes.pop().expect("it has a last one");
            (node, value) = (parent, add(earlier, value));
        }
        self.nodes.push((node, value));
    }

    /// The sums so far, in the order of their groups.
    pub fn nodes(&self) -> &[(Node, T)] {
        &self.nodes
    }

    /// Forgets all sums.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// The sum of all, after the last group. `None` if there were none. Nothing is left.
    pub fn total(&mut self, mut add: impl FnMut(T, T) -> T) -> Option<T> {
        let (_, mut total) = self.nodes.pop()?;
        while let Some((_, earlier)) = self.nodes.pop() {
            total = add(earlier, total);
        }
        Some(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Range<u32> = 1..20;

    #[test]
    fn there_are_usually_as_many_groups_as_replicas_up_to_a_power_of_two() {
        let pairs = [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16)];
        assert!(pairs.iter().all(|&(replicas, groups)| GradientGroups::usual(replicas) == groups));
        assert_eq!(GradientGroups::usual(u32::MAX), u32::MAX);
    }

    #[test]
    fn groups_are_consecutive_and_almost_equal() {
        for (micro_batches, groups) in SIZES.flat_map(|m| SIZES.map(move |g| (m, g))) {
            let all = GradientGroups::new(micro_batches, groups);
            assert_eq!(all.count(), groups.min(micro_batches));
            let mut next = 0;
            for group in 0..all.count() {
                let range = all.micro_batches_of(group..group + 1);
                assert_eq!(range.start, next);
                next = range.end;
                let each = micro_batches / all.count();
                assert!((each..=each + 1).contains(&(range.len() as u32)), "{all:?} {range:?}");
                assert!(range.into_iter().all(|micro_batch| all.of(micro_batch) == group));
            }
            assert_eq!(next, micro_batches);
        }
    }

    #[test]
    fn replicas_share_all_groups_in_order() {
        for (groups, replicas) in SIZES.flat_map(|g| SIZES.map(move |d| (g, d))) {
            let all = GradientGroups::new(40, groups);
            let shares: Vec<u32> =
                (0..replicas).flat_map(|replica| all.of_replica(replica, replicas)).collect();
            assert!(shares.into_iter().eq(0..groups), "{groups} over {replicas}");
            assert!(!all.share(0, replicas).is_empty(), "the first replica always has work");
        }
    }

    #[test]
    fn the_sum_does_not_depend_on_the_replicas() {
        let add = |a: String, b: String| format!("({a} {b})");
        for (groups, replicas) in SIZES.flat_map(|g| SIZES.map(move |d| (g, d))) {
            let all = GradientGroups::new(groups, groups);
            let sum_of = |range: Range<u32>| {
                let mut sums = Sums::default();
                for group in range {
                    sums.push(Node::of_group(group), group.to_string(), add);
                }
                sums
            };
            let expected = sum_of(0..groups).total(add);
            let mut together = Sums::default();
            for replica in 0..replicas {
                for (node, value) in sum_of(all.of_replica(replica, replicas)).nodes() {
                    together.push(*node, value.clone(), add);
                }
            }
            assert_eq!(together.total(add), expected, "{groups} over {replicas}");
        }
    }

    #[test]
    fn eight_groups_are_added_in_pairs() {
        let mut sums = Sums::default();
        for group in 0..8 {
            sums.push(Node::of_group(group), group.to_string(), |a, b| format!("({a}+{b})"));
        }
        assert_eq!(sums.nodes().len(), 1);
        assert_eq!(sums.nodes()[0].1, "(((0+1)+(2+3))+((4+5)+(6+7)))");
    }
}
