//! Reductions alone, of 4 KB to 64 MB, between 2 and 4 replicas: between threads of one process, between
//! processes over sockets and over MPI, and the all-reduce of gloo and of MPI.
//!
//! ```console
//! $ cargo bench --features mpi --bench reduce -- --python PYTHON_WITH_TORCH
//! ```
//!
//! All ranks begin a reduction at the same tick of the clock, after a pause; the ranks of gloo after a
//! barrier, which serves it better. Over MPI, ours and `MPI_Allreduce` take turns in the same processes. The
//! time is the slowest rank's, from its complete gradient to the sum. In a round, each way does all sizes in
//! turn. A figure is the median of the rounds' medians. `copy` is the time to copy as many bytes from memory
//! to memory on one core. That is the least for threads: if two ranks share the work, each reads half of both
//! gradients and writes the sum to both.

#[cfg(feature = "mpi")]
mod by_mpi;
mod replica;
#[path = "../support/same.rs"]
mod same;

#[cfg(not(feature = "mpi"))]
mod by_mpi {
    pub(crate) fn member(_kilobytes: usize, _replicas: u32) -> crate::Result<()> {
        Err("built without MPI".into())
    }
}

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use pipewright::fabric::{Membership, World};

use crate::replica::reductions;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Reductions that are not measured, before the others.
const WARM_UP: usize = 5;

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
    /// Be one of several processes that `mpirun` has started.
    #[arg(long)]
    mpi: bool,
}

/// How many reductions of a size are measured.
fn count(kilobytes: usize) -> usize {
    if kilobytes < 4096 { 60 } else { 15 }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
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

/// Runs `processes` processes. Returns the numbers that the first one prints.
fn first_of(processes: u32, command: impl Fn(u32) -> Command) -> Result<Vec<f64>> {
    let children = (0..processes).map(|process| command(process).stdout(Stdio::piped()).spawn());
    let children = children.collect::<std::io::Result<Vec<_>>>()?;
    let mut said = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("a process failed: {}", output.status).into());
        }
        said.push(String::from_utf8(output.stdout)?);
    }
    let numbers = said[0].split_whitespace().map(str::parse);
    Ok(numbers.collect::<std::result::Result<_, _>>()?)
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

/// The medians over MPI of a size: of our reductions, and of `MPI_Allreduce`.
fn over_mpi(kilobytes: usize, replicas: u32) -> Result<Vec<f64>> {
    if !cfg!(feature = "mpi") {
        return Ok(vec![f64::NAN; 2]);
    }
    let program = std::env::current_exe()?;
    first_of(1, |_| {
        let mut mpirun = Command::new("mpirun");
        mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", &replicas.to_string()]);
        mpirun.arg(&program).args(["--mpi", "--sizes", &kilobytes.to_string()]);
        mpirun.args(["--replicas", &replicas.to_string()]);
        mpirun
    })
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
fn round(arguments: &Arguments, replicas: u32) -> Result<Vec<[f64; 6]>> {
    let gloo = match &arguments.python {
        Some(python) => over_gloo(arguments, python, replicas)?,
        None => vec![f64::NAN; arguments.sizes.len()],
    };
    let rows = arguments.sizes.iter().zip(gloo).map(|(&kilobytes, gloo)| {
        let threads = measured(kilobytes, replicas, None)?;
        let (sockets, mpi) = (over_sockets(kilobytes, replicas)?, over_mpi(kilobytes, replicas)?);
        Ok([copy(kilobytes), threads, sockets, gloo, mpi[0], mpi[1]])
    });
    rows.collect()
}

fn compare(arguments: &Arguments) -> Result<()> {
    println!("milliseconds; medians of {} rounds\n", arguments.rounds);
    println!(
        "| replicas | KB | copy | threads | of copy | sockets | gloo | gloo / sockets | mpi | MPI_Allreduce \
         | mpi / it |"
    );
    println!("|{}", " --- |".repeat(11));
    for &replicas in &arguments.replicas {
        let rounds = (0..arguments.rounds).map(|_| round(arguments, replicas));
        let rounds = rounds.collect::<Result<Vec<_>>>()?;
        for (index, kilobytes) in arguments.sizes.iter().enumerate() {
            let column = |column: usize| median(rounds.iter().map(|rows| rows[index][column]).collect());
            let [copy, threads, sockets, gloo, mpi, theirs] =
                [0, 1, 2, 3, 4, 5].map(|index| 1e3 * column(index));
            println!(
                "| {replicas} | {kilobytes} | {copy:.3} | {threads:.3} | {:.1} | {sockets:.3} | {gloo:.3} \
                 | {:.2} | {mpi:.3} | {theirs:.3} | {:.2} |",
                threads / copy,
                gloo / sockets,
                mpi / theirs
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
        _ if arguments.mpi => by_mpi::member(arguments.sizes[0], arguments.replicas[0]),
        Some(process) => member(&arguments, process),
        None => compare(&arguments),
    }
}
