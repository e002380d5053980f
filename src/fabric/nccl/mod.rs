//! Tensors between GPUs of different processes, by NCCL.

mod ids;
mod joint;
mod pairs;

use std::sync::Arc;
use std::time::Duration;

use pipewright_stages::Tensor;

use super::wire::described_numbers;
use super::{Alarm, Carrier, End, KeepGoing, TensorForm, Transport, WireFrame};
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
        let (wires, replicas) = (joints.next().flatten(), joints.flatten().next());
        if wires.is_none() && replicas.is_none() {
            return end;
        }
        end.carried_by(Box::new(Nccl {
            rank,
            form,
            pairs: Arc::clone(&pairs),
            deadline,
            partners: Vec::new(),
            wires,
            replicas,
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
    /// Its part in the communicator of the ranks with the same stages in other replicas.
    replicas: Option<Joint>,
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

    fn numbers_of(&self, ranks: impl Iterator<Item = WorldRank>) -> Result<Vec<u32>> {
        let number = |to| {
            let number = self.replicas.as_ref().and_then(|joint| joint.number(to));
            number.ok_or_else(|| {
                FabricError::failed(format!(
                    "rank {} announces a wire to rank {to}, but NCCL does not connect the two",
                    self.rank
                ))
                .into()
            })
        };
        ranks.map(number).collect()
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
        if let Some(joint) = &mut self.replicas {
            let own = joint.member();
            let others: Vec<u32> = (0..own.of).filter(|number| *number != own.number).collect();
            let started = joint.start([&others, &others], deadline, alarm, keep_going);
            started.map_err(at)?;
        }
        Ok(())
    }

    fn reaches(&self, partner: WorldRank) -> bool {
        self.partners.contains(&partner)
    }

    fn trades_with(&self, peer: WorldRank) -> bool {
        let joint = self.replicas.as_ref();
        joint.is_some_and(|joint| joint.number(peer).is_some())
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

    fn trade(&mut self, given: &[(WorldRank, W)], taken: &[(WorldRank, usize)]) -> Result<Vec<W>> {
        let to = self.numbers_of(given.iter().map(|(peer, _)| *peer))?;
        let from = self.numbers_of(taken.iter().map(|(peer, _)| *peer))?;
        let Some(joint) = &self.replicas else {
            return Ok(Vec::new());
        };
        let tensors = given.iter().map(|(_, wire)| (self.form.tensor)(wire));
        let given: Vec<(u32, &Tensor)> = to.into_iter().zip(tensors).collect();
        let taken: Vec<(u32, usize)> = from.into_iter().zip(taken.iter().map(|of| of.1)).collect();
        let traded = joint.communicator().exchange(&given, &taken);
        let traded = traded.map_err(Error::Stage).map_err(self.at(None))?;
        Ok(traded.into_iter().map(self.form.wire).collect())
    }

    fn await_trades(&mut self) -> Result<()> {
        match &self.replicas {
            Some(joint) => Ok(joint.communicator().await_exchanges()?),
            None => Ok(()),
        }
    }

    fn check(&mut self) -> Result<()> {
        for joint in self.wires.iter().chain(&self.replicas) {
            let checked = joint.communicator().check().map_err(Error::Stage);
            checked.map_err(self.at(None))?;
        }
        Ok(())
    }
}
