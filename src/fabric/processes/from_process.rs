//! The receiving end of a line: bytes become frames, and frames go to their reader.

use std::io::{self, Read};
use std::mem;

use super::head::frame_length;

/// Reads what one process sends.
pub(super) trait ReadsFrames: Send {
    /// Waits for a frame and delivers it. Returns false when the line has ended. All are told then, and there
    /// is nothing more to read.
    fn frame(&mut self, from: &mut dyn Read) -> bool;

    /// Memory for the last `length` bytes of a frame that begins with `begin`. The caller fills it, and then
    /// calls [`ReadsFrames::frame`] with the beginning alone. `None`: all bytes are to be given to `frame`.
    fn room(&mut self, begin: &[u8], length: usize) -> Option<&mut [u8]>;
}

/// Takes in what another process sends, and delivers it to the ranks of this one.
///
/// A thread that waits for bytes calls [`FromProcess::read`] again and again. A line that is told of bytes
/// that have come calls [`FromProcess::room`] and [`FromProcess::filled`], or [`FromProcess::take`]: none of
/// them waits. By default nobody wants to know what comes.
#[derive(Default)]
pub struct FromProcess {
    reader: Option<Box<dyn ReadsFrames>>,
    /// The reader knows that the line has ended.
    has_ended: bool,
    /// The beginning of a frame. Only the first bytes have come.
    bytes: Vec<u8>,
    come: usize,
    room: Option<Room>,
}

/// Memory that was given for bytes to come.
enum Room {
    /// Behind the beginning of the frame.
    Behind(usize),
    /// The reader's, for the rest of the frame.
    Readers,
}

impl FromProcess {
    pub(super) fn new(reader: Box<dyn ReadsFrames>) -> Self {
        Self { reader: Some(reader), ..Self::default() }
    }

    /// Waits for a frame, and takes it. Returns false when the stream has ended or has sent what is no frame:
    /// then there is nothing more to read.
    pub fn read(&mut self, stream: &mut dyn Read) -> bool {
        self.reader.as_mut().is_some_and(|reader| reader.frame(stream))
    }

    /// Memory for the next `length` bytes of the line. The caller fills it, and then calls
    /// [`FromProcess::filled`]. If they are all numbers of a wire, or all bytes of a block, this is the
    /// memory in which they stay. Nobody frees, moves or uses it before they are there, unless this is
    /// dropped.
    pub fn room(&mut self, length: usize) -> &mut [u8] {
        let (begin, all) = (&self.bytes[..self.come], self.come + length);
        let is_last = frame_length(begin) == Some(all as u64);
        let reader = self.reader.as_mut().filter(|_| is_last && !self.has_ended);
        if let Some(room) = reader.and_then(|reader| reader.room(begin, length)) {
            self.room = Some(Room::Readers);
            return room;
        }
        self.room = Some(Room::Behind(length));
        if self.bytes.len() < all {
            self.bytes.resize(all, 0);
        }
        &mut self.bytes[self.come..all]
    }

    /// The bytes are there for which there is room.
    pub fn filled(&mut self) {
        match self.room.take() {
            Some(Room::Behind(length)) => self.come += length,
            Some(Room::Readers) => {
                let come = mem::take(&mut self.come);
                self.deliver(0..come);
            }
            None => {}
        }
        let mut begin = 0;
        while let Some(length) = frame_length(&self.bytes[begin..self.come])
            && length <= (self.come - begin) as u64
        {
            let end = begin + length as usize;
            self.deliver(begin..end);
            begin = end;
        }
        self.bytes.copy_within(begin..self.come, 0);
        self.come -= begin;
    }

    /// These bytes have come. They are copied.
    pub fn take(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.filled();
    }

    /// Nothing more will come, because the line has ended. Bytes that come all the same count for nothing.
    pub fn end(&mut self) {
        if !mem::replace(&mut self.has_ended, true)
            && let Some(reader) = &mut self.reader
        {
            reader.frame(&mut io::empty());
        }
    }

    /// Gives the reader a frame, as far as it does not have it already.
    fn deliver(&mut self, frame: std::ops::Range<usize>) {
        if let Some(reader) = self.reader.as_mut().filter(|_| !self.has_ended) {
            self.has_ended = !reader.frame(&mut &self.bytes[frame]);
        }
    }
}

impl std::fmt::Debug for FromProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FromProcess").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}
