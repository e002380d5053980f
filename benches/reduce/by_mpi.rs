//! A process's part in reductions over MPI: ours and `MPI_Allreduce`, in turn.

use std::time::{Duration, Instant};

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pipewright::fabric::{Membership, MpiMembership, World};

use crate::replica::{await_tick, reductions};
use crate::{Result, WARM_UP, count, median};

/// Prints the medians of both.
pub(crate) fn member(kilobytes: usize, replicas: u32) -> Result<()> {
    let variables = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
    let process = variables.iter().find_map(|name| std::env::var(name).ok());
    let membership = MpiMembership {
        process: process.ok_or("mpirun starts it")?.parse()?,
        processes: replicas,
        deadline: Duration::from_secs(30),
        silence: Membership::SILENCE,
    };
    let world = World::join_by_mpi(&membership, "a reduction")?;
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
