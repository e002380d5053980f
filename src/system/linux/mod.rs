//! Linux: what it tells of connections, files as memory, and reading ahead.

mod connection;
mod map;

use std::fs::File;
use std::num::NonZero;

use rustix::fs::{Advice, fadvise};

pub(crate) use connection::{end_when_silent, is_taken, silent_for};
pub(crate) use map::Map;

/// Asks the system to read a part of a file ahead. What it does not have yet then comes at the speed of the
/// disk.
pub(crate) fn read_ahead(file: &File, offset: u64, bytes: u64) {
    // It is only advice.
    let _ = fadvise(file, offset, NonZero::new(bytes), Advice::WillNeed);
}
