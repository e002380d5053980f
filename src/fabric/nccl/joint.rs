//! A communicator as one rank has it.

use std::time::Duration;

use pipewright_stages::nccl::{Communicator, Member, UniqueId};

use super::ids::Members;
use crate::error::Result;
use crate::fabric::{Alarm, KeepGoing};
use crate::id::WorldRank;

/// One rank's part in a communicator.
pub(super) struct Joint {
    id: UniqueId,
    member: Member,
    /// The members' ranks, by number.
    ranks: Vec<WorldRank>,
    /// `None` before the start.
    communicator: Option<Communicator>,
}

impl Joint {
    /// The part of a rank, if it is one of these members.
    pub(super) fn of(rank: WorldRank, members: &Members, id: Option<UniqueId>) -> Option<Self> {
        let place = members.iter().position(|(member, _)| *member == rank)?;
        let member = Member { number: place as u32, of: members.len() as u32, device: members[place].1 };
        Some(Self {
            id: id?,
            member,
            ranks: members.iter().map(|(rank, _)| *rank).collect(),
            communicator: None,
        })
    }

    /// The rank's GPU, and its number.
    pub(super) fn member(&self) -> Member {
        self.member
    }

    /// A rank's number.
    pub(super) fn number(&self, rank: WorldRank) -> Option<u32> {
        let found = self.ranks.iter().position(|member| *member == rank);
        found.map(|number| number as u32)
    }

    /// The member numbers of these ranks, each once. Ranks that are no members are left out.
    pub(super) fn numbers(&self, ranks: impl Iterator<Item = WorldRank>) -> Vec<u32> {
        let mut numbers: Vec<u32> = ranks.filter_map(|rank| self.number(rank)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Joins the others, and connects to those that it sends `to` and receives `from`. All members call it
    /// at about the same time.
    pub(super) fn start(
        &mut self,
        [to, from]: [&[u32]; 2],
        deadline: Duration,
        alarm: &Alarm,
        keep_going: KeepGoing<'_>,
    ) -> Result<()> {
        let communicator = Communicator::join(&self.id, self.member, deadline, &mut *keep_going)?;
        let aborter = communicator.aborter();
        alarm.then(move || aborter.abort());
        communicator.connect(to, from, deadline, keep_going)?;
        self.communicator = Some(communicator);
        Ok(())
    }

    /// The communicator.
    pub(super) fn communicator(&self) -> &Communicator {
        self.communicator.as_ref().expect("started before the first wire")
    }
}
