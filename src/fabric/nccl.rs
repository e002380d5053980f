//! Tensors between GPUs of different processes, by NCCL.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pipewright_stages::devices::Library;
use pipewright_stages::nccl::{Communicator, Member, UniqueId};
use pipewright_stages::{Device, Place, Tensor};

use super::payload::GoingOn;
use super::wire::described_numbers;
use super::{Alarm, ChannelTransport, Payload, Peers, Transport, WireFrame, World};
use crate::error::{Error, Result};
use crate::id::Rank;

/// The links from GPU to GPU between processes. The ranks at their ends are in one communicator, and perhaps some guests: ranks that
/// no schedule links, and tied parameters may.
#[derive(Debug, Default)]
pub(crate) struct GpuLinks {
    /// Each once: the sending and the receiving rank.
    links: Vec<[Rank; 2]>,
    /// The ranks at their ends, in order, and the GPU of each.
    members: Vec<(Rank, Device)>,
}

impl GpuLinks {
    /// These links, each of which may stand there several times. `places` are those of all ranks.
    pub(crate) fn new(mut links: Vec<[Rank; 2]>, places: &[Place]) -> Self {
        links.sort_unstable();
        links.dedup();
        let mut ends = links.concat();
        ends.sort_unstable();
        ends.dedup();
        let members = ends.into_iter().map(|rank| (rank, places[rank.index()].device));
        Self {
            members: members.collect(),
            links,
        }
    }

    /// The same with two ranks more, when there are links and each of the two is on a GPU of which NCCL has no other rank in its process.
    pub(crate) fn with_guests(mut self, guests: [Rank; 2], places: &[Place], ranks_each: u32) -> Self {
        let process = |rank: Rank| rank.0 / ranks_each;
        let device = |rank: Rank| places[rank.index()].device;
        let is_free = |guest: Rank| {
            let taken = |member: &(Rank, Device)| {
                member.0 != guest && process(member.0) == process(guest) && member.1 == device(guest)
            };
            device(guest) != Device::Cpu && !self.members.iter().any(taken)
        };
        let far = process(guests[0]) != process(guests[1]);
        if far && !self.links.is_empty() && guests.into_iter().all(is_free) {
            self.members.extend(guests.map(|guest| (guest, device(guest))));
            self.members.sort_unstable_by_key(|member| member.0);
            self.members.dedup();
        }
        self
    }

    /// A rank's number in the communicator.
    fn number(&self, rank: Rank) -> Option<u32> {
        let found = self.members.iter().position(|(member, _)| *member == rank);
        found.map(|number| number as u32)
    }

    /// The ranks that one sends to (`0`), or receives from (`1`).
    fn peers(&self, rank: Rank, end: usize) -> impl Iterator<Item = Rank> {
        let links = self.links.iter().filter(move |link| link[end] == rank);
        links.map(move |link| link[1 - end])
    }

    /// What the communicator begins with, made by the process that holds its first member. All processes call it.
    fn id(&self, own: &Range<u32>, peers: &Peers) -> Result<UniqueId> {
        let blocks = peers.share("starting NCCL", self.own_part(own))?;
        let bytes = blocks
            .concat()
            .try_into()
            .map_err(|_| Error::Stopped(": the processes do not agree which ranks NCCL links".to_owned()))?;
        Ok(UniqueId::from_bytes(bytes))
    }

    fn own_part(&self, own: &Range<u32>) -> Result<Vec<u8>> {
        let mut mine = self.members.iter().filter(|(rank, _)| own.contains(&rank.0));
        let mut seen: Vec<(Rank, Device)> = Vec::new();
        for &(rank, device) in mine.by_ref() {
            if let Some((other, _)) = seen.iter().find(|(_, taken)| *taken == device) {
                return Err(Error::Invalid(format!(
                    "ranks {other} and {rank} of one process are both on {device} and both have links to other processes: NCCL takes one \
                     rank a GPU; start more processes, with fewer ranks each, or give these ranks a GPU each (pipeline.devices)"
                )));
            }
            seen.push((rank, device));
        }
        if !seen.is_empty() {
            Library::Driver.require()?;
        }
        match (seen.first(), self.members.first()) {
            (None, _) => Ok(Vec::new()),
            (mine, first) if mine == first => Ok(UniqueId::make()?.to_bytes().to_vec()),
            _ => Ok(Library::Nccl.require().map(|()| Vec::new())?),
        }
    }
}

