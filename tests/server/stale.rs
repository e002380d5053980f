//! Steps whose weights may be stale.

use std::ops::Range;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use pipewright::data::Fingerprint;
use pipewright::mesh::Map;
use pipewright::stages::optimizer::LearningRate;

use super::*;
use crate::large;

/// A source that takes its time for some micro-batches, so that their replica is slow.
pub(crate) struct Slow {
    pub(crate) source: Arc<dyn DataSource>,
    pub(crate) micro_batches: Range<u32>,
}

impl DataSource for Slow {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        if self.micro_batches.contains(&micro_batch.0) {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.source.micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.source.shapes()
    }

    fn fingerprint(&self) -> Result<Fingerprint> {
        self.source.fingerprint()
    }
}

#[test]
fn weights_are_never_staler_than_allowed_and_a_slow_replica_makes_them_stale() {
    const STEPS: u64 = 12;
    for (processes, max_staleness) in [(2, 1), (2, 3), (4, 2)] {
        let recipe = || {
            let mut recipe = slowed(recipe(2, false, 4), 2..4);
            (recipe.replicas, recipe.sync) = (2, server(max_staleness));
            recipe
        };
        let told = in_processes(processes, recipe, |_, mut pipeline| {
            let mut seen = Vec::new();
            for step in 0..STEPS {
                let report = pipeline.step().expect("a step");
                assert_eq!(report.step, step);
                assert_eq!(report.loss_step, step.saturating_sub(max_staleness.into()));
                assert!(report.staleness() <= max_staleness, "{report:?}");
                seen.push((report.loss_step, report.loss.to_bits(), report.grad_norm.to_bits()));
                assert_eq!(report.ranks.len(), 1, "of this process");
            }
            (seen, pipeline.weights_hash().expect("it runs"))
        });
        assert!(told.iter().all(|one| *one == told[0]), "every process is told the same of a step");
    }
}

#[test]
fn a_fast_replica_goes_on_with_stale_weights() {
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let recipe = || {
        let mut recipe = recipe(1, false, 4);
        (recipe.replicas, recipe.sync) = (2, server(2));
        // The second replica gets the data of step 1 only when the first has done three steps.
        let gate = Arc::clone(&gate);
        recipe.data = changed(recipe.data, move |data, step, micro_batch| {
            if step == 1 && micro_batch.0 >= 2 {
                let (done, changed) = &*gate;
                let done = done.lock().expect("no panic");
                drop(changed.wait_while(done, |done| *done < 3).expect("no panic"));
            }
            data.micro_batch(step, micro_batch)
        });
        recipe
    };
    let staleness = in_processes(2, recipe, |process, mut pipeline| {
        let step = |_| {
            let report = pipeline.step().expect("a step");
            if process == 0 {
                *gate.0.lock().expect("no panic") += 1;
                gate.1.notify_all();
            }
            report.staleness()
        };
        (0..4).map(step).collect::<Vec<_>>()
    });
    assert_eq!(staleness[0], [0, 0, 1, 2], "only the update of step 0 was there");
    assert_eq!(staleness[1][..2], [0, 0], "nothing is stale for a slow one");
}

#[test]
fn losses_fall_and_all_replicas_have_the_weights_that_are_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let build = || {
        let mut recipe = large(false, 4);
        recipe.learning_rate = LearningRate::Constant(1e-3);
        (recipe.replicas, recipe.sync) = (2, server(3));
        recipe.data = same_batch(recipe.data);
        recipe
    };
    let path = folder.path().join("saved");
    let data = build().data;
    let told = in_processes(2, build, |_, mut pipeline| {
        let losses: Vec<f64> = (0..16).map(|_| pipeline.step().expect("a step").loss).collect();
        pipeline.save(&path).expect("saved");
        // Each replica runs a part of it, with its own weights.
        let evaluation = pipeline.evaluate(Arc::clone(&data), 4).expect("forward only");
        let hash = pipeline.weights_hash().expect("it runs");
        (losses, evaluation.loss, hash)
    });
    assert_eq!(told[0], told[1]);
    let (losses, evaluated, hash) = &told[0];
    assert!(losses[15] < losses[0] - 0.5, "{losses:?}");
    let mut alone = build();
    alone.replicas = 1;
    let mut alone = alone.pipeline(1, "1f1b");
    alone.load(&path).expect("it is whole");
    assert_eq!(&alone.weights_hash().expect("it runs"), hash);
    assert_eq!(alone.evaluate(data, 4).expect("forward only").loss, *evaluated);
}

#[test]
fn a_checkpoint_goes_on_with_or_without_a_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recipe = large(false, 4);
    let expected = recipe.plain_hash(4);
    let shapes = [(2, server(2), 1), (3, server(1), 1), (1, server(0), 1), (2, server(1), 2)];
    for (step, (replicas, sync, ranks)) in (0..).zip(shapes) {
        (recipe.replicas, recipe.sync) = (replicas, sync);
        let mut pipeline = recipe.pipeline(ranks, "1f1b");
        if step > 0 {
            let before = folder.path().join(format!("{}", step - 1));
            pipeline.load(before).expect("it is whole");
        }
        pipeline.step().expect("a step");
        let saved = folder.path().join(step.to_string());
        pipeline.save(saved).expect("saved");
        if step == 3 {
            assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
        }
    }
}

#[test]
fn a_traced_step_has_all_ranks() {
    let recipe = || {
        let mut recipe = recipe(1, false, 4);
        (recipe.replicas, recipe.sync) = (2, server(2));
        recipe
    };
    in_processes(2, recipe, |_, mut pipeline| {
        pipeline.step().expect("a step");
        let (report, timeline) = pipeline.step_traced().expect("a step");
        assert_eq!((report.ranks.len(), timeline.ranks.len()), (2, 2));
        assert_eq!((report.loss_step, report.staleness()), (1, 0), "nothing is stale before it");
        pipeline.step().expect("a step");
    });
}

#[test]
fn all_learn_in_the_same_step_that_one_wants_to_end() {
    let recipe = || {
        let mut recipe = slowed(recipe(1, false, 4), 2..4);
        (recipe.replicas, recipe.sync) = (2, server(3));
        recipe
    };
    let ended = in_processes(2, recipe, |process, mut pipeline| {
        loop {
            let done = pipeline.next_step();
            assert!(done < 20, "nobody is told");
            if pipeline.any(process == 1 && done >= 4).expect("it runs") {
                return done;
            }
            pipeline.step().expect("a step");
        }
    });
    assert_eq!(ended, [8, 8], "the question of step 4, after 3 more steps");
}

/// A rank that is done sleeps until the others of its process are, and they may need what its shard knows.
#[test]
fn ranks_that_are_done_hold_up_no_other_rank_of_their_process() {
    for (processes, map) in [(1, Map::Pipeline), (2, Map::Pipeline), (2, Map::Replicas)] {
        for max_staleness in [1, 4] {
            let done = worlds::in_processes(processes, |world| {
                let mut recipe = large(false, 4);
                (recipe.replicas, recipe.sync) = (2, server(max_staleness));
                let builder = recipe.builder(named("zb-h1", 3, 4)).map(map);
                let mut pipeline = builder.world(world).launch().expect("it starts");
                for _ in 0..8 {
                    let report = pipeline.step().expect("a step");
                    assert!(report.staleness() <= max_staleness);
                    assert_eq!(report.ranks.len() as u32, 6 / processes);
                }
                pipeline.weights_hash().expect("it runs")
            });
            assert!(done.iter().all(|hash| *hash == done[0]));
        }
    }
}
