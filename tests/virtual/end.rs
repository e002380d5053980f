//! A rank's end in a virtual world: a real end, which tells the world what its rank waits for.

use pipewright::fabric::{End, connect_by};

use super::*;

type Boxed = Box<dyn Transport<Tensor> + Send>;

pub(crate) struct VirtualEnd {
    /// `None` when the rank has stopped.
    end: Option<End<Tensor>>,
    world: Arc<World>,
    rank: usize,
}

/// The ends of all ranks of a world.
pub(crate) fn ends(world: &Arc<World>, ranks: u32, room: usize) -> Vec<Boxed> {
    let links: Arc<dyn Links<Tensor>> = Arc::clone(world) as _;
    let ends = connect_by(ranks, room, &links).into_iter().enumerate();
    ends.map(|(rank, end)| Box::new(VirtualEnd { end: Some(end), world: Arc::clone(world), rank }) as Boxed)
        .collect()
}

impl VirtualEnd {
    fn real(&mut self) -> &mut End<Tensor> {
        self.end.as_mut().expect("it lives as long as this")
    }

    /// Does something that may wait for this.
    fn waiting<T>(
        &mut self,
        what: Option<(usize, Load)>,
        wait: impl FnOnce(&mut End<Tensor>) -> Result<T>,
    ) -> Result<T> {
        self.world.awaits(self.rank, what);
        wait(self.real())
    }
}

impl Transport<Tensor> for VirtualEnd {
    fn rank(&self) -> WorldRank {
        WorldRank(self.rank as u32)
    }

    fn ranks(&self) -> u32 {
        self.end.as_ref().expect("it lives as long as this").ranks()
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        here::be(&self.world, self.rank);
        self.world.enter(self.rank, Some(call));
        self.real().begin(call)
    }

    fn end(&mut self) {
        self.world.leave(self.rank);
    }

    fn stop(&mut self) {
        self.real().stop();
    }

    fn start(&mut self, partners: &[WorldRank]) -> Result<()> {
        here::be(&self.world, self.rank);
        self.world.enter(self.rank, None);
        self.real().start(partners)
    }

    fn check(&mut self) -> Result<()> {
        self.real().check()
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: Tensor) -> Result<()> {
        self.real().send(peer, tag, wire)
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        self.real().post_recv(peer, tag)
    }

    fn poll(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Tensor>> {
        self.world.look(self.rank);
        self.real().poll(peer, tag)
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<Tensor> {
        let what = (peer.index(), Load::Wire(tag));
        self.waiting(Some(what), |end| end.wait(peer, tag))
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        self.real().send_bytes(peer, tag, bytes)
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        let what = (peer.index(), Load::Block(tag));
        self.waiting(Some(what), |end| end.recv_bytes(peer, tag))
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        self.world.look(self.rank);
        self.real().poll_bytes(peer, tag)
    }

    fn listen(&mut self) -> Result<()> {
        self.waiting(None, End::listen)
    }
}

impl Drop for VirtualEnd {
    fn drop(&mut self) {
        drop(self.end.take());
        self.world.stop(self.rank);
        here::be_nobody();
    }
}
