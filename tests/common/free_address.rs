//! An address for a test's own use.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use socket2::{Domain, Socket, Type};

/// The ports that are tried. Systems give others to connections that go out, from 32,768 on: one of those
/// would be taken before the test listens there.
const PORTS: Range<u32> = 10_000..32_000;

/// An address at which nobody listens. This does not listen there either: a process that is forked meanwhile
/// would go on with it for a moment.
pub(crate) fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Programs of tests that run at once begin far from each other.
    let first = process::id().wrapping_mul(7919);
    let mut tried = (0..count).map(|_| {
        let next = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, (PORTS.start + next % count) as u16)
    });
    let is_free = |address: &SocketAddrV4| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("it is open");
        socket.bind(&(*address).into()).is_ok()
    };
    tried.find(is_free).expect("a free port").to_string()
}
