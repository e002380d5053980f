//! Ranks on GPUs of different processes, whose wires go by NCCL: on a machine without them, by its emulator.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, bounded, unbounded};
use emulator::Cuda;
use pipewright::fabric::GpuPairs;
use pipewright::mesh::Mesh;
use pipewright::stages::{DType, Device, Place};

use super::*;

/// A process and a GPU for each rank. Without the emulator, which has GPUs enough, sockets stand in.
pub(crate) fn nccl(ranks: u32) -> Ends {
    let Cuda::Emulated(_) = emulator::start() else {
        eprintln!("skipped: the emulator alone has so many GPUs");
        return sockets(ranks);
    };
    in_processes(ranks, |world| Box::new(OnThread::start(world, ranks)) as _)
}

type Job = Box<dyn FnOnce(&mut End<Tensor>) + Send>;

/// A rank's end on the rank's own thread, from which alone a GPU and NCCL may be used.
struct OnThread {
    rank: WorldRank,
    ranks: u32,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl OnThread {
    fn start(world: World, ranks: u32) -> Self {
        let rank = WorldRank(world.process());
        let (jobs, todo) = unbounded::<Job>();
        let (started, wait) = bounded(1);
        let thread = thread::spawn(move || {
            let (mut end, _peers) = connect(world, ranks);
            end.start(&[]).expect("NCCL connects");
            started.send(()).expect("somebody waits");
            todo.into_iter().for_each(|job| job(&mut end));
        });
        wait.recv().expect("it starts");
        Self { rank, ranks, jobs: Some(jobs), thread: Some(thread) }
    }

    fn ask<T: Send + 'static>(&self, job: impl FnOnce(&mut End<Tensor>) -> T + Send + 'static) -> T {
        let (tell, answer) = bounded(1);
        let job = move |end: &mut End<Tensor>| tell.send(job(end)).expect("somebody waits");
        let jobs = self.jobs.as_ref().expect("it runs");
        jobs.send(Box::new(job)).expect("it runs");
        answer.recv().expect("it answers")
    }
}

fn place(rank: WorldRank) -> Place {
    Place { device: Device::Cuda(rank.0), dtype: DType::F32 }
}

/// The end of a process's only rank. NCCL takes wires from each rank to each.
fn connect(world: World, ranks: u32) -> (End<Tensor>, fabric::Peers) {
    let places: Vec<Place> = (0..ranks).map(|rank| place(WorldRank(rank))).collect();
    let mesh = Mesh::new([1, ranks, 1], ranks, &places).expect("a rank each");
    let all = || (0..ranks).map(WorldRank);
    let pairs = all().flat_map(|from| all().map(move |to| [from, to]));
    let pairs = GpuPairs::new(pairs.filter(|[from, to]| from != to).collect(), &mesh);
    let (mut ends, peers) = fabric::ends_by_nccl(world, &mesh, 1, ROOM, pairs).expect("connected");
    (ends.pop().expect("one rank"), peers)
}

impl Transport<Number> for OnThread {
    fn rank(&self) -> WorldRank {
        self.rank
    }

    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        self.ask(move |end| end.begin(call))
    }

    fn stop(&mut self) {
        self.ask(Transport::stop);
    }

    fn check(&mut self) -> Result<()> {
        self.ask(Transport::check)
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: Number) -> Result<()> {
        let at = place(self.rank);
        self.ask(move |end| end.send(peer, tag, Tensor::from_vec(&[1], vec![wire.0 as f32])?.to(at)?))
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        self.ask(move |end| end.post_recv(peer, tag))
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<Number> {
        self.ask(move |end| {
            let wire = end.wait(peer, tag)?;
            assert_ne!(wire.place(), Place::default(), "it came to the GPU");
            Ok(Number(wire.to(Place::default())?.f32()[0] as u32))
        })
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        self.ask(move |end| end.send_bytes(peer, tag, bytes))
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        self.ask(move |end| end.recv_bytes(peer, tag))
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        self.ask(move |end| end.poll_bytes(peer, tag))
    }

    fn listen(&mut self) -> Result<()> {
        self.ask(Transport::listen)
    }
}

impl Drop for OnThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let thread = self.thread.take().expect("it runs");
        assert!(thread.join().is_ok() || thread::panicking(), "its thread panicked");
    }
}
