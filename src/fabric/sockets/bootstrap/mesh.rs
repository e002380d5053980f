//! Each process with each: those of higher numbers connect to those of lower ones.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use super::message::{Message, left, receive, send};
use super::{Known, list};
use crate::error::{Error, Result};

/// How often it is looked for who has come.
const PAUSE: Duration = Duration::from_millis(2);

/// What it takes.
const CONNECTED: &str = "every process has to be able to connect to those of lower RANK";

/// Connects a process other than 0 with those between 0 and it, and waits for those after it. `streams` are by process.
pub(super) fn connect(
    process: u32,
    known: &Known,
    listener: &TcpListener,
    deadline: Instant,
    streams: &mut [Option<TcpStream>],
) -> Result<()> {
    for peer in 1..process {
        streams[peer as usize] = Some(reach(process, peer, known, deadline)?);
    }
    let mut missing: Vec<u32> = (process + 1..streams.len() as u32).collect();
    let all = missing.is_empty()
        || accept(listener, deadline, |stream, message| {
            if let Message::Link { process, pass } = message
                && pass == known.pass
                && let Some(index) = missing.iter().position(|&other| other == process)
            {
                missing.remove(index);
                streams[process as usize] = Some(stream);
            }
            Ok(missing.is_empty())
        })?;
    if all {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "not reached by process {} in time: {CONNECTED}",
        list(&missing)
    )))
}

/// Connects to a process of a lower number.
fn reach(process: u32, peer: u32, known: &Known, deadline: Instant) -> Result<TcpStream> {
    let address = known.addresses[peer as usize];
    let pass = known.pass;
    let linked = TcpStream::connect_timeout(&address, left(deadline)).and_then(|stream| {
        send(&stream, &Message::Link { process, pass })?;
        Ok(stream)
    });
    linked.map_err(|error| {
        Error::Invalid(format!(
            "cannot reach process {peer} at {address}: {error}; {CONNECTED}"
        ))
    })
}

/// Takes in whoever comes and says something of ours, until `seat` has all it waits for or the deadline has passed: then it gives
/// false. Others, such as a scanner of ports, are let go; one that says nothing keeps nobody waiting.
pub(super) fn accept(
    listener: &TcpListener,
    deadline: Instant,
    mut seat: impl FnMut(TcpStream, Message) -> Result<bool>,
) -> Result<bool> {
    let cannot = |error: io::Error| Error::Invalid(format!("cannot wait for other processes: {error}"));
    listener.set_nonblocking(true).map_err(cannot)?;
    let (came, heard) = unbounded();
    let mut done = seat_all(&heard, &mut seat)?;
    while !done && Instant::now() < deadline {
        match listener.accept() {
            Ok((stream, _)) => {
                let came = came.clone();
                // Without a thread for it, it is as if it had not come yet.
                let _ = thread::Builder::new().spawn(move || {
                    let message = stream
                        .set_nonblocking(false)
                        .and_then(|()| receive(&stream, deadline));
                    if let Ok(message) = message {
                        // Who comes when all are there is not needed.
                        let _ = came.send((stream, message));
                    }
                });
            }
            // Nobody is there, or whoever was has gone again.
            Err(_) => thread::sleep(PAUSE),
        }
        done = seat_all(&heard, &mut seat)?;
    }
    Ok(done)
}

fn seat_all(
    heard: &Receiver<(TcpStream, Message)>,
    seat: &mut impl FnMut(TcpStream, Message) -> Result<bool>,
) -> Result<bool> {
    for (stream, message) in heard.try_iter() {
        if seat(stream, message)? {
            return Ok(true);
        }
    }
    Ok(false)
}
