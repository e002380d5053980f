//! The processes of a run. Each is connected with each.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::unbounded;

use super::connection::{Connection, farewell};
use super::from_process::FromProcess;
use super::kept::Kept;
use super::line::{Lines, Start};
use super::others::Others;
use super::peers::Peers;
use super::reader::{Between, Deliveries, Reader};
use super::received::Received;
use super::status_queries::Aside;
use crate::error::{Error, Result};
use crate::fabric::WireFrame;
use crate::fabric::feed::Feed;
use crate::interrupt::Interrupt;
use crate::mesh::Mesh;

/// Connected processes that run the same program with the same config. Each will hold its own ranks.
pub struct World {
    process: u32,
    /// By process. `None` for this one.
    connections: Vec<Option<Arc<Connection>>>,
    /// Starts to read. `None` once it has begun.
    start: Option<Start>,
    /// By which a rank that waits can receive itself.
    feed: Option<Arc<dyn Feed>>,
    /// The processes on this one's machine, with this one, in order.
    local: Vec<u32>,
    /// What this process tells others that ask.
    aside: Arc<Aside>,
    deadline: Duration,
    /// What this process keeps for others.
    kept: Arc<Kept>,
    /// Joins the same run again, when processes were lost.
    again: Option<JoinAgain>,
    /// Whether it is a run that goes on after processes were lost.
    goes_on: bool,
    size: Size,
}

/// How many processes a run has.
#[derive(Clone, Debug)]
pub(crate) struct Size {
    /// When it began.
    pub(crate) whole: u32,
    /// At least.
    pub(crate) fewest: u32,
    /// Whether somebody waits who can take the place of a process without which the run goes on. Only process
    /// 0 knows it.
    pub(crate) newcomers: Arc<AtomicBool>,
    /// By process: the number with which it was started.
    pub(crate) numbers: Vec<u32>,
    /// Is set when this process leaves and another one shall take its place.
    pub(crate) left: Arc<AtomicBool>,
}

/// The processes of a run, as one of them counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crew {
    /// The number of the one that counts.
    pub process: u32,
    /// How many there are.
    pub processes: u32,
    /// How many there were when the run began.
    pub whole: u32,
    /// Those on its machine, with itself, in order.
    pub local: Vec<u32>,
}

impl Crew {
    /// The processes that are left when another one leaves. Later ones then have the number before.
    pub(crate) fn without(&self, process: u32) -> Self {
        let number = |other: u32| other - u32::from(other > process);
        let local = self.local.iter().filter(|other| **other != process);
        Self {
            process: number(self.process),
            processes: self.processes - 1,
            whole: self.whole,
            local: local.map(|other| number(*other)).collect(),
        }
    }
}

/// The processes without which the others join their run again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Gone<'a> {
    /// Their numbers.
    pub processes: &'a [u32],
    /// Whether they have left by themselves. Then the others do not wait for somebody in their places.
    pub have_left: bool,
}

impl<'a> Gone<'a> {
    /// These were lost.
    pub(crate) fn lost(processes: &'a [u32]) -> Self {
        Self { processes, have_left: false }
    }

    /// These have left.
    pub(crate) fn left(processes: &'a [u32]) -> Self {
        Self { processes, have_left: true }
    }
}

