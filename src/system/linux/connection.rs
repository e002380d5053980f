//! What Linux tells of a connection: whether the other machine has taken what was sent to it, and when it was
//! last heard.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::fs::fstat;
use socket2::Socket;

/// The longest time that Linux counts for which nobody takes what is on the way: 24 days.
const LONGEST: Duration = Duration::from_secs(24 * 24 * 3600);

/// The tables of all connections, one a line.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// Whether the other machine has taken all that was sent on a connection. Its system does that also for a
/// process that is stopped. `None` if that cannot be known.
pub(crate) fn is_taken(socket: &Socket) -> Option<bool> {
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

/// For how long nothing has come from the other machine: no bytes, and not its system's word that it has
/// taken some or is there. `None` if that cannot be known.
pub(crate) fn silent_for(socket: &Socket) -> Option<Duration> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut size = size_of::<libc::tcp_info>() as libc::socklen_t;
    #[allow(unsafe_code, reason = "no crate that is here calls it")]
    // SAFETY: the system writes at most `size` bytes to `info`, and says in `size` how many. All of `info`
    // are plain numbers, which may be 0 where an older system writes less.
    let (done, info) = unsafe {
        let (into, size) = (info.as_mut_ptr().cast(), &raw mut size);
        let done = libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, size);
        (done, info.assume_init())
    };
    let millis = info.tcpi_last_data_recv.min(info.tcpi_last_ack_recv);
    (done == 0).then(|| Duration::from_millis(millis.into()))
}

/// From now on the system ends a connection if nobody has taken for `longest` what is on the way. A read ends
/// after `look`, so that the thread that reads can look when the other machine was last heard.
pub(crate) fn end_when_silent(socket: &Socket, longest: Duration, look: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(longest.min(LONGEST)))?;
    socket.set_read_timeout(Some(look))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_silent_until_a_byte_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut there = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let (mut here, _) = listener.accept().expect("it has come");
        let socket = Socket::from(here.try_clone().expect("a second handle"));
        let silent = || silent_for(&socket).expect("Linux tells");
        let long = loop {
            match silent() {
                time if time >= Duration::from_millis(50) => break time,
                _ => std::thread::yield_now(),
            }
        };
        // A busy machine may look late. Not every time.
        let is_heard = |_| {
            there.write_all(b"?").expect("it is taken");
            here.read_exact(&mut [0]).expect("a byte");
            silent() < long
        };
        assert!((0..100).any(is_heard));
        assert_eq!(
            silent_for(&Socket::from(std::net::UdpSocket::bind("127.0.0.1:0").expect("a port"))),
            None
        );
    }
}
