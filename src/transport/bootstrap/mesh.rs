//! Each process with each: those of higher numbers connect to those of lower ones.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};

use super::message::{Message, left, receive, send};
use super::{Known, Membership};
use crate::error::{Error, Result};

/// How often it is looked for who has come.
const PAUSE: Duration = Duration::from_millis(2);

/// Connects a process other than 0 with all others.
pub(super) fn connect(
    membership: &Membership,
    known: &Known,
    to_first: TcpStream,
    listener: &TcpListener,
    deadline: Instant,
) -> Result<Vec<Option<TcpStream>>> {
    let Membership {
        process, processes, ..
    } = *membership;
    let mut streams: Vec<Option<TcpStream>> = (0..processes).map(|_| None).collect();
    streams[0] = Some(to_first);
    for peer in 1..process {
        let address = known.addresses[peer as usize];
        let linked = TcpStream::connect_timeout(&address, left(deadline)).and_then(|stream| {
            let pass = known.pass;
            send(&stream, &Message::Link { process, pass })?;
            Ok(stream)
        });
        let stream = linked.map_err(|error| {
            Error::Invalid(format!(
                "process {process} cannot reach process {peer} at {address}: {error}; every process has to be able to \
                 connect to those of lower RANK"
            ))
        })?;
        streams[peer as usize] = Some(stream);
    }
    let mut missing: Vec<u32> = (process + 1..processes).collect();
    if missing.is_empty() {
        return Ok(streams);
    }
    let all = accept(listener, deadline, |stream, message| {
        if let Message::Link { process, pass } = message
            && pass == known.pass
            && let Some(index) = missing.iter().position(|&other| other == process)
        {
            missing.swap_remove(index);
            streams[process as usize] = Some(stream);
        }
        Ok(missing.is_empty())
    })?;
    if !all {
        missing.sort_unstable();
        return Err(Error::Invalid(format!(
            "process {process} was not reached by process {missing:?} in time: every process has to be able to connect to \
             those of lower RANK"
        )));
    }
    Ok(streams)
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
