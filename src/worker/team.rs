//! The shards of a rank, which work together inside of passes. They send each other tensors over the rank's
//! own end of the fabric.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use pipewright_stages::{Coming, Device, Exchange, Kind, Shape, Shard, Team, Tensor};

use super::plan::Plan;
use super::progress::{Progress, WaitsFor};
use crate::error::{Error, LaunchError, Result};
use crate::fabric::{Call, Tag, Taken, Transport};
use crate::id::{Axis, WorldRank};

/// What shards send each other has this tag. It comes in the order in which it was sent.
const TEAM: Tag = Tag(1 << 62);

type AnyEnd<W> = Box<dyn Transport<W> + Send>;

/// The shards of a rank in this plan, if there are several. They and the worker then use its end in turn:
/// `shared` is that end, once it was needed.
pub(super) fn team<W: 'static>(
    end: &mut AnyEnd<W>,
    shared: &mut Option<Shared<W>>,
    plan: &Plan,
    progress: &Arc<Progress>,
) -> Result<Option<TeamEnd>> {
    if plan.shards() == 1 {
        return Ok(None);
    }
    let rank = end.rank();
    let any: Box<dyn Any> = Box::new(shared.get_or_insert_with(|| Shared::around(end)).clone());
    let Ok(tensors) = any.downcast::<Shared<Tensor>>() else {
        return Err(LaunchError::new(
            "stages whose wires are no tensors cannot be divided among shards: set the number of shards to 1",
        )
        .into());
    };
    let ranks: Vec<WorldRank> = plan.mesh.group(Axis::Tensor, rank).collect();
    let failure = Failure::default();
    let waits = Arc::<ShardWaits>::default();
    let exchange = Line {
        end: *tensors,
        ranks,
        progress: Arc::clone(progress),
        failure: Arc::clone(&failure),
        waits: Arc::clone(&waits),
        traded: Vec::new(),
    };
    let shard = Shard { index: plan.mesh.coordinate(rank).shard, of: plan.shards() };
    let team = Team::new(shard, outer(&plan.data.shapes().0), Arc::new(Mutex::new(exchange)));
    let team = team.map_err(|error| LaunchError::because(error.to_string(), Box::new(Error::from(error))))?;
    Ok(Some(TeamEnd { team, failure, waits }))
}

/// The dimensions of the rows of an input: each token is a row, and so is each of other inputs.
pub(crate) fn outer(input: &Shape) -> &[usize] {
    match input.kind() {
        Kind::Ids => input.dims(),
        Kind::F32 => &input.dims()[..1.min(input.dims().len())],
    }
}

/// Why an exchange failed: stages report it in their own words.
type Failure = Arc<Mutex<Option<Error>>>;

/// A rank's view of its shards.
#[derive(Debug)]
pub(super) struct TeamEnd {
    team: Team,
    failure: Failure,
    waits: Arc<ShardWaits>,
}

impl TeamEnd {
    /// What layers see of it.
    pub(super) fn team(&self) -> &Team {
        &self.team
    }

    /// How long the rank waits for the other shards.
    pub(super) fn waits(&self) -> Arc<ShardWaits> {
        Arc::clone(&self.waits)
    }

    /// The cause of an error: what failed in the team, if anything has.
    pub(super) fn cause(&self, error: Error) -> Error {
        self.failure.lock().take().unwrap_or(error)
    }
}

/// How long a rank has waited for other shards in a step.
#[derive(Debug, Default)]
pub(super) struct ShardWaits(Mutex<Waited>);

#[derive(Debug, Default)]
struct Waited {
    time: Duration,
    /// Whether each wait is recorded.
    traced: bool,
    /// The shard, and when the wait for it began and ended.
    each: Vec<(u32, [Instant; 2])>,
}

impl ShardWaits {
    /// A step begins.
    pub(super) fn begin(&self, traced: bool) {
        let mut waited = self.0.lock();
        (waited.time, waited.traced) = (Duration::ZERO, traced);
        waited.each.clear();
    }

    /// How long, since the step began.
    pub(super) fn time(&self) -> Duration {
        self.0.lock().time
    }

    /// Each wait of a step that was traced.
    pub(super) fn each(&self, see: impl FnOnce(&[(u32, [Instant; 2])])) {
        see(&self.0.lock().each);
    }

    /// Waits for a shard.
    fn during<T>(&self, shard: u32, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = wait();
        let ended = Instant::now();
        let mut waited = self.0.lock();
        waited.time += ended - began;
        if waited.traced {
            waited.each.push((shard, [began, ended]));
        }
        result
    }
}

/// The way to the other shards.
struct Line {
    end: Shared<Tensor>,
    /// By shard.
    ranks: Vec<WorldRank>,
    progress: Arc<Progress>,
    failure: Failure,
    waits: Arc<ShardWaits>,
    /// What the next trade gives.
    traded: Vec<(WorldRank, Tensor)>,
}

