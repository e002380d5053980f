//! Connects to a process that listens, or will listen soon.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::gate::{Gate, Purpose, Rebuff, Side, Talk, knock, secured};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects by `connect`, which may take so long, and is let in by the process `to`. Where nobody listens
/// yet, or where it is sent away because too many have come at once, it comes again until the deadline, if it
/// `goes_on` after such an error.
pub(super) fn reach(
    (connect, goes_on): (
        impl Fn(Duration) -> io::Result<TcpStream>,
        impl Fn(&io::Error) -> bool,
    ),
    gate: &Gate,
    to: (u32, Purpose),
    deadline: Instant,
) -> Result<(Channel, Talk), Rebuff> {
    loop {
        let time = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
        let error = match connect(time) {
            Ok(stream) => match knock(stream, gate, to, deadline) {
                Err(Rebuff::Failed(error)) if is_sent_away(&error) => error,
                Err(rebuff) => return Err(rebuff),
                // The other process is told to be refused.
                Ok((channel, talk)) if talk.wants_tls(Side::Listens) != gate.tls => {
                    return Ok((channel, talk));
                }
                Ok((channel, talk)) => {
                    let channel = secured(channel, &talk, gate, Side::Connects, deadline)?;
                    return Ok((channel, talk));
                }
            },
            Err(error) => error,
        };
        if !goes_on(&error) || Instant::now() + PAUSE >= deadline {
            return Err(Rebuff::Unreached(error));
        }
        thread::sleep(PAUSE);
    }
}

/// Whether the other process has reset the connection.
fn is_sent_away(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
