//! A dimension that is divided among shards.

use std::ops::Range;

use super::sharding::{Shard, Sharding};
use super::tree::add_by_tree;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A dimension that is divided among shards. It has one or more parts, such as queries, keys and values. Each
/// part has the same number of units, such as heads. A group has units of consecutive numbers, in all parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    units: usize,
    /// The width of a unit in each part.
    widths: Vec<usize>,
    groups: usize,
    shard: Shard,
}

impl Division {
    /// Divides a dimension of `units` units. `widths`: the places of a unit in each part.
    ///
    /// # Errors
    /// When there are more shards than units.
    pub fn new(sharding: Sharding, units: usize, widths: &[usize]) -> Result<Self> {
        let (groups, shard) = (sharding.groups_of(units), sharding.shard());
        if shard.of as usize > groups {
            return Err(Error::new(format!(
                "{units} units cannot be divided among {} shards: choose at most {groups} shards",
                shard.of
            )));
        }
        Ok(Self { units, widths: widths.to_vec(), groups, shard })
    }

    /// How many places this shard has.
    #[allow(clippy::len_without_is_empty, reason = "a shard has a place")]
    pub fn len(&self) -> usize {
        self.own().iter().map(Range::len).sum()
    }

    /// Which shard it is.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// The division of the whole dimension, as its only shard has it.
    #[must_use]
    pub fn of_whole(&self) -> Self {
        Self { shard: Shard::WHOLE, ..self.clone() }
    }

    /// The same division, as another shard has it.
    pub(crate) fn of_shard(&self, index: u32) -> Self {
        Self { shard: Shard { index, ..self.shard }, ..self.clone() }
    }

    /// The end of each shard's places, if there is one part.
    pub(crate) fn ends(&self) -> Vec<usize> {
        let shards = 0..self.shard.of;
        shards.map(|index| self.of_shard(index).own()[0].end).collect()
    }

    /// The division of the part that has these places of this shard.
    pub(crate) fn part_at(&self, places: &Range<usize>) -> Self {
        let units = self.len() / self.widths.iter().sum::<usize>();
        let starts = self.widths.iter().scan(0, |start, width| {
            let part = *start;
            *start += units * width;
            Some((part, *width))
        });
        let width = starts.filter(|(start, _)| *start == places.start).map(|(_, width)| width);
        // A layer without named parts is one part.
        let widths = match (places.len() == self.len(), width.last()) {
            (true, _) | (_, None) => self.widths.clone(),
            (false, Some(width)) => vec![width],
        };
        Self { widths, ..self.clone() }
    }

    /// How many groups there are, in all shards.
    pub(crate) fn all_groups(&self) -> usize {
        self.groups
    }

    /// The number of this shard's first group.
    pub(crate) fn first_group(&self) -> usize {
        self.own_groups().start
    }

    /// The places of this shard, as ranges of the whole dimension, one for each part.
    pub fn own(&self) -> Vec<Range<usize>> {
        let groups = self.own_groups();
        self.places(self.before(groups.start)..self.before(groups.end), self.units)
    }

    /// The places of each group of this shard, as ranges of the shard's own places, one for each part.
    pub fn groups(&self) -> Vec<Vec<Range<usize>>> {
        let own = self.own_groups();
        let first = self.before(own.start);
        let count = self.before(own.end) - first;
        let units = |group| self.before(group) - first..self.before(group + 1) - first;
        own.map(|group| self.places(units(group), count)).collect()
    }

    /// The sum of what each of this shard's groups has, added up by the tree. [`Team::sum`](crate::Team::sum)
    /// adds the sums of all shards.
    ///
    /// # Errors
    /// When there are not as many parts as groups, or they have several shapes.
    pub fn sum_of_groups(&self, mut parts: Vec<Tensor>) -> Result<Tensor> {
        let groups = self.own_groups().len();
        if parts.len() != groups {
            return Err(Error::new(format!(
                "there are {} parts of a sum, and this shard has {groups} groups: give one for each",
                parts.len()
            )));
        }
        if let Some(other) = parts.iter().find(|part| part.shape() != parts[0].shape()) {
            return Err(Error::shape(parts[0].shape().to_string(), other.shape()));
        }
        add_by_tree(&mut parts)?;
        Ok(parts.swap_remove(0))
    }

