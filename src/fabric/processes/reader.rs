//! The receiving end of a connection: delivers what another process sends.

use std::io::{self, ErrorKind, Read};
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::calls::Calls;
use super::connection::Connection;
use super::from_process::ReadsFrames;
use super::head::{DESCRIPTION, Head, Kind, Limits, invalid};
use super::kept::Kept;
use super::numbers::{Body, Incoming, read};
use super::part::plain;
use crate::error::{FabricError, Problem, ProcessLoss};
use crate::fabric::inbox::InboxSender;
use crate::fabric::packet::{Content, Packet};
use crate::fabric::{Alarm, Call, WireFrame};
use crate::id::WorldRank;

/// What one process tells another.
#[derive(Debug)]
pub(super) enum Heard {
    /// Its block for the call with this number.
    Part(u64, Vec<u8>),
    /// It leaves. The text says why, if it is because of a failure.
    Farewell(String),
    /// It leaves to join the run again, because this process was lost, or for another one in its own place.
    Rejoins(u32, ProcessLoss),
    /// All of something that this process keeps has come.
    Kept,
    /// It makes a different call, or sends something unreadable.
    Failed(Arc<FabricError>),
    /// It has ended, or the connection has.
    Ended(ProcessLoss),
}

/// The inboxes of this process's ranks, and the alarm for ranks that cannot look into theirs.
pub(in crate::fabric) struct Deliveries<W> {
    /// In order.
    own: Vec<WorldRank>,
    inboxes: Vec<InboxSender<W>>,
    alarm: Alarm,
}

impl<W> Deliveries<W> {
    pub(in crate::fabric) fn new(own: Vec<WorldRank>, inboxes: Vec<InboxSender<W>>, alarm: &Alarm) -> Self {
        Self { own, inboxes, alarm: alarm.clone() }
    }

    pub(super) fn copy(&self) -> Self {
        Self::new(self.own.clone(), self.inboxes.clone(), &self.alarm)
    }

    pub(in crate::fabric) fn inbox(&self, rank: WorldRank) -> Option<&InboxSender<W>> {
        let index = self.own.binary_search(&rank).ok()?;
        self.inboxes.get(index)
    }

    /// Puts a packet, valid in every attempt, into each inbox.
    fn deliver_to_all(&self, from: WorldRank, content: impl Fn() -> Content<W>) {
        let call = Call { attempt: u32::MAX, number: u64::MAX };
        for inbox in &self.inboxes {
            // A rank that has stopped does not need it.
            let _ = inbox.send(Packet::new(from, call, content()));
        }
    }
}

/// Receives and delivers what one process sends.
pub(super) struct Reader<W> {
    /// The other process.
    pub(super) process: u32,
    pub(super) connection: Arc<Connection>,
    pub(super) deliveries: Deliveries<W>,
    /// The other process's ranks.
    pub(super) theirs: Vec<WorldRank>,
    /// For what the other process itself says.
    pub(super) heard: Sender<(u32, Heard)>,
    pub(super) calls: Arc<Calls>,
    pub(super) limits: Arc<Limits>,
    /// The connections to all processes.
    pub(super) connections: Vec<Option<Arc<Connection>>>,
    pub(super) between: Between<W>,
    /// What this process keeps for others.
    pub(super) keeps: Arc<Kept>,
}

/// What is kept between frames.
pub(super) struct Between<W> {
    description: Vec<u8>,
    /// The bytes of the largest wire so far.
    largest: u64,
    /// The last bytes of the next frame, if they have come already.
    body: Option<Body<W>>,
}

impl<W> Default for Between<W> {
    fn default() -> Self {
        Self { description: Vec::new(), largest: 0, body: None }
    }
}

impl<W: WireFrame> ReadsFrames for Reader<W> {
    fn room(&mut self, mut begin: &[u8], length: usize) -> Option<&mut [u8]> {
        let head = Head::read(&mut begin).ok()?;
        let body = match head.kind {
            Kind::Block if length as u64 == head.length => {
                let mut block = self.connection.spare();
                block.resize(length, 0);
                Body::Block(block)
            }
            Kind::ValidWire if length as u64 == head.numbers => Body::wire(begin, length)?,
            _ => return None,
        };
        Some(self.between.body.insert(body).bytes_mut())
    }

    fn frame(&mut self, from: &mut dyn Read) -> bool {
        let mut between = std::mem::take(&mut self.between);
        let read = self.read_frame(&mut Stream { from, between: &mut between });
        self.between = between;
        self.connection.hear();
        read.map_err(|end| self.end(end)).is_ok()
    }
}

/// A line, and what is kept between its frames.
struct Stream<'a, W> {
    from: &'a mut dyn Read,
    between: &'a mut Between<W>,
}

impl<W: WireFrame> Reader<W> {
    /// The other process or the connection has ended. Then its ranks have stopped.
    fn end(&self, end: io::Error) {
        if end.kind() == ErrorKind::InvalidData {
            self.fail(FabricError::Failed(Problem::because(
                format!("process {} sends what cannot be read: {end}", self.process),
                end,
            )));
        }
        self.connection.end();
        // The other process must notice it too.
        self.connection.close();
        for rank in &self.theirs {
            self.deliveries.deliver_to_all(*rank, || Content::Stopped);
        }
        self.tell(Heard::Ended(self.connection.loss()));
        self.deliveries.alarm.go_off();
        for connection in self.connections.iter().flatten() {
            connection.hurry();
        }
    }

