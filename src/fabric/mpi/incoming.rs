//! What one process sends: messages become frames, and frames go to their reader.
//!
//! A large frame comes in two messages: its beginning, and then its numbers or its block, which are received
//! straight into the memory where they stay. Nothing here waits. So while a large message of one process is
//! on its way, messages of others are received.

use std::io;
use std::mem;
use std::sync::Arc;

use super::link::Link;
use super::messages::{Arrived, Receiving};
use crate::fabric::processes::{ReadsFrames, frame_length};

/// What comes from one process.
pub(super) struct Incoming {
    link: Arc<Link>,
    /// `None` if nobody wants to know what comes.
    reader: Option<Box<dyn ReadsFrames>>,
    /// The reader knows that its line has ended.
    has_ended: bool,
    /// The current frame as far as messages have begun to come. Only the first bytes count.
    frame: Vec<u8>,
    begun: usize,
    /// How many of its bytes are in the reader's memory.
    aside: usize,
    receiving: Option<Receiving>,
}

impl Incoming {
    pub(super) fn new(link: Arc<Link>, reader: Option<Box<dyn ReadsFrames>>) -> Self {
        Self {
            link,
            has_ended: reader.is_none(),
            reader,
            frame: Vec::new(),
            begun: 0,
            aside: 0,
            receiving: None,
        }
    }

    /// Whether a message is on its way.
    pub(super) fn is_receiving(&self) -> bool {
        self.receiving.is_some()
    }

    /// Does what it can without waiting. Returns whether a message has come.
    pub(super) fn advance(&mut self) -> bool {
        if let Some(receiving) = &mut self.receiving {
            let is_done = receiving.is_done();
            if is_done {
                self.receiving = None;
                self.deliver();
            }
            return is_done;
        }
        let arrived = self.link.next();
        let has_come = arrived.is_some();
        if let Some(arrived) = arrived {
            self.receive(arrived);
        }
        has_come
    }

    fn receive(&mut self, arrived: Arrived) {
        let length = arrived.length();
        if length == 0 {
            arrived.take(&mut []);
            return self.end();
        }
        let (begin, all) = (&self.frame[..self.begun], self.begun + length);
        let is_last = frame_length(begin) == Some(all as u64);
        let reader = self.reader.as_mut().filter(|_| is_last && !self.has_ended);
        let into = match reader.and_then(|reader| reader.room(begin, length)) {
            Some(room) => {
                self.aside = length;
                room
            }
            None => {
                if self.frame.len() < all {
                    self.frame.resize(all, 0);
                }
                &mut self.frame[mem::replace(&mut self.begun, all)..all]
            }
        };
        // SAFETY: it is on the heap, in this frame or with the reader. Both are here until the message is
        // there, and are used only then.
        #[allow(unsafe_code, reason = "MPI writes to the memory after this call")]
        let mut receiving = unsafe { arrived.start(into) };
        if receiving.is_done() {
            self.deliver();
        } else {
            self.receiving = Some(receiving);
        }
    }

    /// Gives the reader the frame, if it is whole.
    fn deliver(&mut self) {
        let begin = &self.frame[..self.begun];
        // What has no length is no frame. The reader says so.
        let length = frame_length(begin).unwrap_or(0);
        if (self.begun + self.aside) as u64 >= length {
            if let Some(reader) = self.reader.as_mut().filter(|_| !self.has_ended) {
                self.has_ended = !reader.frame(&mut &begin[..]);
            }
            (self.begun, self.aside) = (0, 0);
        }
    }

    /// Tells the reader that its line has ended.
    pub(super) fn end(&mut self) {
        if !mem::replace(&mut self.has_ended, true)
            && let Some(reader) = &mut self.reader
        {
            reader.frame(&mut io::empty());
        }
    }
}

impl Drop for Incoming {
    /// MPI may still write to memory, if the end of the run has not waited for all.
    fn drop(&mut self) {
        if self.receiving.is_some() {
            mem::forget((self.reader.take(), mem::take(&mut self.frame)));
        }
    }
}
