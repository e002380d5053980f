//! What every fabric must do: the same tests for each of them.

/// Calls a macro for each fabric, or for each that takes wires in any order.
macro_rules! fabrics {
    (all $suite:ident) => {
        $suite!(nccl);
        fabrics!(unordered $suite);
    };
    (unordered $suite:ident) => {
        $suite!(channels sockets channels_and_sockets);
        #[cfg(all(feature = "tls", target_os = "linux"))]
        $suite!(encrypted);
    };
}

mod bootstrap;
mod carrier;
mod causes;
mod frames;
mod gate;
mod given;
mod gpus;
#[path = "../common/has.rs"]
mod has;
mod liveness;
mod strangers;
mod suite;
// Linux has several addresses of one machine alone, which look like several machines.
#[path = "../common/frame.rs"]
mod frame;
#[path = "../common/skipped.rs"]
mod skipped;
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
use given::{Ends, Number, ROOM, mesh};
use gpus::nccl;
use has::has;
use pipewright::fabric::{
    self, Call, End, Gathered, Membership, Peers, Secret, Tag, Transport, WireFrame, World, all_gather,
    connect,
};
use pipewright::id::WorldRank;
use pipewright::stages::{Tensor, rng};
use pipewright::{Error, Result};
use serde_json::json;
#[cfg(all(feature = "tls", target_os = "linux"))]
use tls::encrypted;
use worlds::{free_address, in_processes};

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

#[test]
fn a_rank_alone_gathers_its_own_bytes() {
    let mut end = channels(1).pop().expect("one end");
    let mut all = Gathered::default();
    all_gather(end.as_mut(), &[1, 2], &mut all).expect("gathered");
    assert_eq!(all.ranks().collect::<Vec<_>>(), [[1, 2]]);
}