    fn read_frame(&self, stream: &mut Stream<'_, W>) -> io::Result<()> {
        let head = Head::read(stream.from)?;
        self.limits.check(&head, W::as_tensor().is_some())?;
        match head.kind {
            Kind::Wire | Kind::ValidWire => self.wire(&head, stream),
            Kind::Description => {
                let mut description = Vec::new();
                read_description(&head, stream, &mut description)?;
                self.deliver(&head, Content::Description(head.tag, description))
            }
            Kind::Block => {
                let block = self.read_block(&head, stream)?;
                self.deliver(&head, Content::Block(head.tag, block))
            }
            Kind::Stopped => {
                self.deliver(&head, Content::Stopped)?;
                self.deliveries.alarm.go_off();
                Ok(())
            }
            Kind::Failed => {
                let error = FabricError::failed(text(&head, stream)?);
                self.deliver(&head, Content::Failed(Arc::new(error)))
            }
            Kind::Call => {
                let call = text(&head, stream)?;
                if let Err(error) = self.calls.theirs(self.process, call) {
                    self.fail(error);
                }
                Ok(())
            }
            Kind::Part => {
                let mut part = Vec::new();
                read(stream.from, head.length, &mut part)?;
                self.tell(Heard::Part(head.call.number, part));
                Ok(())
            }
            Kind::Rejoins => {
                let (lost, loss) = self.loss(&head, stream)?;
                self.tell(Heard::Rejoins(lost, loss));
                Ok(())
            }
            Kind::Keep => {
                if self.keeps.take(&head, stream.from)? {
                    self.tell(Heard::Kept);
                }
                Ok(())
            }
            Kind::Farewell => {
                let cause = text(&head, stream)?;
                self.tell(Heard::Farewell(cause));
                Ok(())
            }
        }
    }

    /// The process that was lost, and how.
    fn loss(&self, head: &Head, stream: &mut Stream<'_, W>) -> io::Result<(u32, ProcessLoss)> {
        let lost = head.call.number;
        if lost >= self.connections.len() as u64 {
            return Err(invalid(format!("the loss of process {lost}, which there is not")));
        }
        let mut bytes = Vec::new();
        read(stream.from, head.length, &mut bytes)?;
        let loss = match bytes[..] {
            [byte] => ProcessLoss::from_byte(byte),
            _ => None,
        };
        let loss = loss.ok_or_else(|| invalid("a loss of no known kind"))?;
        Ok((lost as u32, loss))
    }

    fn read_block(&self, head: &Head, stream: &mut Stream<'_, W>) -> io::Result<Vec<u8>> {
        if let Some(Body::Block(block)) = stream.between.body.take() {
            return Ok(block);
        }
        let mut block = self.connection.spare();
        match head.numbers {
            0 => read(stream.from, head.length, &mut block)?,
            _ => self.connection.take(head, &mut block)?,
        }
        Ok(block)
    }

    fn wire(&self, head: &Head, stream: &mut Stream<'_, W>) -> io::Result<()> {
        let mut description = std::mem::take(&mut stream.between.description);
        read_description(head, stream, &mut description)?;
        let wire = match stream.between.body.take() {
            Some(Body::Wire(tensor, form)) => Ok((form.wire)(tensor)),
            _ => Incoming::read(stream.from, &description, head.numbers, &mut stream.between.largest)?,
        };
        stream.between.description = description;
        let mut is_good = [1];
        if head.kind == Kind::Wire {
            stream.from.read_exact(&mut is_good)?;
        }
        if is_good == [0] {
            // The sender could not write it. The next frame says why.
            return Ok(());
        }
        let source = match wire {
            Ok(wire) => return self.deliver(head, Content::Wire(head.tag, wire)),
            Err(source) => source,
        };
        let [from, to] = head.route;
        let tag = head.tag.0;
        let error = FabricError::Failed(Problem::because(
            format!("rank {to} cannot read the wire with tag {tag:#x} from rank {from}: {source}"),
            source,
        ));
        // If the other process cannot be told, it will see the connection end.
        let _ = self.connection.tell_failed([to, from], head.call, head.tag, &error);
        self.deliver(head, Content::Failed(Arc::new(error)))
    }

    /// Puts a packet into its rank's inbox.
    fn deliver(&self, head: &Head, content: Content<W>) -> io::Result<()> {
        let [from, to] = head.route;
        let inbox = self.deliveries.inbox(to);
        let inbox = inbox
            .filter(|_| self.theirs.contains(&from))
            .ok_or_else(|| invalid(format!("a frame from rank {from} to rank {to}")))?;
        let call = head.call;
        // A rank that has stopped does not need it.
        let _ = inbox.send(Packet::new(from, call, content));
        Ok(())
    }

    /// Ends all waits: of this process's ranks, and of calls to all processes.
    fn fail(&self, error: FabricError) {
        let error = Arc::new(error);
        self.deliveries.deliver_to_all(self.theirs[0], || Content::Failed(Arc::clone(&error)));
        self.tell(Heard::Failed(error));
        self.deliveries.alarm.go_off();
    }

    fn tell(&self, heard: Heard) {
        // If nobody listens, this process is about to end.
        let _ = self.heard.send((self.process, heard));
    }
}

fn read_description<W>(head: &Head, stream: &mut Stream<'_, W>, into: &mut Vec<u8>) -> io::Result<()> {
    if head.length > DESCRIPTION {
        return Err(invalid(format!("a description of {} bytes", head.length)));
    }
    read(stream.from, head.length, into)
}

/// The text of a frame, without characters that control a terminal.
fn text<W>(head: &Head, stream: &mut Stream<'_, W>) -> io::Result<String> {
    let mut bytes = Vec::new();
    read(stream.from, head.length, &mut bytes)?;
    Ok(plain(&String::from_utf8_lossy(&bytes)))
}
