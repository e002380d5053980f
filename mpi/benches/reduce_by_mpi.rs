//! Reductions alone over MPI, beside `MPI_Allreduce`: what `benches/reduce` measures between threads and over
//! sockets.
//!
//! ```console
//! $ cargo bench -p pipewright-mpi --features mpi --bench reduce_by_mpi
//! ```
//!
//! Ours and `MPI_Allreduce` take turns in the same processes. All ranks begin at the same tick of the clock,
//! after a pause. The time is the slowest rank's. A figure is the median of the rounds' medians.

#[path = "../../benches/reduce/measure.rs"]
mod measure;
#[path = "../../benches/reduce/replica.rs"]
mod replica;
#[path = "../../benches/support/same.rs"]
mod same;

use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pipewright::fabric::Membership;
use pipewright_mpi::MpiMembership;

use crate::measure::{Result, WARM_UP, count, first_of, median};
use crate::replica::{await_tick, reductions};

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, num_args = 1.., default_values_t = [2, 4])]
    replicas: Vec<u32>,
    /// Kilobytes to reduce.
    #[arg(long, num_args = 1.., default_values_t = [4, 64, 256, 1024, 4096, 16384, 65536])]
    sizes: Vec<usize>,
    /// Be one of several processes that `mpirun` has started.
    #[arg(long)]
    member: bool,
}

/// A process's part in the reductions of a size. Prints the medians of ours and theirs.
fn member(kilobytes: usize, replicas: u32) -> Result<()> {
    let variables = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
    let process = variables.iter().find_map(|name| std::env::var(name).ok());
    let membership = MpiMembership {
        process: process.ok_or("mpirun starts it")?.parse()?,
        processes: replicas,
        deadline: Duration::from_secs(30),
        silence: Membership::SILENCE,
    };
    let world = membership.join("a reduction")?;
    let all = SimpleCommunicator::world();
    let (mut ones, mut sums) = (vec![0.0_f32; kilobytes * 256], vec![0.0_f32; kilobytes * 256]);
    let mut theirs = Vec::new();
    let times = WARM_UP + count(kilobytes);
    let ours = reductions(kilobytes * 256, replicas, times, Some(world), || {
        ones.fill(1.0);
        theirs.push(all_reduce(&all, &ones, &mut sums));
        assert!(sums.iter().all(|&sum| sum == replicas as f32), "a sum is wrong");
    })?;
    println!("{} {}", median(ours[WARM_UP..].to_vec()), median(theirs[WARM_UP..].to_vec()));
    Ok(())
}

/// The seconds of the slowest process. All begin at the same tick, as ours.
fn all_reduce(all: &SimpleCommunicator, ones: &[f32], sums: &mut [f32]) -> f64 {
    all.barrier();
    await_tick(all.size() as usize);
    let started = Instant::now();
    all.all_reduce_into(ones, sums, SystemOperation::sum());
    let (took, mut slowest) = (started.elapsed().as_secs_f64(), 0.0);
    all.all_reduce_into(&took, &mut slowest, SystemOperation::max());
    slowest
}

/// The medians of a size: of our reductions, and of `MPI_Allreduce`.
fn medians(kilobytes: usize, replicas: u32) -> Result<Vec<f64>> {
    let program = std::env::current_exe()?;
    first_of(1, |_| {
        let mut mpirun = Command::new("mpirun");
        mpirun.args(["--allow-run-as-root", "--oversubscribe", "-n", &replicas.to_string()]);
        mpirun.arg(&program).args(["--member", "--sizes", &kilobytes.to_string()]);
        mpirun.args(["--replicas", &replicas.to_string()]);
        mpirun
    })
}

fn compare(arguments: &Arguments) -> Result<()> {
    println!("milliseconds; medians of {} rounds\n", arguments.rounds);
    println!("| replicas | KB | mpi | MPI_Allreduce | mpi / it |");
    println!("|{}", " --- |".repeat(5));
    for &replicas in &arguments.replicas {
        let round = |_| arguments.sizes.iter().map(|&kilobytes| medians(kilobytes, replicas)).collect();
        let rounds = (0..arguments.rounds).map(round).collect::<Result<Vec<Vec<_>>>>()?;
        for (index, kilobytes) in arguments.sizes.iter().enumerate() {
            let column = |column: usize| median(rounds.iter().map(|rows| rows[index][column]).collect());
            let [ours, theirs] = [0, 1].map(|index| 1e3 * column(index));
            println!("| {replicas} | {kilobytes} | {ours:.3} | {theirs:.3} | {:.2} |", ours / theirs);
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    // `cargo bench` adds this argument itself.
    let arguments = std::env::args().filter(|argument| argument != "--bench");
    let arguments = Arguments::parse_from(arguments);
    match arguments.member {
        true => member(arguments.sizes[0], arguments.replicas[0]),
        false => compare(&arguments),
    }
}
