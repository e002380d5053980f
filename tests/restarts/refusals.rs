//! Where ranks are not built again, or not for ever.

use pipewright::error::RestartError;
use pipewright::stages::models::Mlp;
use pipewright::{Error, SyncMode};

use super::common::*;
use super::failing::{Failing, Faults, How};
use super::worlds::{free_address, in_processes_like, place};
use super::*;
use super::{builder, named};

#[test]
fn a_rank_that_always_fails_is_not_built_again_for_ever() {
    let recipe = recipe(2, false, 3);
    let always: Vec<_> = (8..200).map(|call| (call, How::Fails)).collect();
    let faults = [Faults::at(&always)];
    let pipeline = builder(&recipe, named("1f1b", 2, 3), &faults, 2).launch();
    let mut pipeline = pipeline.expect("it starts");
    let error = pipeline.step().expect_err("it always fails");
    assert!(matches!(&error, Error::Restart(error) if matches!(**error, RestartError::KeepsFailing { .. })));
    assert_eq!(
        error.to_string(),
        "rank 0, action 0 (0F0): the disk is on fire; the rank was built again 3 times in this step, and \
         failed each time"
    );
    assert!(matches!(pipeline.step(), Err(Error::Stopped { .. })));
}

#[test]
fn without_restarts_a_failure_ends_the_training() {
    let recipe = recipe(2, false, 3);
    let faults = [Faults::at(&[(0, How::Panics)])];
    let pipeline = builder(&recipe, named("1f1b", 2, 3), &faults, 1).restarts(0, NonZeroU32::MIN);
    let error = pipeline.launch().expect("it starts").step().expect_err("it fails");
    assert_eq!(error.to_string(), "rank 0, action 0 (0F0): panicked: a bug");
}

#[test]
fn weights_that_may_be_stale_cannot_be_repeated() {
    let mut recipe = recipe(2, false, 4);
    recipe.replicas = 2;
    let sync = SyncMode::Server { max_staleness: 1 };
    let refused = builder(&recipe, named("1f1b", 2, 4), &[], 1).sync(sync).launch();
    let error = refused.expect_err("not with stale weights");
    assert!(matches!(error, Error::Launch(_)));
    assert_eq!(
        error.to_string(),
        "weights may not be stale where ranks are built again after a failure: a step that was lost would be \
         made with other weights: set `max_staleness` (`pipeline.max_staleness`) to 0"
    );
}

#[test]
fn a_builder_that_builds_something_else_is_told() {
    let built = Arc::new(AtomicU64::new(0));
    let data = RandomRows { rows: 2, width: 4, classes: 3 };
    let stage = {
        let built = Arc::clone(&built);
        move || {
            let width = if built.fetch_add(1, Ordering::Relaxed) == 0 { 5 } else { 6 };
            let mlp = Mlp { sizes: vec![4, width, 3], dropout: 0.0, seed: 1 };
            mlp.model()?.whole()
        }
    };
    let faults = Faults::at(&[(0, How::Fails)]);
    let pipeline = Pipeline::builder()
        .schedule(named("1f1b", 1, 2))
        .stages(vec![Failing::around(Box::new(stage), faults)])
        .loss(CrossEntropy::default())
        .data(Arc::new(data))
        .pin(false)
        .restarts(1, NonZeroU32::MIN)
        .launch();
    let error = pipeline.expect("it starts").step().expect_err("another stage");
    assert_eq!(
        error.to_string(),
        "stage 0 was built again after a failure, and its parameter `fc0.weight` is not what it was: its \
         builder must build the same each time"
    );
}

#[test]
fn a_run_that_has_lost_nobody_cannot_be_joined_again() {
    let launch = |world: World| {
        let builder = builder(&recipe(2, false, 3), named("1f1b", 2, 3), &[], 2);
        builder.world(world).launch().expect("it starts")
    };
    for replaces in [true, false] {
        let first = Membership { replaces, ..place(2, free_address()) };
        let expected = match replaces {
            true => "no other process of this run was lost",
            false => "this process cannot join its run again",
        };
        in_processes_like(&first, |world| {
            let mut pipeline = launch(world);
            pipeline.step().expect("it trains");
            let error = pipeline.rejoin().expect_err("nobody was lost").to_string();
            assert!(error.starts_with(expected), "{error}");
            pipeline.step().expect("it goes on");
        });
    }
}
