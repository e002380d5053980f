//! The processes of a run, connected: each with each by a socket.

use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::unbounded;

use super::channel::Peer;
use super::inbox::inbox;
use super::link::{Kind, Link};
use super::reader::Reader;
use super::{Alarm, ChannelTransport, Peers, WireFrame, bootstrap};
use crate::error::{Error, Result};
use crate::id::Rank;

pub use bootstrap::Membership;

/// Processes that run the same program with the same config, and know each other. Each will hold its own ranks.
pub struct World {
    process: u32,
    /// By process; none for this one.
    links: Vec<Option<Arc<Link>>>,
    local_rank: usize,
    local_size: usize,
    deadline: Duration,
}

impl World {
    /// Finds the other processes and connects to each of them. `program` is what all have to have in common, line by line, such as the
    /// config; the programs' files have to be the same too.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the address cannot be listened at or reached, when a process does not come in time (it is named), when
    /// what listens is no process of a run, or when the processes are not alike: it says which differs and in what.
    pub fn join(membership: &Membership, program: &str) -> Result<Self> {
        let joined = bootstrap::join(membership, program)?;
        let mut links = Vec::new();
        for stream in joined.streams {
            links.push(stream.map(Link::new).transpose().map_err(no_link)?.map(Arc::new));
        }
        Ok(Self {
            process: membership.process,
            links,
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
        self.links.len() as u32
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
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Leaves for a failure; the others are told why.
    pub fn fail(self, cause: &Error) {
        farewell(&self.links, Some(cause));
    }

    /// The linked ends of this process's ranks of `ranks`, in rank order, and what all processes do together. `threads` are those of
    /// the ranks of this machine's processes; for them and `room` see [`super::connect`].
    ///
    /// # Errors
    /// When the ranks cannot be shared evenly among the processes, or the system gives no thread.
    pub fn link<W: WireFrame>(
        mut self,
        ranks: u32,
        threads: usize,
        room: usize,
    ) -> Result<(Vec<ChannelTransport<W>>, Peers)> {
        let processes = self.processes();
        let holder = |process| share(ranks, processes, process);
        let own = holder(self.process)?;
        let links = std::mem::take(&mut self.links);
        let (doors, inboxes): (Vec<_>, Vec<_>) = own.clone().map(|_| inbox(threads, room)).unzip();
        let alarm = Alarm::default();
        let mut words = Vec::new();
        let mut readers = Vec::new();
        for (link, process) in links.iter().zip(0..) {
            let (tell, heard) = unbounded();
            words.push(heard);
            let Some(link) = link else { continue };
            let reader = Reader {
                link: Arc::clone(link),
                doors: doors.clone(),
                first: Rank(own.start),
                theirs: holder(process)?,
                words: tell,
                alarm: alarm.clone(),
            };
            readers.push(start(process, reader, link.incoming().map_err(no_link)?)?);
        }
        let peer = |rank: u32| match &links[(rank / own.len() as u32) as usize] {
            Some(link) => Peer::Far(Arc::clone(link) as _),
            None => Peer::Near(doors[(rank - own.start) as usize].clone()),
        };
        let ends = own.clone().map(Rank).zip(inboxes);
        let ends = ends
            .map(|(rank, inbox)| ChannelTransport::new(rank, inbox, (0..ranks).map(peer).collect(), &alarm));
        Ok((ends.collect(), Peers::new(self.process, links, words, readers)))
    }
}

/// The ranks of a process: consecutive ones, as many as every other process has.
///
/// # Errors
/// [`Error::Invalid`] when the ranks cannot be shared evenly; it says how many processes can.
pub fn share(ranks: u32, processes: u32, process: u32) -> Result<Range<u32>> {
    if ranks == 0 || processes == 0 || !ranks.is_multiple_of(processes) {
        let fit: Vec<_> = (1..=ranks)
            .filter(|&count| ranks.is_multiple_of(count))
            .map(|count| count.to_string())
            .collect();
        return Err(Error::Invalid(format!(
            "{processes} processes cannot share {ranks} ranks evenly: start {} of them (WORLD_SIZE), or change the stages",
            fit.join(", ")
        )));
    }
    let each = ranks / processes;
    Ok(process * each..(process + 1) * each)
}

/// Says to all that this process leaves, and why if the cause is its own, and ends the connections.
pub(super) fn farewell(links: &[Option<Arc<Link>>], cause: Option<&Error>) {
    let cause = cause.filter(|error| !error.is_echo());
    let cause = cause.map_or(String::new(), ToString::to_string);
    for link in links.iter().flatten() {
        // Whoever is gone needs no word.
        let _ = link.word(Kind::Farewell, cause.as_bytes());
        link.close();
    }
}

fn start<W: WireFrame>(process: u32, reader: Reader<W>, stream: TcpStream) -> Result<JoinHandle<()>> {
    thread::Builder::new()
        .name(format!("from process {process}"))
        .spawn(move || reader.run(stream))
        .map_err(|error| Error::Stopped(format!(": no thread for a link: {error}")))
}

fn no_link(error: io::Error) -> Error {
    Error::Stopped(format!(": a link to another process cannot be set up: {error}"))
}

/// Whoever has come this far and goes no further says so.
impl Drop for World {
    fn drop(&mut self) {
        farewell(&self.links, None);
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("process", &self.process)
            .field("processes", &self.links.len())
            .finish_non_exhaustive()
    }
}
