//! Whether the other machine has taken what was sent to it: what Linux tells of a connection.

use std::fs;

use rustix::fs::fstat;
use socket2::Socket;

/// The tables of all connections, one a line.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// Whether the other machine has taken all that was sent on a connection. Its system does that also for a
/// process that is stopped. `None` if that cannot be known.
pub(super) fn is_taken(socket: &Socket) -> Option<bool> {
    let inode = fstat(socket).ok()?.st_ino.to_string();
    TABLES.iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        table.lines().find_map(|line| has_taken(line, &inode))
    })
}

/// The same of the connection of a line, if it is this one.
fn has_taken(line: &str, inode: &str) -> Option<bool> {
    let mut columns = line.split_ascii_whitespace();
    let queues = columns.nth(4)?;
    if columns.nth(4)? != inode {
        return None;
    }
    let (sent, _) = queues.split_once(':')?;
    u64::from_str_radix(sent, 16).ok().map(|bytes| bytes == 0)
}
