//! Replicas that fail, and replicas that cannot be.

use std::sync::atomic::{AtomicBool, AtomicU64};

use pipewright::PipelineBuilder;

use super::*;

#[test]
fn a_failing_replica_is_named() {
    let mut recipe = recipe(1, false, 4);
    recipe.replicas = 2;
    recipe.data = changed(recipe.data, |data, step, micro_batch| match micro_batch.0 {
        3 => Err(Error::io("read", "tokens")(std::io::ErrorKind::NotFound.into())),
        _ => data.micro_batch(step, micro_batch),
    });
    let error = recipe.pipeline(1, "1f1b").step().expect_err("the data fails");
    let Error::Action { at, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((at.replica, at.rank.0), (Some(1), 0));
    assert!(error.to_string().starts_with("replica 1, rank 0, action "), "{error}");
}

/// Fails in the first update of any rank, and does nothing in all others.
#[derive(Debug, Default)]
struct FailsOnce(AtomicBool);

impl Optimizer for FailsOnce {
    fn states(&self, _: &str, dims: &[usize]) -> Vec<StateTensor> {
        vec![StateTensor::for_each("nothing", dims)]
    }

    fn update(
        &self,
        parameter: &mut Parameter,
        _: Update,
        _: &mut Together,
    ) -> pipewright::stages::Result<()> {
        assert!(self.0.swap(true, Ordering::Relaxed), "{} cannot be updated", parameter.name());
        Ok(())
    }

    fn updates_parts(&self) -> bool {
        true
    }
}

#[test]
fn a_replica_that_fails_before_new_weights_are_exchanged_ends_the_step() {
    for replicas in [2, 3] {
        let mut recipe = large(false, 4);
        (recipe.replicas, recipe.sharded) = (replicas, true);
        let builder = recipe.builder(named("1f1b", 1, 4)).optimizer(FailsOnce::default());
        let error = builder.launch().expect("it starts").step().expect_err("one fails");
        let Error::Action { action, kind, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(action, "0STEP");
        assert!(kind.to_string().contains("cannot be updated"), "the first cause: {error}");
    }
}

#[test]
fn replicas_that_cannot_be_are_refused() {
    let refusal = |change: fn(&mut Recipe)| {
        let mut recipe = recipe(1, false, 4);
        change(&mut recipe);
        let launched = recipe.launch(named("1f1b", 1, 4));
        launched.map(|_| ()).expect_err("it cannot be").to_string()
    };
    assert_eq!(
        refusal(|recipe| recipe.replicas = 9),
        "9 replicas cannot share 8 gradient groups, because a replica has whole groups: call \
         `.replicas(...)` with 1 to 8, or `.gradient_groups(...)` with more"
    );
    assert!(refusal(|recipe| recipe.replicas = 0).starts_with("0 replicas cannot share"));
    let builder = || recipe(1, false, 4).builder(named("1f1b", 1, 4));
    let told = |builder: PipelineBuilder<Sequential>| {
        builder.launch().map(|_| ()).expect_err("it cannot be").to_string()
    };
    assert_eq!(
        told(builder().replicas(2).sharded(true).optimizer(Sgd::default())),
        "Sgd { momentum: 0.0, weight_decay: 0.0, decay: Matrices } cannot be sharded: it has no state, so \
         there is nothing to save; leave out `.sharded(true)` (`optimizer.sharded`)"
    );
    let schedule = |micro_batches| named("1f1b", 1, micro_batches);
    let shares = vec![schedule(1), schedule(3)];
    assert_eq!(
        told(builder().replica_schedules(shares)),
        "the schedule of replica 0 has 1 micro-batches, and its share of a batch of 4 is 2: \
         `GradientGroups::share` says what each replica has"
    );
}

#[test]
fn as_many_schedules_as_replicas_and_at_least_one_micro_batch_are_needed() {
    let one = || named("1f1b", 1, 1);
    let told = |schedules: Vec<Schedule>, replicas| {
        let builder = recipe(1, false, 4).builder(one());
        let launched = builder.replica_schedules(schedules).replicas(replicas).launch();
        launched.map(|_| ()).expect_err("it cannot be").to_string()
    };
    assert_eq!(
        told(vec![one(), one()], 3),
        "there are 2 schedules for 3 replicas: give `.replica_schedules(...)` one for each, and leave out \
         `.replicas(...)`"
    );
    assert!(told(vec![], 2).starts_with("there are 0 schedules for 2 replicas"));
    has(&told(vec![one().idle(), one().idle()], 2), &["micro-batch"]);
}

#[test]
fn replicas_that_start_with_other_weights_are_refused() {
    let seed = AtomicU64::new(0);
    let stage = move || {
        let layer = Linear::new("fc", [4, 2], Init::Uniform(0.5), seed.fetch_add(1, Ordering::Relaxed));
        Ok(Sequential::new(vec![Box::new(layer)]))
    };
    let launched = Pipeline::builder()
        .schedule(named("gpipe", 1, 2))
        .replicas(2)
        .stages(vec![Box::new(stage)])
        .loss(CrossEntropy::default())
        .data(Arc::new(RandomRows { rows: 2, width: 4, classes: 2 }))
        .launch();
    assert_eq!(
        launched.map(|_| ()).expect_err("they differ").to_string(),
        "`fc.weight` of stage 0 is not the same in replica 0 and in replica 1: it starts with other weights; \
         the builder of the stage must make the same stage in each call"
    );
}
