//! A process that ends while the others wait for its gradients, under `mpirun`.

use std::io::Write;
use std::process::exit;
use std::sync::Arc;
use std::thread;

use pipewright::data::DataSource;
use pipewright::fabric::Membership;
use pipewright::id::MicroBatch;
use pipewright::schedule::Schedule;
use pipewright::stages::{Shape, Tensor};
use pipewright_mpi::MpiMembership;

use super::*;
use crate::common::{Recipe, recipe};

/// The variable that tells a process of these tests how process 1 ends.
const END: &str = "PIPEWRIGHT_TEST_END";

const PROCESSES: u32 = 3;

/// After this time the other processes wait in the reduction. If they do not, the test is only weaker.
const LATER: Duration = Duration::from_millis(200);

/// Data that ends process 1 in the second step.
struct Ending {
    data: Arc<dyn DataSource>,
    end: String,
}

impl DataSource for Ending {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        if step == 1 && micro_batch.0 == 1 {
            thread::sleep(LATER);
            assert!(self.end != "panics", "the disk is on fire");
            std::process::abort();
        }
        self.data.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.data.shapes()
    }

    fn is_endless(&self) -> bool {
        true
    }
}

/// Three replicas of one stage, in three processes. What they print of their failure.
fn ended(end: &str) -> Ended {
    let (mut command, folder) = (Command::new("mpirun"), tempfile::TempDir::new().unwrap());
    command
        .env("OMPI_MCA_orte_tmpdir_base", folder.path())
        .args(["--allow-run-as-root", "--oversubscribe", "-n", &PROCESSES.to_string()])
        .arg(std::env::current_exe().unwrap())
        .args(["mpi_reductions::a_replica", "--exact", "--nocapture", "--include-ignored"])
        .env(END, end);
    let ended = Started::new(command).end();
    drop(folder);
    ended
}

#[test]
#[ignore = "the others start it"]
fn a_replica() {
    let Ok(end) = std::env::var(END) else { return };
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    let membership = MpiMembership {
        process: number("OMPI_COMM_WORLD_RANK"),
        processes: number("OMPI_COMM_WORLD_SIZE"),
        deadline: PATIENCE,
        silence: Membership::SILENCE,
    };
    let world = membership.join("the same").unwrap();
    let plain = recipe(1, false, PROCESSES);
    let recipe = Recipe {
        data: Arc::new(Ending { data: Arc::clone(&plain.data), end }),
        replicas: PROCESSES,
        ..plain
    };
    let schedule = Schedule::named("gpipe", 1, PROCESSES).unwrap();
    let mut pipeline = recipe.builder(schedule).world(world).launch().unwrap();
    pipeline.step().expect("the first step");
    let failed = pipeline.step().expect_err("process 1 ends");
    // In one piece: all processes write to the same place.
    let line = format!("process {}: {failed}\n", membership.process);
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    drop(pipeline);
    exit(1);
}

#[test]
fn a_process_that_dies_in_a_reduction_ends_the_job_and_is_named() {
    let ended = ended("dies");
    assert_ne!(ended.status, Some(0));
    assert!(ended.stderr.contains("process rank 1"), "{}", ended.stderr);
    assert!(ended.stderr.contains("signal 6"), "{}", ended.stderr);
}

#[test]
fn the_others_in_a_reduction_are_told_why_a_process_fails() {
    let ended = ended("panics");
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    for process in [0, 2] {
        let line = format!("process {process}: process 1: ");
        assert!(ended.stderr.contains(&line), "{}", ended.stderr);
    }
    assert!(ended.stderr.contains("the disk is on fire"), "{}", ended.stderr);
}
