//! Tensors between GPUs of different processes, by NCCL.

mod pairs;

use std::sync::Arc;
use std::time::Duration;

use pipewright_stages::nccl::{Communicator, Member, UniqueId};
use pipewright_stages::{Device, Tensor};

use super::wire::described_numbers;
use super::{Alarm, Carrier, End, KeepGoing, TensorForm, Transport, WireFrame};
use crate::error::{Error, FabricError, Result};
use crate::id::WorldRank;

pub use pairs::GpuPairs;

/// The same ends, with a carrier: NCCL moves tensors between these pairs of GPUs. All processes call it with
/// the ends of their own ranks. `share` gives every process's block to all. `deadline` limits the time to
/// connect.
///
/// # Errors
/// When two ranks of a process would need one GPU, when NCCL is missing, or when another process fails.
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
    let (id, pairs) = (pairs.id(&own, share)?, Arc::new(pairs));
    let carried = |end: End<W>| {
        let rank = end.rank();
        let (Some(number), Some(form)) = (pairs.number(rank), W::as_tensor()) else {
            return end;
        };
        end.carried_by(Box::new(Nccl {
            rank,
            number,
            form,
            pairs: Arc::clone(&pairs),
            id,
            deadline,
            partners: Vec::new(),
            communicator: None,
        }))
    };
    Ok(ends.into_iter().map(carried).collect())
}

/// One rank's carrier by NCCL.
struct Nccl<W> {
    rank: WorldRank,
    number: u32,
    form: TensorForm<W>,
    pairs: Arc<GpuPairs>,
    id: UniqueId,
    deadline: Duration,
    /// Members with which it exchanges wires besides those in the schedule.
    partners: Vec<WorldRank>,
    /// `None` before the start.
    communicator: Option<Communicator>,
}

impl<W> Nccl<W> {
    fn device(&self) -> Device {
        self.pairs.device(self.number)
    }

    /// The members that it sends to (`0`) or receives from (`1`), each once.
    fn peers(&self, end: usize) -> Vec<u32> {
        let peers = self
            .pairs
            .peers(self.rank, end)
            .chain(self.partners.iter().copied());
        let mut numbers: Vec<u32> = peers.filter_map(|peer| self.pairs.number(peer)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn communicator(&self) -> &Communicator {
        self.communicator.as_ref().expect("started before the first wire")
    }

    /// Adds to an error the ranks between which it happened.
    fn at(&self, peer: Option<WorldRank>) -> impl Fn(Error) -> Error {
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

impl<W: WireFrame> Carrier<W> for Nccl<W> {
    fn start(&mut self, partners: &[WorldRank], alarm: &Alarm, keep_going: KeepGoing<'_>) -> Result<()> {
        let partners = partners.iter().copied();
        self.partners = partners
            .filter(|rank| self.pairs.number(*rank).is_some())
            .collect();
        let member = Member {
            number: self.number,
            of: self.pairs.count(),
            device: self.device(),
        };
        let communicator = Communicator::join(&self.id, member, self.deadline, &mut *keep_going);
        let communicator = communicator.map_err(self.at(None))?;
        let aborter = communicator.aborter();
        alarm.then(move || aborter.abort());
        let (to, from) = (self.peers(0), self.peers(1));
        communicator
            .connect(&to, &from, self.deadline, keep_going)
            .map_err(self.at(None))?;
        self.communicator = Some(communicator);
        Ok(())
    }

    fn reaches(&self, partner: WorldRank) -> bool {
        self.partners.contains(&partner)
    }

    fn send(&mut self, peer: WorldRank, wire: &W, keep_going: KeepGoing<'_>) -> Result<bool> {
        let is_connected = self.reaches(peer) || self.pairs.has([self.rank, peer]);
        let Some(to) = self.pairs.number(peer).filter(|_| is_connected) else {
            return Ok(false);
        };
        let wire: &Tensor = (self.form.tensor)(wire);
        if wire.place().device != self.device() {
            return Ok(false);
        }
        let sent = self.communicator().send(wire, to, keep_going);
        sent.map_err(self.at(Some(peer)))?;
        Ok(true)
    }

    fn receive(&mut self, peer: WorldRank, description: &[u8], keep_going: KeepGoing<'_>) -> Result<W> {
        let known = described_numbers(description).zip(self.pairs.number(peer));
        let Some(((shape, dtype), from)) = known else {
            let (from, to) = (peer, self.rank);
            return Err(FabricError::Unreceivable { from, to }.into());
        };
        let received = self.communicator().receive(shape.dims(), dtype, from, keep_going);
        received.map(self.form.wire).map_err(self.at(Some(peer)))
    }

    fn check(&mut self) -> Result<()> {
        let checked = self.communicator().check().map_err(Error::Stage);
        checked.map_err(self.at(None))
    }
}
