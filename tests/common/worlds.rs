//! The processes of a run as threads of one process.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::thread;
use std::time::Duration;

use pipewright::fabric::{Membership, World};

#[path = "free_address.rs"]
mod free_address;

pub(crate) use free_address::free_address;

/// Connects this many processes, and returns what each gets from `call`.
pub fn in_processes<T: Send>(processes: u32, call: impl Fn(World) -> T + Sync) -> Vec<T> {
    in_processes_like(&place(processes, free_address()), call)
}

/// What the processes of a run have in common, on one machine.
pub fn place(processes: u32, address: String) -> Membership {
    Membership {
        process: 0,
        processes,
        address,
        deadline: Duration::from_secs(30),
        silence: Membership::SILENCE,
        secret: None,
        tls: false,
        replaces: false,
        fewest: processes,
    }
}

/// As [`in_processes`], for processes that differ from `first` only by their numbers.
pub fn in_processes_like<T: Send>(first: &Membership, call: impl Fn(World) -> T + Sync) -> Vec<T> {
    let run = &|process| {
        let membership = Membership { process, ..first.clone() };
        call(World::join(&membership, "the same").expect("all come"))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..first.processes).map(|process| scope.spawn(move || run(process))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}
