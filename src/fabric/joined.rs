//! Ends for several processes: channels inside a process, connections between processes.

use super::channels::Channel;
use super::inbox::inbox;
use super::packet::Route;
use super::processes::{Deliveries, FarRoute};
use super::{Alarm, End, GpuPairs, Peers, WireFrame, World, nccl};
use crate::error::Result;
use crate::id::WorldRank;
use crate::mesh::Mesh;

/// The connected ends of this process's ranks, in rank order, and what connects the processes. `threads`
/// counts the threads of all ranks on this machine. For `threads` and `room` see [`super::connect`].
///
/// # Errors
/// When the system cannot start a thread to read from a connection. The connections are closed then.
///
/// # Panics
/// When the mesh is for another number of processes than the world has.
pub fn ends<W: WireFrame>(
    world: World,
    mesh: &Mesh,
    threads: usize,
    room: usize,
) -> Result<(Vec<End<W>>, Peers)> {
    assert_eq!(mesh.processes(), world.processes(), "one mesh for all processes");
    let own: Vec<WorldRank> = mesh.ranks_of(world.process()).collect();
    let (senders, inboxes): (Vec<_>, Vec<_>) = own.iter().map(|_| inbox(threads, room)).unzip();
    let alarm = Alarm::default();
    let deliveries = Deliveries::new(own.clone(), senders, &alarm);
    let feed = world.feed().filter(|_| own.len() == 1);
    let (connections, peers) = world.open(mesh, &deliveries)?;
    let route = |to: WorldRank| -> Box<dyn Route<W>> {
        match &connections[mesh.process(to) as usize] {
            Some(connection) => Box::new(FarRoute::new(connection, to)),
            None => {
                Box::new(Channel { to, inbox: deliveries.inbox(to).expect("it is of this process").clone() })
            }
        }
    };
    let ends = own.into_iter().zip(inboxes);
    let ends = ends.map(|(rank, inbox)| {
        let inbox = inbox.fed_by(feed.clone());
        End::new(rank, inbox, mesh.world().map(route).collect(), &alarm)
    });
    Ok((ends.collect(), peers))
}

/// The same as [`ends`], but NCCL carries the wires between these pairs of GPUs, if they are tensors.
/// [`Transport::start`](super::Transport::start) of each end then makes the connections.
///
/// # Errors
/// As for [`ends`]. Also when another process has failed, when two ranks of a process would need one GPU, or
/// when NCCL is missing.
pub fn ends_by_nccl<W: WireFrame>(
    world: World,
    mesh: &Mesh,
    threads: usize,
    room: usize,
    gpus: GpuPairs,
) -> Result<(Vec<End<W>>, Peers)> {
    let deadline = world.deadline();
    let (ends, peers) = ends(world, mesh, threads, room)?;
    let share = |mine| peers.share("starting NCCL", mine);
    Ok((nccl::carry(ends, gpus, deadline, share)?, peers))
}