    /// As [`Division::groups`], of these places of the shard only, which count from the first of them.
    pub(crate) fn groups_within(&self, places: &Range<usize>) -> Vec<Vec<Range<usize>>> {
        let within = |range: Range<usize>| {
            let (start, end) = (range.start.max(places.start), range.end.min(places.end));
            (start < end).then(|| start - places.start..end - places.start)
        };
        let groups = self.groups().into_iter();
        groups.map(|ranges| ranges.into_iter().filter_map(within).collect()).collect()
    }

    /// This shard's part of `rows` rows, in as many groups as this dimension has: ranges that count from the
    /// shard's first row.
    pub(crate) fn groups_of_rows(&self, rows: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (own, groups) = (self.own_groups(), self.groups);
        let before = move |group: usize| group * rows / groups;
        let first = before(own.start);
        own.map(move |group| before(group) - first..before(group + 1) - first)
    }

    /// The numbers of this shard's groups.
    fn own_groups(&self) -> Range<usize> {
        let each = self.groups / self.shard.of as usize;
        let first = self.shard.index as usize * each;
        first..first + each
    }

    /// The units before a group.
    fn before(&self, group: usize) -> usize {
        group * self.units / self.groups
    }

    /// The places of some units, where each part has `count` units.
    fn places(&self, units: Range<usize>, count: usize) -> Vec<Range<usize>> {
        let parts = self.widths.iter().scan(0, |start, width| {
            let part = *start;
            *start += count * width;
            Some(part + units.start * width..part + units.end * width)
        });
        parts.collect()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a group may have one range")]
mod tests {
    use super::*;

    fn sharding(groups: u32, index: u32, of: u32) -> Sharding {
        Sharding::new(groups, Shard { index, of }).expect("they fit")
    }

    #[test]
    fn shards_have_all_places_once_and_their_groups_are_those_of_the_whole() {
        for (units, widths) in [(8, &[3][..]), (13, &[1]), (9, &[6, 2, 2]), (100, &[1, 1])] {
            for groups in [1, 2, 4, 8] {
                let whole = Division::new(sharding(groups, 0, 1), units, widths).expect("it fits");
                for of in [1, 2, 4, 8].into_iter().filter(|of| *of <= groups) {
                    let (mut places, mut all_groups) = (vec![0; whole.len()], Vec::new());
                    for index in 0..of {
                        let one = Division::new(sharding(groups, index, of), units, widths).expect("it fits");
                        let own: Vec<usize> = one.own().into_iter().flatten().collect();
                        own.iter().for_each(|place| places[*place] += 1);
                        for ranges in one.groups() {
                            let group: Vec<usize> = ranges.into_iter().flatten().map(|at| own[at]).collect();
                            all_groups.push(group);
                        }
                    }
                    assert!(places.iter().all(|times| *times == 1), "{units} {widths:?} {groups} {of}");
                    let expected: Vec<Vec<usize>> = whole
                        .groups()
                        .into_iter()
                        .map(|group| group.into_iter().flatten().collect())
                        .collect();
                    assert_eq!(all_groups, expected, "{units} {widths:?} {groups} {of}");
                }
            }
        }
    }

    #[test]
    fn a_dimension_has_no_more_groups_than_units() {
        let few = Division::new(sharding(8, 0, 1), 3, &[4]).expect("it fits");
        assert_eq!(few.groups(), [vec![0..4], vec![4..12]]);
        let error = Division::new(sharding(8, 0, 4), 3, &[4]).expect_err("four shards of three units");
        assert!(error.to_string().contains("at most 2 shards"), "{error}");
    }
}
