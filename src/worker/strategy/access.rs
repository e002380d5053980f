//! What a rank uses to work with the same stages in other replicas.

use std::thread;
use std::time::{Duration, Instant};

use pipewright_stages::{Device, Stage, Together};

use super::lending::Lending;
use super::share::ReplicaShare;
use crate::error::Result;
use crate::fabric::{Tag, Transport};
use crate::id::StageId;
use crate::worker::chunk::{Chunk, chunk_of, empty_block};
use crate::worker::finish::agreement::Agreement;
use crate::worker::meter::Meter;
use crate::worker::plan::Plan;
use crate::worker::progress::WaitsFor;

/// How many buckets may be on the way to one replica.
pub(crate) const WINDOW: usize = 4;

/// For this long a rank asks its device without a pause whether it has finished. A longer time would slow
/// other ranks' threads: the driver serves one thread at a time.
const SPIN: Duration = Duration::from_micros(50);

/// After that: the pause between two questions.
const POLL: Duration = Duration::from_micros(20);

/// What a block is about. Its tag has this number, and the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Topic {
    /// A replica's sums of a bucket, for the owner.
    Sums = 1,
    /// The owner's answer.
    Answer,
    /// The owner's new weights.
    Weights,
    /// A replica's part of the optimizer's state, for a checkpoint.
    State,
    /// What a rank tells of a step whose weights may be stale.
    Told,
    /// A shard's part of a parameter, for a checkpoint.
    Shard,
}

impl Topic {
    pub(in crate::worker) fn tag(self, stage: StageId) -> Tag {
        Tag((self as u64) << 32 | u64::from(stage.0))
    }
}

/// What a rank has to work with other replicas.
pub(in crate::worker) struct ReplicaAccess<'a, S: Stage> {
    pub(in crate::worker) chunks: &'a mut [Chunk<S>],
    pub(in crate::worker) plan: &'a Plan,
    pub(in crate::worker) share: &'a ReplicaShare,
    pub(in crate::worker) transport: &'a mut dyn Transport<S::Wire>,
    /// Memory for blocks.
    pub(in crate::worker) blocks: &'a mut Vec<Vec<u8>>,
    pub(in crate::worker) lending: &'a mut Lending,
    pub(in crate::worker) agreement: &'a mut Agreement,
    pub(in crate::worker) together: &'a mut Together,
    pub(in crate::worker) meter: &'a mut Meter,
}

impl<S: Stage> ReplicaAccess<'_, S> {
    /// A stage of the rank.
    pub(super) fn chunk(&mut self, stage: StageId) -> &mut Chunk<S> {
        chunk_of(self.chunks, stage)
    }

    /// The rank's device.
    pub(super) fn device(&self) -> Device {
        self.plan.mesh.place(self.transport.rank()).device
    }

    /// An empty block.
    pub(super) fn block(&mut self) -> Vec<u8> {
        empty_block(self.blocks)
    }

    /// Sends another replica a block about a stage.
    pub(super) fn send(&mut self, replica: u32, topic: Topic, stage: StageId, block: Vec<u8>) -> Result<()> {
        let peer = self.share.rank(replica);
        self.transport.send_bytes(peer, topic.tag(stage), block)
    }

    /// Another replica's next block about a stage, if it has come.
    pub(super) fn poll(&mut self, replica: u32, topic: Topic, stage: StageId) -> Result<Option<Vec<u8>>> {
        let peer = self.share.rank(replica);
        self.transport.poll_bytes(peer, topic.tag(stage))
    }

    /// Waits until anything comes.
    pub(super) fn listen(&mut self, waits: WaitsFor) -> Result<()> {
        self.meter.wait(waits, || self.transport.listen())
    }

    /// Waits until the rank's device has finished all its work.
    pub(in crate::worker) fn await_devices(&mut self) -> Result<()> {
        let since = Instant::now();
        // A device may itself wait for another rank's device.
        self.meter.wait(WaitsFor::All, || {
            for chunk in &*self.chunks {
                while !chunk.stage.is_idle()? {
                    self.transport.check()?;
                    if since.elapsed() < SPIN {
                        thread::yield_now();
                    } else {
                        thread::sleep(POLL);
                    }
                }
            }
            // If a peer has stopped, the device's work may have been cut short. Then its numbers mean
            // nothing.
            self.transport.check()
        })
    }
}
