//! How long a block and a wire take from one process to another: by sockets inside of a machine, by those
//! between machines, by those that are encrypted, and by MPI.
//! `cargo bench --features mpi,tls --bench fabric`; what the build does not have is left out. The machines
//! are one: process 0 has an address of its own.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use pipewright::fabric::{self, End, Membership, Peers, Secret, Tag, Transport, World};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::stages::Tensor;

/// The variable that tells a process of this bench its part: the kind of sockets, its number and process 0's
/// address, or `mpi`.
const PART: &str = "PIPEWRIGHT_BENCH_FABRIC";

/// How often each is sent there and back, if it is small. The first tenth is not counted.
const TIMES: usize = 1000;

/// Longer than any part takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    match std::env::var(PART) {
        Ok(part) => take_part(&part),
        Err(_) => start_all(),
    }
}

/// Starts two processes for each fabric.
fn start_all() -> Result<()> {
    let program = std::env::current_exe()?;
    for (kind, host) in [("sockets", "127.0.0.1"), ("tcp", "127.0.0.2"), ("tls", "127.0.0.2")] {
        if kind == "tls" && !cfg!(feature = "tls") {
            continue;
        }
        let address = TcpListener::bind((host, 0))?.local_addr()?;
        let start = |process| {
            let part = format!("{kind} {process} {address}");
            Command::new(&program).env(PART, part).spawn()
        };
        for child in [start(0)?, start(1)?] {
            ended(child)?;
        }
    }
    if cfg!(feature = "mpi") {
        let mut mpirun = Command::new("mpirun");
        mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
        ended(mpirun.arg(program).env(PART, "mpi").spawn()?)?;
    }
    Ok(())
}

fn ended(mut child: Child) -> Result<()> {
    match child.wait()?.success() {
        true => Ok(()),
        false => Err("a process failed".into()),
    }
}

/// One of two processes.
fn take_part(part: &str) -> Result<()> {
    let (fabric, world) = match part.split(' ').collect::<Vec<_>>()[..] {
        [kind, process, address] => (kind, by_sockets(process.parse()?, address, kind == "tls")?),
        _ => ("mpi", by_mpi()?),
    };
    let mesh = Mesh::new([1, 2, 1], 2, &[])?;
    let (mut ends, peers) = fabric::ends::<Tensor>(world, &mesh, 2, 16)?;
    let end = &mut ends[0];
    let mut line = format!("{fabric:<8}");
    let block = |end: &mut End<Tensor>, peer, bytes| Ok(end.send_bytes(peer, Tag(0), vec![0; bytes])?);
    let no_block = |end: &mut End<Tensor>, peer| end.recv_bytes(peer, Tag(0)).map(drop).map_err(Into::into);
    let wire = |end: &mut End<Tensor>, peer, bytes| {
        let wire = Tensor::scratch(&[bytes / size_of::<f32>()]);
        Ok(end.send(peer, Tag(0), wire)?)
    };
    let no_wire = |end: &mut End<Tensor>, peer| end.wait(peer, Tag(0)).map(drop).map_err(Into::into);
    for bytes in [64, 1 << 20] {
        let time = one_way(TIMES, end, &peers, |end, peer| block(end, peer, bytes), no_block)?;
        line += &format!("  block of {bytes} B: {time:7.1} us");
    }
    for (bytes, times) in [(64, TIMES), (1 << 20, TIMES), (16 << 20, TIMES / 10)] {
        let time = one_way(times, end, &peers, |end, peer| wire(end, peer, bytes), no_wire)?;
        line += &format!("  wire of {bytes} B: {time:7.1} us");
    }
    if peers.process() == 0 {
        println!("{line}");
    }
    Ok(())
}

/// The median time from one process to the other, in microseconds.
fn one_way(
    times: usize,
    end: &mut End<Tensor>,
    peers: &Peers,
    send: impl Fn(&mut End<Tensor>, WorldRank) -> Result<()>,
    receive: impl Fn(&mut End<Tensor>, WorldRank) -> Result<()>,
) -> Result<f64> {
    let peer = WorldRank(1 - end.rank().0);
    let mut took = Vec::new();
    for _ in 0..times {
        let since = Instant::now();
        if peers.process() == 0 {
            send(end, peer)?;
            receive(end, peer)?;
        } else {
            receive(end, peer)?;
            send(end, peer)?;
        }
        took.push(since.elapsed());
    }
    let counted = &mut took[times / 10..];
    counted.sort_unstable();
    Ok(1e6 * counted[counted.len() / 2].as_secs_f64() / 2.0)
}

fn by_sockets(process: u32, address: &str, tls: bool) -> Result<World> {
    let membership = Membership {
        process,
        processes: 2,
        address: address.to_owned(),
        deadline: PATIENCE,
        silence: Membership::SILENCE,
        secret: tls.then(|| Secret::new("a secret of this bench")).transpose()?,
        tls,
        replaces: false,
    };
    Ok(World::join(&membership, "a bench")?)
}

#[cfg(feature = "mpi")]
fn by_mpi() -> Result<World> {
    let membership = pipewright::fabric::MpiMembership {
        process: std::env::var("OMPI_COMM_WORLD_RANK")?.parse()?,
        processes: 2,
        deadline: PATIENCE,
        silence: Membership::SILENCE,
    };
    Ok(World::join_by_mpi(&membership, "a bench")?)
}

#[cfg(not(feature = "mpi"))]
fn by_mpi() -> Result<World> {
    Err("built without MPI".into())
}
