//! How the replicas come to the same weights: one strategy, chosen when the ranks are connected.

mod access;
mod bucket_sum;
mod gpus;
mod host;
mod lending;
mod reduction;
mod served;
mod server;
mod share;
mod slices;

pub(crate) use access::WINDOW;
pub(in crate::worker) use access::{ReplicaAccess, Topic};
pub(in crate::worker) use gpus::{BUCKET, GpuSums};
pub(in crate::worker) use host::HostSums;
pub(in crate::worker) use lending::Lending;
pub use server::Staleness;
pub(in crate::worker) use server::{Server, Settled};
pub(in crate::worker) use share::ReplicaShare;
pub(in crate::worker) use slices::{Slices, Span};

use pipewright_stages::{Device, Stage};

use super::progress::WaitsFor;
use crate::error::Result;
use crate::fabric::Tag;
use crate::id::{StageId, WorldRank};

/// How the replicas come to the same weights.
#[derive(Debug)]
pub(in crate::worker) enum Strategy {
    /// There is one replica.
    Alone,
    /// The host adds up gradients, and exchanges new weights.
    Host(HostSums),
    /// Gradients and new weights stay on GPUs.
    Gpus(GpuSums),
    /// A parameter server. `None` while no weight is stale: from a settlement to the next step.
    Server(Option<Box<Server>>),
}

impl Strategy {
    /// Whether weights may be stale now.
    pub(in crate::worker) fn is_serving(&self) -> bool {
        matches!(self, Self::Server(Some(_)))
    }

    /// How many steps' updates the weights of the step that begins lack.
    pub(in crate::worker) fn count_staleness(&mut self, share: &ReplicaShare) -> u32 {
        match self {
            Self::Server(Some(server)) => server.count_staleness(share.replica),
            _ => 0,
        }
    }

    /// The gradients of a stage are complete. Their sum over the replicas begins.
    pub(in crate::worker) fn reduce<S: Stage>(
        &mut self,
        stage: StageId,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<()> {
        match self {
            Self::Host(host) => host.begin(stage, access),
            Self::Gpus(gpus) => gpus.begin(stage, access),
            Self::Server(Some(server)) => server.push(stage, access),
            Self::Alone | Self::Server(None) => Ok(()),
        }
    }

    /// Does all that it can without waiting. Returns whether it did anything.
    pub(in crate::worker) fn progress<S: Stage>(
        &mut self,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<bool> {
        match self {
            Self::Host(host) => host.progress(access),
            Self::Server(Some(server)) => server.progress(access),
            Self::Alone | Self::Gpus(_) | Self::Server(None) => Ok(false),
        }
    }

    /// A wire, if it comes while the rank has something to do for the replicas.
    pub(in crate::worker) fn progress_until<S: Stage>(
        &mut self,
        (peer, tag): (WorldRank, Tag),
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<Option<S::Wire>> {
        // On a GPU, an end may be unable to see whether a wire has come.
        while self.is_busy() && access.device() == Device::Cpu {
            if let Some(wire) = access.transport.poll(peer, tag)? {
                return Ok(Some(wire));
            }
            if !self.progress(access)? {
                access.listen(WaitsFor::Rank(peer))?;
            }
        }
        Ok(None)
    }

    /// Whether [`Strategy::progress`] may have something to do.
    fn is_busy(&self) -> bool {
        match self {
            Self::Host(host) => host.is_reducing(),
            Self::Server(server) => server.is_some(),
            Self::Alone | Self::Gpus(_) => false,
        }
    }

    /// Waits until the gradients of one more stage are added up.
    pub(in crate::worker) fn finish_one<S: Stage>(
        &mut self,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<()> {
        match self {
            Self::Host(host) => host.finish_one(access),
            Self::Alone | Self::Gpus(_) | Self::Server(_) => {
                unreachable!("only where the host adds up gradients does a rank lend their memory")
            }
        }
    }

    /// Waits until the gradients of all stages are added up.
    pub(in crate::worker) fn finish<S: Stage>(&mut self, access: &mut ReplicaAccess<'_, S>) -> Result<()> {
        match self {
            Self::Host(host) => host.finish(access),
            Self::Gpus(gpus) => gpus.finish(access),
            Self::Alone | Self::Server(_) => Ok(()),
        }
    }

    /// Sends the weights that this replica has updated to all others, and receives theirs.
    pub(in crate::worker) fn exchange_weights<S: Stage>(
        &mut self,
        access: &mut ReplicaAccess<'_, S>,
    ) -> Result<()> {
        match self {
            Self::Host(host) => host.exchange_weights(access),
            Self::Gpus(gpus) => gpus.exchange_weights(access),
            Self::Alone | Self::Server(_) => Ok(()),
        }
    }
}
