//! The processes of a run as threads of one process.
#![allow(unreachable_pub, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use pipewright::fabric::{Membership, World};

/// An address at which nobody listens.
pub fn free_address() -> String {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("it has one").to_string()
}

/// Connects this many processes, and returns what each gets from `call`.
pub fn in_processes<T: Send>(processes: u32, call: impl Fn(World) -> T + Sync) -> Vec<T> {
    let address = free_address();
    let run = &|process| {
        let membership = Membership {
            process,
            processes,
            address: address.clone(),
            deadline: Duration::from_secs(30),
            silence: Membership::SILENCE,
        };
        call(World::join(&membership, "the same").expect("all come"))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..processes)
            .map(|process| scope.spawn(move || run(process)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}
