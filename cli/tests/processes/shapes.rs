//! Processes go on in another shape: with other numbers of replicas, ranks and shards.

use pipewright::run::{Change, RunDir};

use super::throttled::{LONGER, MANY, Throttled};
use super::*;

impl Throttled {
    /// Asks the run for this many replicas and shards, with stages of these layers, and waits until it has
    /// them and all have snapshots of them.
    #[track_caller]
    fn reshape(&mut self, [replicas, shards]: [u32; 2], layers: &[usize], noted: &str) {
        let dir = RunDir::at(self.place.path("runs/small"));
        let (replicas, shards) = (Some(replicas), Some(shards));
        dir.ask_for_cut(Change { replicas, shards, ..Change::layers(layers.to_vec()) }).unwrap();
        self.await_noted(noted);
        let done = fs::read_to_string(self.place.path("runs/small/metrics.jsonl")).unwrap().lines().count();
        self.let_go();
        self.await_step(done + 4);
    }
}

/// Then the process that takes the place of the lost one gets what the lost one had in that shape.
#[test]
fn a_process_is_lost_after_the_run_has_got_another_shape() {
    let sets = ["pipeline.stages=4", "pipeline.gradient_groups=2", "pipeline.shard_groups=2"];
    let mut run = Throttled::start(4, &[&sets[..], &["checkpoint.every=0", "train.steps=600"]].concat());
    run.await_step(4);
    for (times, sizes, layers, noted) in [
        (1, [2, 1], &[6, 2][..], "the run has 2 replicas instead of 1 and the stages have 6, 2 layers"),
        // Each rank of the pipeline has the same layers, but other processes have its parts.
        (2, [1, 2], &[6, 2], "the run has 1 replica instead of 2 and a rank has 2 shards instead of 1"),
    ] {
        run.reshape(sizes, layers, noted);
        run.kill(1);
        run.begin(1);
        run.await_return();
        run.await_noted_often("from what the processes kept in memory", times);
    }
    let history = fs::read_to_string(run.place.path("runs/small/history.jsonl")).unwrap();
    assert!(!history.contains("with the cut at launch"), "{history}");
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_process_leaves_after_the_run_has_got_another_shape() {
    let sets = ["launch.fewest=1", "pipeline.stages=2", "pipeline.replicas=2", "optimizer.sharded=true"];
    let mut run = Throttled::start(4, &[&sets[..], &[LONGER]].concat());
    run.await_step(4);
    run.reshape([1, 1], &[2, 2, 2, 2], "the run has 1 replica instead of 2 and the stages have 2, 2, 2, 2");
    run.leaves(3);
    run.running.truncate(3);
    let history = fs::read_to_string(run.place.path("runs/small/history.jsonl")).unwrap();
    assert!(!history.contains("with the cut at launch"), "{history}");
    run.ends_as_if_nothing_had_happened();
}

/// What processes kept in the shape before is of no use then, though each rank of the pipeline has its
/// layers.
#[test]
fn a_process_is_lost_right_after_the_run_has_got_another_shape() {
    let sets = ["pipeline.stages=2", "pipeline.replicas=2", "pipeline.shard_groups=2"];
    let mut run = Throttled::start(4, &[&sets[..], &["checkpoint.every=2", MANY]].concat());
    run.await_step(7);
    let dir = RunDir::at(run.place.path("runs/small"));
    let (replicas, shards) = (Some(1), Some(2));
    dir.ask_for_cut(Change { replicas, shards, ..Change::default() }).unwrap();
    let history = || fs::read_to_string(dir.history()).unwrap_or_default();
    let since = Instant::now();
    while !history().contains("the run has 1 replica") {
        assert!(since.elapsed() < PATIENCE, "it has no other shape");
        std::thread::sleep(Duration::from_millis(2));
    }
    run.kill(1);
    run.begin(1);
    run.await_return();
    run.ends_as_if_nothing_had_happened();
}
