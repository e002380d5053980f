//! The shortest way to another process: on one machine, a connection of the system itself, which needs no
//! network protocol. Only Linux has it.

mod shared;
mod slots;

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::channel::Channel;

pub(super) use shared::Shared;

/// The bytes that may be on the way inside a machine: some blocks of a sum over replicas. The system may give
/// less.
const ROOM: usize = 1 << 20;

/// The connection for frames, given the one over the network, and memory that both processes share.
/// `is_near`: whether the other process is on this machine. One of the two `offers` another connection. Both
/// do this at the same moment.
///
/// # Errors
/// When the other process has gone, or does not answer in time.
pub(super) fn shortest(
    network: Arc<Channel>,
    is_near: bool,
    offers: bool,
    deadline: Instant,
) -> io::Result<(Arc<Channel>, Option<Shared>)> {
    network.socket().set_tcp_nodelay(true)?;
    if is_near {
        let near = match offers {
            true => offer(&network, deadline)?,
            false => accept(&network, deadline)?,
        };
        if let Some(near) = near {
            let time = deadline.saturating_duration_since(Instant::now());
            near.set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
            let shared = match offers {
                true => Shared::offer(&near)?,
                false => Shared::accept(&near)?,
            };
            let near = Channel::from(Socket::from(near));
            near.socket().set_send_buffer_size(ROOM)?;
            return Ok((Arc::new(near), shared));
        }
    }
    Ok((network, None))
}

/// A name, and a secret that shows who was told the name. Both are random, and as long.
type Place = [u8; 2 * HALF];
const HALF: usize = 16;

/// The name is in the network's own space of names: processes with different networks do not meet.
fn name(place: &Place) -> String {
    let hex: String = place[..HALF].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("pipewright {hex}")
}

/// Waits at a new place for the other process. `None` if it cannot come.
fn offer(network: &Channel, deadline: Instant) -> io::Result<Option<UnixStream>> {
    let mut place: Place = [0; 2 * HALF];
    getrandom::fill(&mut place)?;
    // If the system has no such places, the other process cannot come either, and says so.
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name(&place))?);
    network.write_all_before(&place, deadline)?;
    let mut has_come = [0];
    network.read_exact_before(&mut has_come, deadline)?;
    if has_come == [0] {
        return Ok(None);
    }
    let listener = listener?;
    // It has connected and has said the secret, so nothing here waits. Others on this machine may have
    // connected too, but do not know the secret.
    listener.set_nonblocking(true)?;
    loop {
        let (mut near, _) = listener.accept()?;
        near.set_nonblocking(true)?;
        let mut said = [0; HALF];
        if near.read(&mut said).is_ok_and(|count| count == HALF) && said == place[HALF..] {
            near.set_nonblocking(false)?;
            return Ok(Some(near));
        }
    }
}

/// Goes to the place at which the other process waits. `None` if this process cannot reach it.
fn accept(network: &Channel, deadline: Instant) -> io::Result<Option<UnixStream>> {
    let mut place: Place = [0; 2 * HALF];
    network.read_exact_before(&mut place, deadline)?;
    let near = connect(&place);
    network.write_all_before(&[u8::from(near.is_ok())], deadline)?;
    Ok(near.ok())
}

/// Connects without waiting: others may have filled the place.
fn connect(place: &Place) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(format!("\0{}", name(place)))?)?;
    socket.set_nonblocking(false)?;
    let mut near = UnixStream::from(OwnedFd::from(socket));
    match near.write(&place[HALF..])? {
        HALF => Ok(near),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}
