//! The engine's inboxes, channels and ends of ranks: the same files.
#![allow(dead_code, reason = "the rest of the engine uses it")]

#[path = "../../../../src/fabric/alarm.rs"]
mod alarm;
#[path = "../../../../src/fabric/call.rs"]
mod call;
#[path = "../../../../src/fabric/carrier.rs"]
mod carrier;
#[path = "../../../../src/fabric/channels/mod.rs"]
mod channels;
#[path = "../../../../src/fabric/end.rs"]
mod end;
#[path = "../../../../src/fabric/feed.rs"]
mod feed;
#[path = "../../../../src/fabric/inbox.rs"]
mod inbox;
#[path = "../../../../src/fabric/packet.rs"]
mod packet;
#[path = "../../../../src/fabric/pause.rs"]
mod pause;
#[path = "../../../../src/fabric/transport.rs"]
mod transport;

mod orders;
mod stops;

use alarm::Alarm;
use call::{Call, Tag};
use carrier::{Carrier, KeepGoing};
use end::End;
use transport::{Taken, Transport};

use crate::error::{Error, Result};
use crate::id::WorldRank;

/// Runs ranks, each on a thread of its own, in every order in which a thread loses its turn `turns` times,
/// where it need not wait. More of that finds nothing new, but takes long. Each inbox has `room`.
fn every_order_of<const RANKS: usize>(room: usize, turns: usize, ranks: [fn(End<u32>); RANKS]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(turns);
    model.check(move || {
        // None waits awake: there are too few cores for the threads.
        let ends = channels::connect(RANKS as u32, usize::MAX, room);
        let mut threads: Vec<_> = ends.into_iter().zip(ranks).collect();
        let (end, rank) = threads.remove(0);
        let threads: Vec<_> =
            threads.into_iter().map(|(end, rank)| loom::thread::spawn(move || rank(end))).collect();
        rank(end);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

/// Which rank has stopped, as this result says.
fn gone<T: std::fmt::Debug>(result: Result<T>) -> Option<u32> {
    match result {
        Ok(_) => None,
        Err(Error::PeerGone(rank)) => Some(rank.0),
        Err(error) => panic!("another error: {error:?}"),
    }
}
