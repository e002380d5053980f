//! How long blocks and wires take between two processes.

use std::time::Instant;

use pipewright::fabric::{self, End, Peers, Tag, Transport, World};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::stages::Tensor;

/// How often each is sent there and back, if it is small. The first tenth is not counted.
const TIMES: usize = 1000;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Measures as one of two processes. Process 0 prints a line, which begins with the name of the fabric.
pub(crate) fn measure(fabric: &str, world: World) -> Result<()> {
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
