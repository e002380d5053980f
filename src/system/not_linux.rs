//! As `linux`, where the system has none of it.

use std::fs::File;
use std::io;
use std::time::Duration;

use socket2::Socket;

pub(crate) fn is_taken(_: &Socket) -> Option<bool> {
    None
}

pub(crate) fn silent_for(_: &Socket) -> Option<Duration> {
    None
}

pub(crate) fn end_when_silent(_: &Socket, _longest: Duration, _look: Duration) -> io::Result<()> {
    Ok(())
}

pub(crate) fn read_ahead(_: &File, _offset: u64, _bytes: u64) {}

/// There is none.
#[derive(Debug)]
pub(crate) enum Map {}

impl Map {
    pub(crate) fn of(_: &File, _bytes: usize) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl AsRef<[f32]> for Map {
    fn as_ref(&self) -> &[f32] {
        match *self {}
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        match *self {}
    }
}