impl Line {
    /// The result. An error is kept, and the stage gets its words.
    fn told<T>(&self, result: Result<T>) -> pipewright_stages::Result<T> {
        result.map_err(|error| {
            let words = pipewright_stages::Error::other(error.to_string());
            *self.failure.lock() = Some(error);
            words
        })
    }
}

impl Line {
    /// Whether a carrier moves tensors of this place to a rank and from it.
    fn is_traded(&self, peer: WorldRank, device: Device) -> bool {
        device != Device::Cpu && self.end.trades_with(peer)
    }
}

impl Exchange for Line {
    fn send(&mut self, shard: u32, tensor: Tensor) -> pipewright_stages::Result<()> {
        let peer = self.ranks[shard as usize];
        if self.is_traded(peer, tensor.place().device) {
            self.traded.push((peer, tensor));
            return Ok(());
        }
        let sent = self.progress.during(WaitsFor::Shard(peer), || self.end.lock().send(peer, TEAM, tensor));
        self.told(sent)
    }

    fn sent(&mut self, coming: &[Coming]) -> pipewright_stages::Result<()> {
        if self.traded.is_empty() {
            return Ok(());
        }
        let given = std::mem::take(&mut self.traded);
        let taken =
            coming.iter().map(|coming| (self.ranks[coming.shard as usize], coming.shape, coming.dtype));
        let taken: Vec<Taken> = taken.filter(|(peer, ..)| self.end.trades_with(*peer)).collect();
        // It waits for what was announced before, from other ranks.
        let trade = || self.end.lock().trade(TEAM, given, &taken);
        let traded = self.progress.during(WaitsFor::All, trade);
        self.told(traded)
    }

    fn receive(&mut self, shard: u32) -> pipewright_stages::Result<Tensor> {
        let peer = self.ranks[shard as usize];
        let receive = || {
            let mut end = self.end.lock();
            // What was traded is announced, and what is not on a GPU comes without.
            if !end.trades_with(peer) {
                end.post_recv(peer, TEAM)?;
            }
            end.wait(peer, TEAM)
        };
        let received = self.progress.during(WaitsFor::Shard(peer), || self.waits.during(shard, receive));
        self.told(received)
    }
}

/// An end that the worker and its stages use in turn, on one thread.
pub(super) struct Shared<W>(Arc<Mutex<Option<AnyEnd<W>>>>);

impl<W: 'static> Shared<W> {
    /// Puts a shared end in the place of an end that it is around.
    fn around(end: &mut AnyEnd<W>) -> Self {
        let shared = Self(Arc::default());
        let own = std::mem::replace(end, Box::new(shared.clone()));
        *shared.0.lock() = Some(own);
        shared
    }

    fn lock(&self) -> MappedMutexGuard<'_, AnyEnd<W>> {
        MutexGuard::map(self.0.lock(), |end| end.as_mut().expect("it is around an end"))
    }
}

impl<W> Clone for Shared<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: 'static> Transport<W> for Shared<W> {
    fn rank(&self) -> WorldRank {
        self.lock().rank()
    }

    fn ranks(&self) -> u32 {
        self.lock().ranks()
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        self.lock().begin(call)
    }

    fn end(&mut self) {
        self.lock().end();
    }

    fn keep(&mut self, call: Call) {
        self.lock().keep(call);
    }

    fn kept(&self) -> u64 {
        self.lock().kept()
    }

    fn forget(&mut self) {
        self.lock().forget();
    }

    fn stop(&mut self) {
        self.lock().stop();
    }

    fn is_direct(&self, peer: WorldRank) -> bool {
        self.lock().is_direct(peer)
    }

    fn start(&mut self, partners: &[WorldRank]) -> Result<()> {
        self.lock().start(partners)
    }

    fn check(&mut self) -> Result<()> {
        self.lock().check()
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: W) -> Result<()> {
        self.lock().send(peer, tag, wire)
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        self.lock().post_recv(peer, tag)
    }

    fn poll(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<W>> {
        self.lock().poll(peer, tag)
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<W> {
        self.lock().wait(peer, tag)
    }

    fn trades_with(&self, peer: WorldRank) -> bool {
        self.lock().trades_with(peer)
    }

    fn trade(&mut self, tag: Tag, given: Vec<(WorldRank, W)>, taken: &[Taken]) -> Result<()> {
        self.lock().trade(tag, given, taken)
    }

    fn await_trades(&mut self) -> Result<()> {
        self.lock().await_trades()
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        self.lock().send_bytes(peer, tag, bytes)
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        self.lock().recv_bytes(peer, tag)
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        self.lock().poll_bytes(peer, tag)
    }

    fn listen(&mut self) -> Result<()> {
        self.lock().listen()
    }
}
