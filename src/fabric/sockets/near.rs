//! The shortest way to another process: on one machine, a connection of the system itself, which needs no
//! network protocol.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use socket2::Socket;

use super::shared::Shared;

/// So many bytes may be on the way inside a machine: some blocks of a sum over replicas. The system may give
/// less.
#[cfg(target_os = "linux")]
const ROOM: usize = 1 << 20;

/// The connection for frames, given the one over the network, and memory that both processes share.
/// `is_near`: whether the other process is on this machine. One of the two `offers` another connection. Both
/// do this at the same moment.
///
/// # Errors
/// When the other process has gone, or does not answer in time.
pub(super) fn shortest(
    network: TcpStream,
    is_near: bool,
    offers: bool,
    deadline: Duration,
) -> io::Result<(Socket, Option<Shared>)> {
    network.set_nodelay(true)?;
    network.set_read_timeout(Some(deadline))?;
    #[cfg(target_os = "linux")]
    if is_near {
        let near = match offers {
            true => inside::offer(&network, deadline)?,
            false => inside::accept(&network)?,
        };
        if let Some(near) = near {
            near.set_read_timeout(Some(deadline))?;
            let shared = match offers {
                true => Shared::offer(&near)?,
                false => Shared::accept(&near)?,
            };
            near.set_read_timeout(None)?;
            let near = Socket::from(near);
            near.set_send_buffer_size(ROOM)?;
            return Ok((near, shared));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (is_near, offers);
    network.set_read_timeout(None)?;
    Ok((network.into(), None))
}

#[cfg(target_os = "linux")]
mod inside {
    use std::hash::{BuildHasher, RandomState};
    use std::io::{self, Read, Write};
    use std::net::TcpStream;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::time::Duration;

    /// A name, and a secret that shows who was told the name.
    type Place = [u64; 2];

    /// The name is in the network's own space of names: processes with different networks do not meet.
    fn address(place: Place) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("pipewright {:016x}", place[0]))
    }

    /// Waits at a new place for the other process. `None` if it cannot come.
    pub(super) fn offer(mut network: &TcpStream, deadline: Duration) -> io::Result<Option<UnixStream>> {
        let place = [0, 1].map(|half| RandomState::new().hash_one(half));
        // If the system has no such places, the other process cannot come either, and says so.
        let listener = UnixListener::bind_addr(&address(place)?);
        network.write_all(bytemuck::cast_slice(&place))?;
        let mut has_come = [0];
        network.read_exact(&mut has_come)?;
        if has_come == [0] {
            return Ok(None);
        }
        let listener = listener?;
        // It has connected, so nothing here waits for long. Anybody may connect, but not with the secret.
        listener.set_nonblocking(true)?;
        loop {
            let (mut near, _) = listener.accept()?;
            near.set_nonblocking(false)?;
            near.set_read_timeout(Some(deadline))?;
            let mut said = [0; 8];
            if near.read_exact(&mut said).is_ok() && said == place[1].to_ne_bytes() {
                near.set_read_timeout(None)?;
                return Ok(Some(near));
            }
        }
    }

    /// Goes to the place at which the other process waits. `None` if this process cannot reach it.
    pub(super) fn accept(mut network: &TcpStream) -> io::Result<Option<UnixStream>> {
        let mut place: Place = [0; 2];
        network.read_exact(bytemuck::cast_slice_mut(&mut place))?;
        let near = UnixStream::connect_addr(&address(place)?).and_then(|mut near| {
            near.write_all(&place[1].to_ne_bytes())?;
            Ok(near)
        });
        network.write_all(&[u8::from(near.is_ok())])?;
        Ok(near.ok())
    }
}
