//! What of a linear layer is divided among shards.

use std::ops::Range;

use crate::cpu::depth::DepthGroups;
use crate::shards::{Division, Team};

/// What of a linear layer is divided among shards.
#[derive(Debug)]
pub(crate) struct Divided {
    pub(crate) side: Side,
    pub(crate) division: Division,
    /// The shards, if there are several.
    pub(crate) team: Option<Team>,
}

/// Which dimension is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Inputs,
    Outputs,
}

impl Divided {
    /// A division of this dimension, before the shards are known.
    pub(crate) fn new(side: Side, division: &Division) -> Self {
        Self { side, division: division.clone(), team: None }
    }

    /// The shards, if there are several and this dimension is divided.
    pub(crate) fn team_of(&self, side: Side) -> Option<&Team> {
        self.team.as_ref().filter(|_| self.side == side)
    }

    /// The groups of the inputs and of the outputs in which products over them are added up.
    pub(crate) fn depth_groups(&self) -> [Option<DepthGroups>; 2] {
        let groups = self.groups_of(&self.division.groups());
        match self.side {
            Side::Inputs => [groups, None],
            Side::Outputs => [None, groups],
        }
    }

    /// As [`Divided::depth_groups`], of an adapter of these outputs.
    pub(crate) fn depth_groups_within(&self, outputs: &Range<usize>) -> [Option<DepthGroups>; 2] {
        match self.side {
            Side::Inputs => self.depth_groups(),
            Side::Outputs => [None, self.groups_of(&self.division.groups_within(outputs))],
        }
    }

    /// In a model with one group, products are added up as they are in a layer that is not divided.
    fn groups_of(&self, groups: &[Vec<Range<usize>>]) -> Option<DepthGroups> {
        match self.division.all_groups() {
            1 => None,
            _ => DepthGroups::new(groups),
        }
    }
}
