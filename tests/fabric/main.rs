//! What every fabric must do: the same tests for each of them.

mod bootstrap;
mod carrier;
mod causes;
mod frames;
mod gate;
mod gpus;
#[path = "../common/has.rs"]
mod has;
mod liveness;
#[cfg(feature = "mpi")]
mod mpi;
mod strangers;
mod suite;
// Linux has several addresses of one machine alone, which look like several machines.
#[path = "../common/frame.rs"]
mod frame;
#[cfg(all(feature = "tls", target_os = "linux"))]
mod tls;
mod unordered;
mod wires;
#[path = "../common/worlds.rs"]
mod worlds;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gate::{PROGRAM, SECRET, join};
use gpus::nccl;
use pipewright::fabric::{
    self, Call, End, Membership, Peers, Secret, Tag, Transport, WireFrame, World, connect,
};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::stages::{Tensor, rng};
use pipewright::{Error, Result};
use serde_json::json;
use worlds::{free_address, in_processes};

use has::has;
#[cfg(feature = "mpi")]
use mpi::mpi;
#[cfg(all(feature = "tls", target_os = "linux"))]
use tls::encrypted;

/// Fewer than the wires that are on the way at once in some of these tests.
const ROOM: usize = 100;

/// A wire that any fabric can carry.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Number(u32);

impl WireFrame for Number {
    fn describe(&self, description: &mut Vec<u8>) {
        description.push(1);
    }

    fn bytes(&self) -> u64 {
        4
    }

    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(&self.0.to_le_bytes())
    }

    fn read(description: &[u8], bytes: u64, from: &mut dyn Read) -> io::Result<Self> {
        assert_eq!((description, bytes), (&[1][..], 4));
        let mut bytes = [0; 4];
        from.read_exact(&mut bytes)?;
        Ok(Self(u32::from_le_bytes(bytes)))
    }
}

type Ends = Vec<Box<dyn Transport<Number> + Send>>;

/// All ranks in one process.
fn channels(ranks: u32) -> Ends {
    connect(ranks, ranks as usize, ROOM)
        .into_iter()
        .map(|end| Box::new(end) as Box<dyn Transport<Number> + Send>)
        .collect()
}

/// A process for each rank.
fn sockets(ranks: u32) -> Ends {
    in_so_many_processes(ranks, ranks)
}

/// Two ranks a process, if there are more than two.
fn channels_and_sockets(ranks: u32) -> Ends {
    in_so_many_processes(ranks, ranks.div_ceil(2).max(ranks.min(2)))
}

fn in_so_many_processes(ranks: u32, processes: u32) -> Ends {
    let all = in_processes(processes, |world| ends(world, ranks));
    all.into_iter().flatten().collect()
}

fn ends(world: World, ranks: u32) -> Ends {
    let mesh = mesh(ranks, world.processes());
    let (ends, peers) = fabric::ends(world, &mesh, ranks as usize, ROOM).expect("connected");
    let peers = Arc::new(peers);
    let hold = |end| Box::new(Held(end, Arc::clone(&peers))) as Box<dyn Transport<Number> + Send>;
    ends.into_iter().map(hold).collect()
}

/// A pipeline of this many ranks.
fn mesh(ranks: u32, processes: u32) -> Mesh {
    Mesh::new([1, ranks, 1], processes, &[]).expect("an even share")
}

/// A rank's end, and the connection that keeps its process in the run.
struct Held(End<Number>, #[allow(dead_code, reason = "dropped with the last end")] Arc<Peers>);

impl Transport<Number> for Held {
    fn rank(&self) -> WorldRank {
        self.0.rank()
    }

    fn ranks(&self) -> u32 {
        self.0.ranks()
    }

    fn begin(&mut self, call: Call) -> Result<()> {
        self.0.begin(call)
    }

    fn stop(&mut self) {
        self.0.stop();
    }

    fn is_direct(&self, peer: WorldRank) -> bool {
        self.0.is_direct(peer)
    }

    fn start(&mut self, partners: &[WorldRank]) -> Result<()> {
        self.0.start(partners)
    }

    fn check(&mut self) -> Result<()> {
        self.0.check()
    }

    fn send(&mut self, peer: WorldRank, tag: Tag, wire: Number) -> Result<()> {
        self.0.send(peer, tag, wire)
    }

    fn post_recv(&mut self, peer: WorldRank, tag: Tag) -> Result<()> {
        self.0.post_recv(peer, tag)
    }

    fn wait(&mut self, peer: WorldRank, tag: Tag) -> Result<Number> {
        self.0.wait(peer, tag)
    }

    fn send_bytes(&mut self, peer: WorldRank, tag: Tag, bytes: Vec<u8>) -> Result<()> {
        self.0.send_bytes(peer, tag, bytes)
    }

    fn recv_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Vec<u8>> {
        self.0.recv_bytes(peer, tag)
    }

    fn poll_bytes(&mut self, peer: WorldRank, tag: Tag) -> Result<Option<Vec<u8>>> {
        self.0.poll_bytes(peer, tag)
    }

    fn listen(&mut self) -> Result<()> {
        self.0.listen()
    }
}
