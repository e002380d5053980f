//! The cost of a message between two processes.

use std::time::{Duration, Instant};

use pipewright::stages::Tensor;

use super::file::Between;
use pipewright::Result;
use pipewright::fabric::{End, Tag, Transport, World, ends};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::plan::{LinkCost, median};

/// How often a message goes there and back, if there is time.
const ROUNDS: usize = 16;

/// The smallest number of times, and the time after which there are no further ones.
const LEAST: usize = 3;
const LONGEST: Duration = Duration::from_secs(1);

/// The bytes of a large message.
const LARGE: usize = 1 << 20;

/// The process that measures.
const FIRST: WorldRank = WorldRank(0);

/// Measures a message between process 0 and another one: on another host if there is one. Blocks go there and
/// back, and half of that time counts, because clocks differ between hosts. All processes call it. Process 0
/// gets the result, the others `None`.
///
/// # Errors
/// When a process ends before it has answered, or when the system cannot start a thread.
pub fn between(world: World) -> Result<Option<Between>> {
    let processes = world.processes();
    let local = world.local().to_vec();
    let mesh = Mesh::of_pipeline(processes, processes, &[])?;
    let process = world.process();
    let (ends, peers) = ends::<Tensor>(world, &mesh, 1, 1)?;
    let mut end = ends.into_iter().next().expect("each process has a rank");
    let far = (1..processes).find(|process| !local.contains(process));
    let measured = match process == FIRST.0 {
        true => ask(&mut end, far.unwrap_or(1), processes).map(Some),
        false => answer(&mut end).map(|()| None),
    };
    drop(end);
    let (link, mine) = match measured {
        Ok(link) => (link, Ok(Vec::new())),
        Err(error) => (None, Err(error)),
    };
    // If a process has failed, all get the first cause.
    peers.share("measuring a message", mine)?;
    let one_host = far.is_none();
    Ok(link.map(|link| Between { link, one_host }))
}

/// Sends messages to one process and waits for its answers. Tells every other one that there are none.
fn ask(end: &mut End<Tensor>, far: u32, processes: u32) -> Result<LinkCost> {
    let far = WorldRank(far);
    let small = one_way(end, far, 1)?;
    let large = one_way(end, far, LARGE)?;
    for process in (1..processes).map(WorldRank) {
        // An empty message is the last one.
        end.send_bytes(process, Tag(0), Vec::new())?;
    }
    for process in (1..processes).map(WorldRank) {
        end.recv_bytes(process, Tag(0))?;
    }
    Ok(LinkCost { latency: small, per_byte: (large - small).max(0.0) / (LARGE - 1) as f64 })
}

/// The usual seconds of a message of `bytes` bytes. The first one is not counted.
fn one_way(end: &mut End<Tensor>, far: WorldRank, bytes: usize) -> Result<f64> {
    let mut message = vec![0; bytes];
    let mut times = Vec::with_capacity(ROUNDS);
    let began = Instant::now();
    while times.len() <= LEAST || (times.len() <= ROUNDS && began.elapsed() < LONGEST) {
        let start = Instant::now();
        end.send_bytes(far, Tag(0), message)?;
        message = end.recv_bytes(far, Tag(0))?;
        times.push(start.elapsed().as_secs_f64() / 2.0);
    }
    Ok(median(times.into_iter().skip(1)).unwrap_or(0.0))
}

/// Sends every message back.
fn answer(end: &mut End<Tensor>) -> Result<()> {
    loop {
        let message = end.recv_bytes(FIRST, Tag(0))?;
        let last = message.is_empty();
        end.send_bytes(FIRST, Tag(0), message)?;
        if last {
            // A process that leaves stops all others. So each waits until process 0, which has heard them
            // all, leaves first.
            let _ = end.recv_bytes(FIRST, Tag(0));
            return Ok(());
        }
    }
}