/// Joins a run again. It is given who has gone, and what may end the wait for others.
pub(crate) type JoinAgain = Arc<dyn Fn(Gone<'_>, &Interrupt) -> Result<World> + Send + Sync>;

impl World {
    /// Process `process`, which these lines connect to all others. `deadline`: see [`World::deadline`]. For
    /// how to write lines see [`line`](crate::fabric::line).
    pub fn by_lines(process: u32, lines: Lines, deadline: Duration) -> Self {
        let Lines { lines, start, feed, local, aside } = lines;
        let all = lines.len() as u32;
        let size = Size {
            whole: all,
            fewest: all,
            newcomers: Arc::default(),
            numbers: (0..all).collect(),
            left: Arc::default(),
        };
        let connection = |line: Option<_>| line.map(|line| Arc::new(Connection::new(line)));
        Self {
            process,
            connections: lines.into_iter().map(connection).collect(),
            start: Some(start),
            feed,
            local,
            aside,
            deadline,
            kept: Arc::default(),
            again: None,
            goes_on: false,
            size,
        }
    }

    /// This world, of a run of such a size.
    pub(in crate::fabric) fn of(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// This world, whose run can be joined again by `again` when processes were lost or have left. It is
    /// given these, and what may end the wait for others. `goes_on`: see [`World::goes_on`].
    pub fn with_return(
        mut self,
        again: impl Fn(Gone<'_>, &Interrupt) -> Result<Self> + Send + Sync + 'static,
        goes_on: bool,
    ) -> Self {
        self.again = Some(Arc::new(again));
        self.goes_on = goes_on;
        self
    }

    /// This process's number, from 0.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The number of processes.
    pub fn processes(&self) -> u32 {
        self.connections.len() as u32
    }

    /// This process's number among the processes of its machine, from 0.
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

    /// Whether this is a run that goes on after processes were lost: this process takes the place of one of
    /// them, or joins again.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// How many processes the run had when it began. There may be fewer now.
    pub fn whole(&self) -> u32 {
        self.size.whole
    }

    /// The processes as this one counts them.
    pub fn crew(&self) -> Crew {
        let (process, processes, whole) = (self.process, self.processes(), self.whole());
        Crew { process, processes, whole, local: self.local.clone() }
    }

    pub(crate) fn size(&self) -> Size {
        self.size.clone()
    }

    /// Joins the same run again, if its fabric can.
    pub(crate) fn again(&self) -> Option<JoinAgain> {
        self.again.clone()
    }

    /// No process that is lost will be replaced.
    pub(crate) fn replaces_none(&mut self) {
        self.again = None;
    }

    /// From now on this is what the process keeps for others.
    pub(crate) fn keep(&mut self, kept: Arc<Kept>) {
        self.kept = kept;
    }

    /// By which the only rank of this process can receive while it waits, if its fabric wakes nobody.
    pub(in crate::fabric) fn feed(&self) -> Option<Arc<dyn Feed>> {
        self.feed.clone()
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
        let aside = Arc::clone(&self.aside);
        let others = Others::new(
            self.process,
            connections.clone(),
            aside,
            self.again.as_ref().map(|_| Arc::clone(&self.size.left)),
        );
        let kept = Arc::clone(&self.kept);
        let waits = self.feed.take().filter(|feed| feed.waits());
        let received = Received::new(self.process, connections.len() as u32, heard).told_by(waits);
        let mut peers = Peers::new(self.process, connections.clone(), received, others, kept);
        let reader = |(process, connection): (u32, &Option<Arc<Connection>>)| {
            let reader = Reader {
                process,
                connection: Arc::clone(connection.as_ref()?),
                deliveries: deliveries.copy(),
                theirs: mesh.ranks_of(process).collect(),
                heard: tell.clone(),
                calls: peers.calls(),
                limits: Arc::clone(&peers.limits),
                connections: connections.clone(),
                between: Between::default(),
                keeps: Arc::clone(&self.kept),
            };
            Some(FromProcess::new(Box::new(reader)))
        };
        let from = (0..).zip(&connections).map(reader).collect();
        if let Some(start) = self.start.take() {
            start(from, peers.threads())?;
        }
        Ok((connections, peers))
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

#[cfg(test)]
mod tests {
    use super::Crew;

    #[test]
    fn those_that_are_left_count_without_a_gap() {
        let local = vec![0, 2, 3];
        let crew = |process| Crew { process, processes: 4, whole: 5, local: local.clone() };
        let without = |process, leaver| {
            let left = crew(process).without(leaver);
            assert_eq!([left.processes, left.whole], [3, 5]);
            (left.process, left.local)
        };
        assert_eq!(without(0, 2), (0, vec![0, 2]));
        assert_eq!(without(3, 2), (2, vec![0, 2]));
        assert_eq!(without(3, 1), (2, vec![0, 1, 2]));
    }
}
