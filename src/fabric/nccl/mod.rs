//! Tensors between GPUs of different processes, by NCCL.

mod ids;
mod joint;
mod pairs;

use std::sync::Arc;
use std::time::Duration;

use pipewright_stages::Tensor;

use super::wire::described_numbers;
use super::{Alarm, Carrier, End, KeepGoing, Taken, TensorForm, Transport, WireFrame};
use crate::error::{Error, FabricError, Result};
use crate::id::WorldRank;
use joint::Joint;

pub use pairs::GpuPairs;

/// The same ends, with a carrier: NCCL moves tensors between these GPUs. All processes call it with the ends
/// of their own ranks. `share` gives every process's block to all. `deadline` limits the time to connect.
///
/// # Errors
/// When two ranks of a process would need one GPU, when NCCL is missing, when CUDA waits for each launch, or
/// when another process fails.
pub(super) fn carry<W: WireFrame>(
    ends: Vec<End<W>>,
    pairs: GpuPairs,
    deadline: Duration,
    share: impl FnOnce(Result<Vec<u8>>) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<End<W>>> {
    if pairs.is_empty() || W::as_tensor().is_none() {
        return Ok(ends);
    }
    let own: Vec<WorldRank> = ends.iter().map(Transport::rank).collect();
    let ids = ids::ids(&pairs.communicators(), &own, share)?;
    let pairs = Arc::new(pairs);
    let carried = |end: End<W>| {
        let Some(form) = W::as_tensor() else {
            return end;
        };
        let rank = end.rank();
        let mut joints =
            (pairs.communicators().into_iter().zip(&ids)).map(|(members, id)| Joint::of(rank, members, *id));
        let (wires, groups): (_, Vec<Joint>) = (joints.next().flatten(), joints.flatten().collect());
        if wires.is_none() && groups.is_empty() {
            return end;
        }
        end.carried_by(Box::new(Nccl {
            rank,
            form,
            pairs: Arc::clone(&pairs),
            deadline,
            partners: Vec::new(),
            wires,
            groups,
        }))
    };
    Ok(ends.into_iter().map(carried).collect())
}

/// One rank's carrier by NCCL.
struct Nccl<W> {
    rank: WorldRank,
    form: TensorForm<W>,
    pairs: Arc<GpuPairs>,
    deadline: Duration,
    /// Members with which it exchanges wires besides those in the schedule.
    partners: Vec<WorldRank>,
    /// Its part in the communicator for wires.
    wires: Option<Joint>,
    /// Its parts in the communicators of the ranks with the same stages in other replicas, and of the shards.
    groups: Vec<Joint>,
}

impl<W> Nccl<W> {
    /// The members that it sends wires to (`0`) or receives them from (`1`), each once.
    fn peers(&self, joint: &Joint, end: usize) -> Vec<u32> {
        let partners = self.partners.iter().copied();
        joint.numbers(self.pairs.peers(self.rank, end).chain(partners))
    }

    /// Adds to an error the ranks between which it happened.
    fn at(&self, peer: Option<WorldRank>) -> impl Fn(Error) -> Error + use<W> {
        let rank = self.rank;
        move |error| match error {
            Error::Stage(error) => Error::Stage(error.at(&match peer {
                Some(peer) => format!("rank {rank}, with rank {peer}"),
                None => format!("rank {rank}"),
            })),
            other => other,
        }
    }

    /// Its part in the communicator with which it trades with a rank.
    fn group_of(&self, peer: WorldRank) -> Option<&Joint> {
        self.groups.iter().find(|joint| joint.number(peer).is_some())
    }

    /// The part, and the rank's number in its communicator.
    fn in_group(&self, peer: WorldRank) -> Result<(&Joint, u32)> {
        let joint = self.group_of(peer);
        joint.and_then(|joint| Some((joint, joint.number(peer)?))).ok_or_else(|| {
            FabricError::failed(format!(
                "rank {} announces a wire to rank {peer}, but NCCL does not connect the two",
                self.rank
            ))
            .into()
        })
    }
}

impl<W: WireFrame> Carrier<W> for Nccl<W> {
    fn start(&mut self, partners: &[WorldRank], alarm: &Alarm, keep_going: KeepGoing<'_>) -> Result<()> {
        let (deadline, at) = (self.deadline, self.at(None));
        if let Some(mut joint) = self.wires.take() {
            let partners = partners.iter().copied();
            self.partners = partners.filter(|rank| joint.number(*rank).is_some()).collect();
            let (to, from) = (self.peers(&joint, 0), self.peers(&joint, 1));
            let started = joint.start([&to, &from], deadline, alarm, &mut *keep_going);
            started.map_err(&at)?;
            self.wires = Some(joint);
        }
        for joint in &mut self.groups {
            let own = joint.member();
            let others: Vec<u32> = (0..own.of).filter(|number| *number != own.number).collect();
            let started = joint.start([&others, &others], deadline, alarm, &mut *keep_going);
            started.map_err(&at)?;
        }
        Ok(())
    }

    fn reaches(&self, partner: WorldRank) -> bool {
        self.partners.contains(&partner)
    }

    fn trades_with(&self, peer: WorldRank) -> bool {
        self.group_of(peer).is_some()
    }

    fn send(&mut self, peer: WorldRank, wire: &W) -> Result<bool> {
        let is_connected = self.reaches(peer) || self.pairs.has([self.rank, peer]);
        let Some(joint) = self.wires.as_ref().filter(|_| is_connected) else {
            return Ok(false);
        };
        let wire: &Tensor = (self.form.tensor)(wire);
        let Some(to) = joint.number(peer).filter(|_| wire.place().device == joint.member().device) else {
            return Ok(false);
        };
        let sent = joint.communicator().send(wire, to).map_err(Error::Stage);
        sent.map_err(self.at(Some(peer)))?;
        Ok(true)
    }

    fn receive(&mut self, peer: WorldRank, description: &[u8]) -> Result<W> {
        let joint = self.wires.as_ref();
        let from = joint.and_then(|joint| Some((joint, joint.number(peer)?)));
        let Some(((shape, dtype), (joint, from))) = described_numbers(description).zip(from) else {
            let (from, to) = (peer, self.rank);
            return Err(FabricError::failed(format!(
                "rank {from} announces a wire to rank {to}, but NCCL does not connect the two"
            ))
            .into());
        };
        let received = joint.communicator().receive(shape.dims(), dtype, from);
        let received = received.map_err(Error::Stage);
        received.map(self.form.wire).map_err(self.at(Some(peer)))
    }

    fn trade(&mut self, given: &[(WorldRank, W)], taken: &[Taken]) -> Result<Vec<W>> {
        let peers = given.iter().map(|(peer, _)| peer).chain(taken.iter().map(|(peer, ..)| peer));
        let Some(peer) = peers.into_iter().next() else {
            return Ok(Vec::new());
        };
        let (joint, _) = self.in_group(*peer)?;
        let number = |peer| self.in_group(peer).map(|(_, number)| number);
        let given = given.iter().map(|(to, wire)| Ok((number(*to)?, (self.form.tensor)(wire))));
        let given: Vec<(u32, &Tensor)> = given.collect::<Result<_>>()?;
        let taken = taken.iter().map(|(from, shape, dtype)| Ok((number(*from)?, *shape, *dtype)));
        let taken: Vec<_> = taken.collect::<Result<_>>()?;
        let traded = joint.communicator().exchange(&given, &taken);
        let traded = traded.map_err(Error::Stage).map_err(self.at(None))?;
        Ok(traded.into_iter().map(self.form.wire).collect())
    }

    fn await_trades(&mut self) -> Result<()> {
        // All trades have one queue.
        match self.groups.first() {
            Some(joint) => Ok(joint.communicator().await_exchanges()?),
            None => Ok(()),
        }
    }

    fn check(&mut self) -> Result<()> {
        for joint in self.wires.iter().chain(&self.groups) {
            let checked = joint.communicator().check().map_err(Error::Stage);
            checked.map_err(self.at(None))?;
        }
        Ok(())
    }
}
