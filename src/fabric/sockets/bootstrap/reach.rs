//! Connects to a process that listens, or will listen soon.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};

use crate::fabric::sockets::channel::Channel;
use crate::fabric::sockets::handshake::{Gate, Purpose, Rebuff, Talk, knock};
use crate::interrupt::Interrupt;

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// How long an address may be silent until it is tried anew.
const ONE_TRY: Duration = Duration::from_secs(2);

/// How often a wait for the other process looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// What a process knows of process 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// It will listen.
    Comes,
    /// It listens all the time, unless it has ended.
    Listens,
    /// It was lost. Another one will listen.
    Lost,
}

/// Connects by `connect`, which may take so long, and is let in by the process `to`. Where nobody listens
/// yet, or where it is sent away because too many have come at once, it comes again until the deadline, if it
/// `goes_on` after such an error. With `patience` one that listens is given this time, and comes again if it
/// is a stranger: another one may listen later, or elsewhere. It ends with [`Rebuff::Interrupted`] when the
/// process is asked to end.
pub(super) fn reach(
    (mut connect, goes_on): (impl FnMut(Duration) -> io::Result<TcpStream>, impl Fn(&io::Error) -> bool),
    (gate, interrupt): (&Gate, Option<&Interrupt>),
    to: (u32, Purpose),
    (patience, deadline): (Option<Duration>, Instant),
) -> Result<(Channel, Talk), Rebuff> {
    let asked = || interrupt.is_some_and(Interrupt::is_requested);
    loop {
        let time = deadline.saturating_duration_since(Instant::now());
        let come_in = |stream| {
            let until = patience.map_or(deadline, |patience| deadline.min(Instant::now() + patience));
            match interrupt {
                None => knock(stream, gate, to, until),
                Some(interrupt) => closed_by(interrupt, stream, |stream| knock(stream, gate, to, until)),
            }
        };
        let rebuff = match connect(time.clamp(PAUSE, ONE_TRY)).map(come_in) {
            Ok(Ok(entered)) => return Ok(entered),
            _ if asked() => return Err(Rebuff::Interrupted),
            Ok(Err(Rebuff::Failed(error))) if is_sent_away(&error) => Rebuff::Unreached(error),
            Ok(Err(rebuff)) if patience.is_none() => return Err(rebuff),
            Ok(Err(rebuff)) => rebuff,
            Err(error) => Rebuff::Unreached(error),
        };
        let ends = matches!(&rebuff, Rebuff::Unreached(error) if !goes_on(error));
        if ends || Instant::now() + PAUSE >= deadline {
            return Err(rebuff);
        }
        thread::sleep(PAUSE);
    }
}

/// What `enter` returns. The interrupt closes the connection meanwhile: a process that is stopped does not
/// answer, and its connections stay open.
fn closed_by<T>(
    interrupt: &Interrupt,
    stream: TcpStream,
    enter: impl FnOnce(TcpStream) -> Result<T, Rebuff>,
) -> Result<T, Rebuff> {
    let also = stream.try_clone()?;
    let (entered, ended) = bounded::<()>(0);
    thread::scope(|scope| {
        let watch = || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if interrupt.is_requested() {
                    // If it has ended already, nothing is left to do.
                    let _ = also.shutdown(Shutdown::Both);
                    break;
                }
            }
        };
        thread::Builder::new().spawn_scoped(scope, watch)?;
        let result = enter(stream);
        drop(entered);
        result
    })
}

/// Whether the other process has reset the connection.
fn is_sent_away(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}
