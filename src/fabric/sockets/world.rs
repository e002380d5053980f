//! The processes of a run. Each is connected with each by sockets.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::unbounded;

use super::connection::{Connection, farewell};
use super::reader::{Deliveries, Reader};
use super::{Peers, bootstrap};
use crate::error::{Error, FabricError, Result};
use crate::fabric::WireFrame;
use crate::mesh::Mesh;

pub use bootstrap::Membership;

/// Connected processes that run the same program with the same config. Each will hold its own ranks.
pub struct World {
    process: u32,
    /// By process. `None` for this one.
    connections: Vec<Option<Arc<Connection>>>,
    /// The processes on this one's machine, with this one, in order.
    local: Vec<u32>,
    deadline: Duration,
}

impl World {
    /// Finds the other processes and connects to each of them. `program` is what must be equal in all, line
    /// by line, such as the config. The program's file must be the same too.
    ///
    /// # Errors
    /// [`crate::error::FabricError`] when the address cannot be used or reached, when a process does not
    /// connect in time (the error names it), when another program listens there, or when processes differ:
    /// the error says which one, and in what.
    pub fn join(membership: &Membership, program: &str) -> Result<Self> {
        let joined = bootstrap::join(membership, program)?;
        let mut connections = Vec::new();
        for (process, lines) in (0..).zip(joined.lines) {
            let connection = lines.map(|lines| Connection::new(lines, membership.silence));
            let connection = connection.transpose().map_err(cannot_set_up(process))?;
            connections.push(connection.map(Arc::new));
        }
        Ok(Self {
            process: membership.process,
            connections,
            local: joined.local,
            deadline: membership.deadline,
        })
    }

    /// This process's number, from 0.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The number of processes.
    pub fn processes(&self) -> u32 {
        self.connections.len() as u32
    }

    /// This process's number among those of its machine, from 0.
    pub fn local_rank(&self) -> usize {
        let before = self.local.iter().take_while(|&&process| process < self.process);
        before.count()
    }

    /// The numbers of the processes on its machine, with its own, in order: those with the same address.
    pub fn local(&self) -> &[u32] {
        &self.local
    }

    /// How long the processes wait for each other when they make connections.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Leaves because of a failure. The others are told the cause.
    pub fn fail(self, cause: &Error) {
        farewell(&self.connections, Some(cause));
    }

    /// Starts to read what the other processes send to this one's ranks. Returns the connections by process
    /// (`None` for this one), and the calls of all processes together.
    ///
    /// # Errors
    /// When the system cannot start a thread. Then the connections are closed, and the threads that read from
    /// them have ended.
    pub(in crate::fabric) fn open<W: WireFrame>(
        mut self,
        mesh: &Mesh,
        deliveries: &Deliveries<W>,
    ) -> Result<(Vec<Option<Arc<Connection>>>, Peers)> {
        let connections = std::mem::take(&mut self.connections);
        let (tell, heard) = unbounded();
        // From here on, dropping `peers` closes the connections and waits for the threads.
        let mut peers = Peers::new(self.process, connections.clone(), heard);
        for (connection, process) in connections.iter().zip(0..) {
            let Some(connection) = connection else { continue };
            let reader = Reader {
                process,
                connection: Arc::clone(connection),
                deliveries: deliveries.copy(),
                theirs: mesh.ranks_of(process).collect(),
                heard: tell.clone(),
                calls: peers.calls(),
                connections: connections.clone(),
            };
            let stream = connection.incoming().map_err(cannot_set_up(process))?;
            peers.add(start("from", process, move || reader.run(stream))?);
            let watched = Arc::clone(connection);
            peers.add(start("watch", process, move || watched.watch())?);
        }
        Ok((connections, peers))
    }
}

/// Starts a thread for the connection to a process.
fn start(does: &str, process: u32, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(format!("{does} process {process}"));
    let started = thread.spawn(run).map_err(Arc::new);
    Ok(started.map_err(|source| FabricError::Thread { process, source })?)
}

fn cannot_set_up(process: u32) -> impl Fn(io::Error) -> FabricError {
    move |error| FabricError::CannotSetUp {
        process,
        source: Arc::new(error),
    }
}

/// If this process ends before the run begins, the others are told.
impl Drop for World {
    fn drop(&mut self) {
        farewell(&self.connections, None);
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("process", &self.process)
            .field("processes", &self.connections.len())
            .finish_non_exhaustive()
    }
}
