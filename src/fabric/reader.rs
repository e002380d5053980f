//! The receiving end of a socket to another process: a thread that puts what comes where it belongs.

use std::io::{self, BufReader, ErrorKind, Read};
use std::net::TcpStream;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_channel::Sender;

use super::inbox::{Door, Packet};
use super::link::{BUFFER, Head, Kind, Link};
use super::{Alarm, WireFrame};
use crate::id::Rank;

/// The longest description of a wire.
const DESCRIPTION: u64 = 1 << 12;

/// What one process tells another.
#[derive(Debug)]
pub(super) enum Word {
    /// A block.
    Block(Vec<u8>),
    /// That it leaves, and why if it is for a failure.
    Farewell(String),
}

/// Where what a process sends belongs.
pub(super) struct Reader<W> {
    pub(super) link: Arc<Link>,
    /// The inboxes of this process's ranks, the first of which is `first`.
    pub(super) doors: Vec<Door<W>>,
    pub(super) first: Rank,
    /// The other process's ranks.
    pub(super) theirs: Range<u32>,
    /// What the other process itself says. Closed when it has ended.
    pub(super) words: Sender<Word>,
    /// Rings when one of the other's ranks has stopped, once the inboxes tell.
    pub(super) alarm: Alarm,
}

impl<W: WireFrame> Reader<W> {
    /// Reads until the other process ends, or the connection does. Then its ranks have stopped.
    pub(super) fn run(self, stream: TcpStream) {
        let mut stream = BufReader::with_capacity(BUFFER, stream);
        let mut description = Vec::new();
        let read = || while self.frame(&mut stream, &mut description).is_ok() {};
        // A wire of the user's own may panic: that too is an end that has to be told.
        drop(catch_unwind(AssertUnwindSafe(read)));
        // It may be that only what came was of no use: the other process has to learn of it too.
        self.link.close();
        for rank in self.theirs.clone().map(Rank) {
            self.tell_all(rank);
        }
        self.alarm.ring();
    }

    fn frame(&self, stream: &mut BufReader<TcpStream>, description: &mut Vec<u8>) -> io::Result<()> {
        let head = Head::read(stream)?;
        match head.kind {
            Kind::Wire => {
                read(stream, head.length.min(DESCRIPTION), description)?;
                let wire = W::read(description, stream)?;
                self.deliver(&head, Packet::Wire(head.tag, wire))
            }
            Kind::Header => {
                let mut description = Vec::new();
                read(stream, head.length.min(DESCRIPTION), &mut description)?;
                self.deliver(&head, Packet::Header(head.tag, description))
            }
            Kind::Bytes => {
                let mut block = self.link.spare();
                read(stream, head.length, &mut block)?;
                self.deliver(&head, Packet::Bytes(block))
            }
            Kind::Gone => {
                self.deliver(&head, Packet::Gone)?;
                self.alarm.ring();
                Ok(())
            }
            Kind::Word | Kind::Farewell => {
                let mut block = Vec::new();
                read(stream, head.length, &mut block)?;
                let word = match head.kind {
                    Kind::Word => Word::Block(block),
                    _ => Word::Farewell(String::from_utf8_lossy(&block).into_owned()),
                };
                // Whoever listens no more is on its way out.
                let _ = self.words.send(word);
                Ok(())
            }
        }
    }

    /// Puts a packet into the inbox of the rank it is for.
    fn deliver(&self, head: &Head, packet: Packet<W>) -> io::Result<()> {
        let [from, to] = head.route;
        let door = to
            .index()
            .checked_sub(self.first.index())
            .and_then(|index| self.doors.get(index));
        let door = door
            .filter(|_| self.theirs.contains(&from.0))
            .ok_or(ErrorKind::InvalidData)?;
        // A rank that has stopped needs nothing.
        let _ = door.send((from, packet));
        Ok(())
    }

    /// Tells all of this process's ranks that one of the other's has stopped.
    fn tell_all(&self, rank: Rank) {
        for door in &self.doors {
            // A rank that has stopped needs no word.
            let _ = door.send((rank, Packet::Gone));
        }
    }
}

/// Reads so many bytes. Memory is made as they come: a length that is wrong costs nothing.
fn read(stream: &mut impl Read, length: u64, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    match stream.take(length).read_to_end(into)? as u64 {
        read if read == length => Ok(()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}
