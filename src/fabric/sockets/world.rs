//! The processes of a run, connected: each with each by a socket.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::unbounded;

use super::connection::{Connection, farewell};
use super::reader::{Deliveries, Reader};
use super::{Peers, bootstrap};
use crate::error::{Error, Result};
use crate::fabric::WireFrame;
use crate::mesh::Mesh;

pub use bootstrap::Membership;

/// Processes that run the same program with the same config, and know each other. Each will hold its own
/// ranks.
pub struct World {
    process: u32,
    /// By process; none for this one.
    connections: Vec<Option<Arc<Connection>>>,
    local_rank: usize,
    local_size: usize,
    deadline: Duration,
}

impl World {
    /// Finds the other processes and connects to each of them. `program` is what all have to have in common,
    /// line by line, such as the config; the programs' files have to be the same too.
    ///
    /// # Errors
    /// [`crate::error::FabricError`] when the address cannot be listened at or reached, when a process does
    /// not come in time (it is named), when what listens is no process of a run, or when the processes are
    /// not alike: it says which differs and in what.
    pub fn join(membership: &Membership, program: &str) -> Result<Self> {
        let joined = bootstrap::join(membership, program)?;
        let mut connections = Vec::new();
        for lines in joined.lines {
            let connection = lines.map(|lines| Connection::new(lines, membership.silence));
            let connection = connection.transpose();
            connections.push(connection.map_err(no_connection)?.map(Arc::new));
        }
        Ok(Self {
            process: membership.process,
            connections,
            local_rank: joined.local_rank,
            local_size: joined.local_size,
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
        self.local_rank
    }

    /// The number of processes on its machine: those with one address.
    pub fn local_size(&self) -> usize {
        self.local_size
    }

    /// How long the processes wait for each other when they make connections.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Leaves for a failure; the others are told why.
    pub fn fail(self, cause: &Error) {
        farewell(&self.connections, Some(cause));
    }

    /// Starts to read what the other processes send for this one's ranks. Gives the connections by process,
    /// none for this one, and what all processes do together.
    ///
    /// # Errors
    /// When the system gives no thread. Then the connections are closed, and the threads that read from them
    /// have ended.
    pub(in crate::fabric) fn open<W: WireFrame>(
        mut self,
        mesh: &Mesh,
        deliveries: &Deliveries<W>,
    ) -> Result<(Vec<Option<Arc<Connection>>>, Peers)> {
        let connections = std::mem::take(&mut self.connections);
        let (tell, heard) = unbounded();
        // From here on, dropping it closes the connections and waits for the threads.
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
            };
            let stream = connection.incoming().map_err(no_connection)?;
            peers.add(start(format!("from process {process}"), move || {
                reader.run(stream)
            })?);
            let watched = Arc::clone(connection);
            peers.add(start(format!("watch process {process}"), move || {
                watched.watch()
            })?);
        }
        Ok((connections, peers))
    }
}

fn start(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(|error| Error::Stopped(format!(": no thread for a connection: {error}")))
}

fn no_connection(error: io::Error) -> Error {
    Error::Stopped(format!(
        ": a connection to another process cannot be set up: {error}"
    ))
}

/// Whoever has come this far and goes no further says so.
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
