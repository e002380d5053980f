//! Reductions alone, of 4 KB to 64 MB, between 2 and 4 replicas: between threads of one process, between
//! processes over sockets, and the all-reduce of gloo. `mpi/benches/reduce_by_mpi.rs` measures them over MPI.
//!
//! ```console
//! $ cargo bench --bench reduce -- --python PYTHON_WITH_TORCH
//! ```
//!
//! All ranks begin a reduction at the same tick of the clock, after a pause; the ranks of gloo after a
//! barrier, which serves it better. The time is the slowest rank's, from its complete gradient to the sum. In
//! a round, each way does all sizes in turn. A figure is the median of the rounds' medians. `copy` is the
//! time to copy as many bytes from memory to memory on one core. That is the least for threads: if two ranks
//! share the work, each reads half of both gradients and writes the sum to both.

mod measure;
mod replica;
#[path = "../support/same.rs"]
mod same;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;
use pipewright::fabric::{Membership, World};

use crate::measure::{Result, WARM_UP, count, first_of, median};
use crate::replica::reductions;

#[derive(Debug, Parser)]
struct Arguments {
    /// A Python with torch, for gloo.
    #[arg(long)]
    python: Option<PathBuf>,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, num_args = 1.., default_values_t = [2, 4])]
    replicas: Vec<u32>,
    /// Kilobytes to reduce.
    #[arg(long, num_args = 1.., default_values_t = [4, 64, 256, 1024, 4096, 16384, 65536])]
    sizes: Vec<usize>,
    /// Be one of several processes: the number of this one.
    #[arg(long, requires = "address")]
    process: Option<u32>,
    /// Where the first of these processes listens.
    #[arg(long)]
    address: Option<String>,
}

/// The median of this process's reductions of a size.
fn measured(kilobytes: usize, replicas: u32, world: Option<World>) -> Result<f64> {
    let seconds = reductions(kilobytes * 256, replicas, WARM_UP + count(kilobytes), world, || {})?;
    Ok(median(seconds[WARM_UP..].to_vec()))
}

/// A process's part in the reductions between processes. Prints the medians.
fn member(arguments: &Arguments, process: u32) -> Result<()> {
    let replicas = arguments.replicas[0];
    let membership = Membership {
        process,
        processes: replicas,
        address: arguments.address.clone().unwrap_or_default(),
        deadline: Duration::from_secs(30),
        silence: Membership::SILENCE,
        secret: None,
        tls: false,
        replaces: false,
        fewest: replicas,
    };
    let world = World::join(&membership, "a reduction")?;
    println!("{}", measured(arguments.sizes[0], replicas, Some(world))?);
    Ok(())
}

/// A free address of this machine.
fn free_address() -> Result<(String, u16)> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    Ok((address.ip().to_string(), address.port()))
}

/// The median of the reductions of a size between processes over sockets.
fn over_sockets(kilobytes: usize, replicas: u32) -> Result<f64> {
    let ((host, port), program) = (free_address()?, std::env::current_exe()?);
    let medians = first_of(replicas, |process| {
        let mut command = Command::new(&program);
        command.args(["--address", &format!("{host}:{port}"), "--process", &process.to_string()]);
        command.args(["--sizes", &kilobytes.to_string(), "--replicas", &replicas.to_string()]);
        command
    })?;
    Ok(medians[0])
}

/// The medians of gloo, for all sizes.
fn over_gloo(arguments: &Arguments, python: &Path, replicas: u32) -> Result<Vec<f64>> {
    let (host, port) = free_address()?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/compare_torch/all_reduce.py");
    first_of(replicas, |process| {
        let mut command = Command::new(python);
        let meeting = [("RANK", process.to_string()), ("WORLD_SIZE", replicas.to_string())];
        command.arg(script).envs(meeting);
        command.env("MASTER_ADDR", &host).env("MASTER_PORT", port.to_string());
        command.args(arguments.sizes.iter().map(|kilobytes| format!("{kilobytes}:{}", count(*kilobytes))));
        command
    })
}

/// The seconds in which one core copies `kilobytes` KB from memory to memory.
fn copy(kilobytes: usize) -> f64 {
    let (from, mut to) = (vec![1_u8; kilobytes * 1024], vec![2_u8; kilobytes * 1024]);
    let times = (0..50).map(|_| {
        let started = Instant::now();
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
        started.elapsed().as_secs_f64()
    });
    median(times.collect())
}

/// All figures of one round: a row for each size.
fn round(arguments: &Arguments, replicas: u32) -> Result<Vec<[f64; 4]>> {
    let gloo = match &arguments.python {
        Some(python) => over_gloo(arguments, python, replicas)?,
        None => vec![f64::NAN; arguments.sizes.len()],
    };
    let rows = arguments.sizes.iter().zip(gloo).map(|(&kilobytes, gloo)| {
        let threads = measured(kilobytes, replicas, None)?;
        let sockets = over_sockets(kilobytes, replicas)?;
        Ok([copy(kilobytes), threads, sockets, gloo])
    });
    rows.collect()
}

fn compare(arguments: &Arguments) -> Result<()> {
    println!("milliseconds; medians of {} rounds\n", arguments.rounds);
    println!("| replicas | KB | copy | threads | of copy | sockets | gloo | gloo / sockets |");
    println!("|{}", " --- |".repeat(8));
    for &replicas in &arguments.replicas {
        let rounds = (0..arguments.rounds).map(|_| round(arguments, replicas));
        let rounds = rounds.collect::<Result<Vec<_>>>()?;
        for (index, kilobytes) in arguments.sizes.iter().enumerate() {
            let column = |column: usize| median(rounds.iter().map(|rows| rows[index][column]).collect());
            let [copy, threads, sockets, gloo] = [0, 1, 2, 3].map(|index| 1e3 * column(index));
            println!(
                "| {replicas} | {kilobytes} | {copy:.3} | {threads:.3} | {:.1} | {sockets:.3} | {gloo:.3} \
                 | {:.2} |",
                threads / copy,
                gloo / sockets
            );
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    // `cargo bench` adds this argument itself.
    let arguments = std::env::args().filter(|argument| argument != "--bench");
    let arguments = Arguments::parse_from(arguments);
    match arguments.process {
        Some(process) => member(&arguments, process),
        None => compare(&arguments),
    }
}
