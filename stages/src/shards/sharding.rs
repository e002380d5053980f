//! Which shard, of how many, and in how many groups what shards divide is added up.

use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result};

/// The part of a tensor that a parameter holds. A tensor can be divided among several ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Shard {
    /// The number of this part, from 0.
    pub index: u32,
    /// The number of parts.
    pub of: u32,
}

impl Shard {
    /// The whole tensor: part 0 of 1.
    pub const WHOLE: Self = Self { index: 0, of: 1 };
}

impl Default for Shard {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.index, self.of)
    }
}

/// In how many groups the layers of a model add up what is divided among shards, and which shard is meant.
///
/// ```
/// use pipewright_stages::{Shard, Sharding};
///
/// let sharding = Sharding::new(4, Shard { index: 1, of: 2 })?;
/// assert_eq!(sharding.groups(), 4);
/// assert!(Sharding::new(6, Shard::WHOLE).is_err(), "no power of two");
/// assert!(Sharding::new(2, Shard { index: 0, of: 4 }).is_err(), "a shard without a group");
/// # Ok::<(), pipewright_stages::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharding {
    pub(super) groups: u32,
    pub(super) shard: Shard,
}

impl Default for Sharding {
    /// One group in one shard.
    fn default() -> Self {
        Self { groups: 1, shard: Shard::WHOLE }
    }
}

impl Sharding {
    /// A shard of a model with this many groups.
    ///
    /// # Errors
    /// When the number of groups is no power of two, or the number of shards does not divide it.
    pub fn new(groups: u32, shard: Shard) -> Result<Self> {
        if !groups.is_power_of_two() {
            let [below, above] = powers_beside(groups);
            return Err(Error::new(format!(
                "{groups} shard groups are no power of two: choose {below} or {above}"
            )));
        }
        if !shard.of.is_power_of_two() || shard.of > groups {
            let fitting: Vec<String> = (0..=groups.ilog2()).map(|power| (1 << power).to_string()).collect();
            let plural = |count: u32| if count == 1 { "" } else { "s" };
            return Err(Error::new(format!(
                "{} shards do not divide {groups} shard group{}: choose {} shard{}, or {} shard groups",
                shard.of,
                plural(groups),
                fitting.join(", "),
                plural(groups),
                shard.of.next_power_of_two().max(groups)
            )));
        }
        assert!(shard.index < shard.of, "{shard}: the index must be below the number of shards");
        Ok(Self { groups, shard })
    }

    /// In how many groups a dimension is divided, unless it has fewer units. It is a power of two. A sum over
    /// such a dimension is made in each group from zero, then the groups are added by a binary tree: group 0
    /// and 1, group 2 and 3, then these two sums, and so on. A shard has consecutive groups, equally many in
    /// each.
    pub fn groups(self) -> u32 {
        self.groups
    }

    /// Which shard it is.
    pub fn shard(self) -> Shard {
        self.shard
    }

    /// How many groups a shard has.
    pub(crate) fn own_groups(self) -> usize {
        (self.groups / self.shard.of) as usize
    }

    /// In how many groups this many places are divided: as many as there are, or as many as there are places,
    /// down to a power of two.
    pub(crate) fn groups_of(self, places: usize) -> usize {
        places.checked_ilog2().map_or(1, |power| (1 << power).min(self.groups as usize))
    }

    /// The groups of this shard's part of `rows` rows: for each, its number among the shard's groups, and its
    /// rows, which count from the shard's first.
    pub(crate) fn groups_of_rows(self, rows: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (groups, shards) = (self.groups_of(rows), self.shard.of as usize);
        let count = groups / shards;
        let first = self.shard.index as usize * count;
        let before = move |group: usize| group * rows / groups - first * rows / groups;
        (0..count).map(move |group| {
            let rows = before(first + group)..before(first + group + 1);
            (group * (self.own_groups() / count), rows)
        })
    }
}

/// The powers of two below and above a number.
fn powers_beside(number: u32) -> [u32; 2] {
    let above = number.checked_next_power_of_two().unwrap_or(1 << 31).max(1);
    [(above / 2).max(1), above]
}
