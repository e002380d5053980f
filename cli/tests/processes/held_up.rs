//! A process that holds the others up for too long, in a run that replaces processes.

use super::*;

/// A run that replaces processes, and does not wait long for one that does not move.
const REPLACES: [&str; 13] = [
    "--weights-hash",
    "--set",
    "pipeline.stages=3",
    "--set",
    "pipeline.stall_limit=3",
    "--set",
    "train.print_every=1000000",
    "--set",
    "train.restarts=3",
    "--set",
    "train.snapshot_every=5",
    "--set",
    "launch.deadline=20",
];

/// A long run of three processes.
struct Long {
    place: Place,
    address: String,
    running: Vec<Started>,
}

impl Long {
    fn start() -> Self {
        let mut run = Self { place: Place::new(), address: worlds::free_address(), running: Vec::new() };
        run.running = (0..3).map(|process| run.begin(process)).collect();
        run.place.await_steps();
        run
    }

    fn begin(&self, process: u32) -> Started {
        let args = [&LONG[..], &REPLACES].concat();
        Started::new(self.place.member(process, 3, &self.address, &args))
    }

    /// Stops process 1 until the others have given it up.
    fn stop_second(&mut self) {
        self.running[1].signal("-STOP");
        let said = self.running[0].await_said("for one that takes its place");
        let expected = "process 1 is given up: it held the others up for longer than `pipeline.stall_limit`";
        let noticed = "process 1 has stopped without saying why";
        assert!(said.contains(expected) || said.contains(noticed), "{said}");
    }

    /// All end after the same step, with the weights of a run that was never held up.
    fn ends_as_if_nothing_had_happened(mut self) {
        self.running[0].await_said("the run goes on with step");
        // It may go back to the very first one.
        self.place.await_steps_after(self.place.numbers("runs/small").len());
        self.running[0].signal("-INT");
        let mut ended = end_all(self.running);
        for ended in &ended {
            assert_eq!(ended.status, Some(130), "{}{}", ended.stdout, ended.stderr);
        }
        let saved = self.place.checkpoints("runs/small");
        let steps = saved.last().and_then(|name| name.rsplit('-').next());
        let steps = steps.expect("it has saved").trim_start_matches('0');
        let args = [&LONG[..], &REPLACES, &["--steps", steps, "--run-dir", "whole"]].concat();
        let whole = self.place.alone(&args).done();
        assert_eq!(ended.remove(0).hash(), whole.hash(), "after {steps} steps");
    }
}

#[test]
fn a_process_that_is_stopped_is_replaced_when_the_stall_limit_is_over() {
    let mut run = Long::start();
    run.stop_second();
    let other = run.begin(1);
    let stopped = std::mem::replace(&mut run.running[1], other);
    run.ends_as_if_nothing_had_happened();
    stopped.signal("-CONT");
    has(&stopped.end().failed(1), &["process 1: error: "]);
}

#[test]
fn a_process_that_was_stopped_for_too_long_takes_its_place_again() {
    let mut run = Long::start();
    run.stop_second();
    run.running[1].signal("-CONT");
    run.ends_as_if_nothing_had_happened();
}