/// As [`World::link`]; wires between GPUs of different processes go over these links by NCCL, if they can.
pub(crate) fn link<W: WireFrame>(
    world: World,
    ranks: u32,
    threads: usize,
    room: usize,
    gpus: GpuLinks,
) -> Result<(Vec<ChannelTransport<W>>, Peers)> {
    let deadline = world.deadline();
    let (ends, peers) = world.link(ranks, threads, room)?;
    let Some(carrier) = W::carrier().filter(|_| !gpus.links.is_empty()) else {
        return Ok((ends, peers));
    };
    let own = ends[0].rank().0..ends[0].rank().0 + ends.len() as u32;
    let (id, gpus) = (gpus.id(&own, &peers)?, Arc::new(gpus));
    let carried = |end: ChannelTransport<W>| {
        let rank = end.rank();
        let Some(number) = gpus.number(rank) else {
            return end;
        };
        end.carried_by(carrier(Nccl {
            rank,
            number,
            gpus: Arc::clone(&gpus),
            id,
            deadline,
            partners: Vec::new(),
            communicator: None,
        }))
    };
    Ok((ends.into_iter().map(carried).collect(), peers))
}

/// One rank's part in transfers by NCCL.
#[derive(Debug)]
pub struct Nccl {
    rank: Rank,
    number: u32,
    gpus: Arc<GpuLinks>,
    id: UniqueId,
    deadline: Duration,
    /// Those members that it has links with whatever the schedule does.
    partners: Vec<Rank>,
    /// From the start on.
    communicator: Option<Communicator>,
}

impl Nccl {
    fn device(&self) -> Device {
        self.gpus.members[self.number as usize].1
    }

    /// The numbers of those that it sends to (`0`), or receives from (`1`), each once.
    fn peers(&self, end: usize) -> Vec<u32> {
        let peers = self
            .gpus
            .peers(self.rank, end)
            .chain(self.partners.iter().copied());
        let mut numbers: Vec<u32> = peers.filter_map(|peer| self.gpus.number(peer)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn communicator(&self) -> &Communicator {
        self.communicator.as_ref().expect("started before the first wire")
    }

    /// A failure with the ranks it was between.
    fn at(&self, peer: Option<Rank>) -> impl Fn(Error) -> Error {
        let rank = self.rank;
        move |error| match error {
            Error::Stage(error) => Error::Stage(error.at(&match peer {
                Some(peer) => format!("rank {rank}, with rank {peer}"),
                None => format!("rank {rank}"),
            })),
            other => other,
        }
    }
}

impl Payload<Tensor> for Nccl {
    fn start(&mut self, partners: &[Rank], alarm: &Alarm, going_on: GoingOn<'_>) -> Result<()> {
        let partners = partners.iter().copied();
        self.partners = partners
            .filter(|rank| self.gpus.number(*rank).is_some())
            .collect();
        let member = Member {
            number: self.number,
            of: self.gpus.members.len() as u32,
            device: self.device(),
        };
        let communicator = Communicator::join(&self.id, member, self.deadline, &mut *going_on);
        let communicator = communicator.map_err(self.at(None))?;
        let aborter = communicator.aborter();
        alarm.then(move || aborter.abort());
        let (to, from) = (self.peers(0), self.peers(1));
        communicator
            .connect(&to, &from, self.deadline, going_on)
            .map_err(self.at(None))?;
        self.communicator = Some(communicator);
        Ok(())
    }

    fn reaches(&self, partner: Rank) -> bool {
        self.partners.contains(&partner)
    }

    fn send(&mut self, peer: Rank, wire: &Tensor, going_on: GoingOn<'_>) -> Result<bool> {
        let linked = self.reaches(peer) || self.gpus.links.contains(&[self.rank, peer]);
        let Some(to) = self.gpus.number(peer).filter(|_| linked) else {
            return Ok(false);
        };
        if wire.place().device != self.device() {
            return Ok(false);
        }
        let sent = self.communicator().send(wire, to, going_on);
        sent.map_err(self.at(Some(peer)))?;
        Ok(true)
    }

    fn recv(&mut self, peer: Rank, description: &[u8], going_on: GoingOn<'_>) -> Result<Tensor> {
        let known = described_numbers(description).zip(self.gpus.number(peer));
        let Some(((shape, dtype), from)) = known else {
            return Err(Error::Invalid(format!(
                "rank {peer} announces what rank {} cannot receive from it",
                self.rank
            )));
        };
        let received = self.communicator().receive(shape.dims(), dtype, from, going_on);
        received.map_err(self.at(Some(peer)))
    }

    fn check(&mut self) -> Result<()> {
        let checked = self.communicator().check().map_err(Error::Stage);
        checked.map_err(self.at(None))
    }
}
