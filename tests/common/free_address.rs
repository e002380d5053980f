//! An address for a test's own use.

use std::net::{Ipv4Addr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

/// An address at which nobody listens. This does not listen there either: a process that is forked meanwhile
/// would go on with it for a moment.
pub(crate) fn free_address() -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("it is open");
    let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    socket.bind(&any.into()).expect("a free port");
    let address = socket.local_addr().expect("it has one");
    address.as_socket().expect("an address of IPv4").to_string()
}
