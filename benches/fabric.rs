//! How long a block and a wire take from one process to another: by sockets inside of a machine, by those
//! between machines, and by those that are encrypted. `cargo bench --features tls --bench fabric`; what the
//! build does not have is left out. The machines are one: process 0 has an address of its own.
//! `mpi/benches/fabric_by_mpi.rs` measures the same by MPI.

#[path = "support/between.rs"]
mod between;

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use pipewright::fabric::{Membership, Secret, World};

/// The variable that tells a process of this bench its part: the kind of sockets, its number and process 0's
/// address.
const PART: &str = "PIPEWRIGHT_BENCH_FABRIC";

/// Longer than any part takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    match std::env::var(PART) {
        Ok(part) => take_part(&part),
        Err(_) => start_all(),
    }
}

/// Starts two processes for each fabric.
fn start_all() -> Result<()> {
    let program = std::env::current_exe()?;
    for (kind, host) in [("sockets", "127.0.0.1"), ("tcp", "127.0.0.2"), ("tls", "127.0.0.2")] {
        if kind == "tls" && !cfg!(feature = "tls") {
            continue;
        }
        let address = TcpListener::bind((host, 0))?.local_addr()?;
        let start = |process| {
            let part = format!("{kind} {process} {address}");
            Command::new(&program).env(PART, part).spawn()
        };
        for child in [start(0)?, start(1)?] {
            ended(child)?;
        }
    }
    Ok(())
}

fn ended(mut child: Child) -> Result<()> {
    match child.wait()?.success() {
        true => Ok(()),
        false => Err("a process failed".into()),
    }
}

/// One of two processes.
fn take_part(part: &str) -> Result<()> {
    let [kind, process, address] = part.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("{PART} is {part}").into());
    };
    between::measure(kind, by_sockets(process.parse()?, address, kind == "tls")?)
}

fn by_sockets(process: u32, address: &str, tls: bool) -> Result<World> {
    let membership = Membership {
        process,
        processes: 2,
        address: address.to_owned(),
        deadline: PATIENCE,
        silence: Membership::SILENCE,
        secret: tls.then(|| Secret::new("a secret of this bench")).transpose()?,
        tls,
        replaces: false,
        fewest: 2,
    };
    Ok(World::join(&membership, "a bench")?)
}
