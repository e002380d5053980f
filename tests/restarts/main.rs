//! A rank that fails in a step is built again and repeats what it lost: the weights are the same as in a run
//! without the failure, bit for bit.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/failing.rs"]
mod failing;
mod instants;
#[path = "../common/mixtral.rs"]
mod mixtral;
#[path = "../common/noted.rs"]
mod noted;
mod recut;
mod refusals;
#[path = "../common/worlds.rs"]
mod worlds;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use failing::{Failing, FailingData, FailingLoss, FailingOptimizer, Faults, How};
use mixtral::recipe_of_mixtral;
use noted::Noted;
use pipewright::fabric::{Membership, World};
use pipewright::schedule::Schedule;
use pipewright::stages::loss::CrossEntropy;
use pipewright::stages::models::{Gpt, Rules};
use pipewright::stages::optimizer::StateFormat;
use pipewright::stages::{Recompute, Stage, Training, recompute};
use pipewright::{Pipeline, PipelineBuilder, StepReport};
use proptest::prelude::*;
use worlds::{free_address, in_processes, in_processes_like, place};

const STEPS: u64 = 4;

/// A pipeline whose ranks fail as these say, each with the stages of one rank. `every`: the steps from one
/// snapshot to the next.
fn builder(recipe: &Recipe, schedule: Schedule, faults: &[Faults], every: u32) -> PipelineBuilder<Failing> {
    let placement = schedule.placement().clone();
    let mut ranks = placement.iter();
    let around = |stage| {
        let rank = ranks.next().expect("one for each stage");
        Failing::around(stage, faults.get(rank.index()).cloned().unwrap_or_default())
    };
    recipe.builder_of(schedule, around).restarts(3, NonZeroU32::new(every).expect("not 0"))
}

/// Trains, and returns the reports and the hash of the weights.
fn train<S: Stage>(mut pipeline: Pipeline<S>) -> (Vec<StepReport>, String) {
    let reports = (0..STEPS).map(|_| pipeline.step().expect("it goes on")).collect();
    (reports, pipeline.weights_hash().expect("the pipeline runs"))
}

/// The restarts of all steps.
fn restarts(reports: &[StepReport]) -> usize {
    reports.iter().map(|report| report.restarts.len()).sum()
}

/// A recipe without dropout, in which parameters with such names are frozen.
fn partly_frozen(tied: bool, seed: u64, frozen: fn(&str) -> bool) -> Recipe {
    let gpt = Gpt { vocab: 17, dim: 16, layers: 2, heads: 2, context: 8, dropout: 0.0, tied, seed };
    let training = move |name: &str| Training { frozen: frozen(name), rate: 1.0, weight_decay: None };
    let model = move || Ok(gpt.model()?.with_rules(Rules::default().with_training(training)));
    recipe_of(model, Arc::clone(&recipe(2, tied, 3).data), 3)
}

/// How many calls of a rank's stages there are without a failure.
fn calls(recipe: &Recipe, schedule: &Schedule) -> Vec<u64> {
    let faults: Vec<Faults> = (0..schedule.ranks()).map(|_| Faults::default()).collect();
    let pipeline = builder(recipe, schedule.clone(), &faults, 1).launch();
    train(pipeline.expect("it starts"));
    faults.iter().map(Faults::calls).collect()
}

/// A failure of a rank changes nothing: tried at every call of its stages, or at each `every`-th.
fn failures_change_nothing(recipe: &Recipe, expected: &str, name: &str, every: usize) {
    let schedule = named(name, 2, 3);
    for (rank, calls) in calls(recipe, &schedule).into_iter().enumerate() {
        for call in (0..calls).step_by(every) {
            let how = [How::Fails, How::Panics][call as usize % 2];
            let mut faults = vec![Faults::default(); 2];
            faults[rank] = Faults::at(&[(call, how)]);
            let snapshot_every = 1 + call as u32 % 3;
            let pipeline = builder(recipe, schedule.clone(), &faults, snapshot_every).launch();
            let (reports, hash) = train(pipeline.expect("it starts"));
            assert_eq!(hash, expected, "{name}, rank {rank}, call {call}, every {snapshot_every}");
            assert_eq!(restarts(&reports), 1);
        }
    }
}

#[test]
fn a_failure_at_any_pass_changes_nothing() {
    let recipe = recipe(2, true, 3);
    let expected = recipe.plain_hash(STEPS);
    ["1f1b", "zb-h1"].into_iter().for_each(|name| failures_change_nothing(&recipe, &expected, name, 1));
}

#[test]
fn moments_in_few_bits_come_back_from_a_snapshot() {
    for state in [StateFormat::Bf16, StateFormat::Blocks] {
        let mut recipe = recipe(2, true, 3);
        recipe.optimizer.state = state;
        let expected = recipe.plain_hash(STEPS);
        failures_change_nothing(&recipe, &expected, "1f1b", 3);
    }
}

/// The other shards only wait for it.
#[test]
fn a_failure_of_a_shard_at_any_pass_changes_nothing() {
    for make in [|| recipe(2, true, 3), || recipe_of_mixtral(2, 3)] {
        let mut recipe = Recipe { shard_groups: 2, ..make() };
        let expected = recipe.plain_hash(STEPS);
        recipe.shards = 2;
        failures_change_nothing(&recipe, &expected, "1f1b", 3);
    }
}

#[test]
fn every_schedule_goes_on_after_failures() {
    let recipe = recipe(6, false, 6);
    let expected = recipe.plain_hash(STEPS);
    for name in Schedule::names() {
        let schedule = named(name, 3, 6);
        if schedule.placement().directions() > 1 {
            continue;
        }
        for (rank, calls) in calls(&recipe, &schedule).into_iter().enumerate() {
            let mut faults = vec![Faults::default(); 3];
            faults[rank] = Faults::at(&[(calls / 3, How::Fails), (calls - 3, How::Panics)]);
            let pipeline = builder(&recipe, schedule.clone(), &faults, 2).launch();
            let (reports, hash) = train(pipeline.expect("it starts"));
            assert_eq!(hash, expected, "{name}, rank {rank}");
            assert_eq!(restarts(&reports), 2);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn failures_of_several_ranks_in_replicas_change_nothing(
        (replicas, ranks, sharded, every) in (1_u32..4, 1_u32..4, any::<bool>(), 1_u32..4),
        at in prop::collection::vec((0_u64..90, any::<bool>()), 3),
    ) {
        let mut recipe = large(ranks > 1, 4);
        let expected = recipe.plain_hash(STEPS);
        (recipe.replicas, recipe.sharded) = (replicas, sharded);
        let how = |panics| if panics { How::Panics } else { How::Fails };
        let faults: Vec<_> = at.iter().map(|&(call, panics)| Faults::at(&[(call, how(panics))])).collect();
        let pipeline = builder(&recipe, named("1f1b", ranks, 4), &faults, every).launch();
        let (_, hash) = train(pipeline.expect("it starts"));
        prop_assert_eq!(hash, expected);
    }
}

#[test]
fn a_failing_update_is_repeated_from_the_weights_before_it() {
    let recipe = recipe(2, true, 3);
    let expected = recipe.plain_hash(STEPS);
    for call in (0..120).step_by(7) {
        let faults = Faults::at(&[(call, How::Panics)]);
        let pipeline = builder(&recipe, named("1f1b", 2, 3), &[], 2)
            .optimizer(FailingOptimizer(recipe.optimizer, faults))
            .launch();
        let (reports, hash) = train(pipeline.expect("it starts"));
        assert_eq!((hash, restarts(&reports)), (expected.clone(), 1), "call {call}");
    }
}

#[test]
fn data_and_a_loss_may_fail_too() {
    let recipe = recipe(2, false, 3);
    let expected = recipe.plain_hash(STEPS);
    for call in 0..3 * STEPS {
        let faults = Faults::at(&[(call, How::Fails)]);
        let pipeline = builder(&recipe, named("gpipe", 2, 3), &[], 2)
            .loss(FailingLoss(CrossEntropy::default(), faults))
            .launch();
        let (reports, hash) = train(pipeline.expect("it starts"));
        assert_eq!((hash, restarts(&reports)), (expected.clone(), 1), "loss, call {call}");

        // Both ranks that need it are told of a micro-batch that could not be read.
        let faults = Faults::at(&[(call, How::Panics)]);
        let data = FailingData(Arc::clone(&recipe.data), faults);
        let pipeline = builder(&recipe, named("gpipe", 2, 3), &[], 2).data(Arc::new(data)).launch();
        let (reports, hash) = train(pipeline.expect("it starts"));
        assert_eq!((hash, restarts(&reports)), (expected.clone(), 2), "data, call {call}");
    }
}

#[test]
fn recomputed_stages_are_built_again() {
    let recipe = recipe(4, false, 3);
    let expected = recipe.plain_hash(STEPS);
    let schedule = named("1f1b", 2, 3);
    for mode in [Recompute::Selective, Recompute::Full] {
        let mut faults = [Faults::at(&[(14, How::Fails)]), Faults::at(&[(31, How::Panics)])].into_iter();
        let around = |stage| recompute(Failing::around(stage, faults.next().expect("two")), mode);
        let pipeline = recipe.builder_of(schedule.clone(), around).restarts(1, NonZeroU32::MIN).launch();
        let (reports, hash) = train(pipeline.expect("it starts"));
        assert_eq!((hash, restarts(&reports)), (expected.clone(), 2), "{mode:?}");
    }
}

/// The copy of the table follows it again, and has no state.
#[test]
fn a_tied_copy_that_is_built_again_is_not_updated() {
    let recipe = recipe(2, true, 3);
    let expected = recipe.plain_hash(STEPS);
    let faults = Faults::at(&[(14, How::Fails)]);
    let noted = Noted { adamw: recipe.optimizer, ..Noted::default() };
    let around = |stage| Failing::around(stage, faults.clone());
    let builder = recipe.builder_of(named("1f1b", 1, 3), around).optimizer(noted.clone());
    let (reports, hash) = train(builder.restarts(1, NonZeroU32::MIN).launch().expect("it starts"));
    assert_eq!((hash, restarts(&reports)), (expected, 1));
    // The step that failed had not come to its update.
    assert_eq!(noted.of("wte.weight").len(), STEPS as usize);
}

#[test]
fn ranks_of_several_processes_are_built_again() {
    let expected = recipe(2, true, 4).plain_hash(STEPS);
    for (processes, replicas, sharded) in [(2, 1, false), (2, 2, true), (4, 2, false)] {
        let hashes = in_processes(processes, |world| {
            let mut recipe = recipe(2, true, 4);
            (recipe.replicas, recipe.sharded) = (replicas, sharded);
            let faults = [Faults::at(&[(9, How::Fails)]), Faults::at(&[(22, How::Panics)])];
            let pipeline = builder(&recipe, named("1f1b", 2, 4), &faults, 2).world(world);
            let (reports, hash) = train(pipeline.launch().expect("it starts"));
            (restarts(&reports), hash)
        });
        for (restarts, hash) in hashes {
            assert_eq!(hash, expected, "{processes} processes, {replicas} replicas");
            assert!(restarts >= 2, "every process is told of all");
        }
    }
}

#[test]
fn evaluations_and_checkpoints_between_steps_change_nothing() {
    let recipe = recipe(2, true, 3);
    let folder = tempfile::tempdir().expect("a folder");
    let expected = recipe.plain_hash(STEPS);
    let faults = [Faults::at(&[(17, How::Fails)]), Faults::at(&[(40, How::Panics)])];
    let pipeline = builder(&recipe, named("1f1b", 2, 3), &faults, 3).launch();
    let mut pipeline = pipeline.expect("it starts");
    for step in 0..STEPS {
        pipeline.step().expect("it goes on");
        pipeline.evaluate(Arc::clone(&recipe.data), 5).expect("it evaluates");
        pipeline.save(folder.path().join(format!("{step}"))).expect("it saves");
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
    // What is loaded is what a restart begins with.
    let faults = [Faults::at(&[(5, How::Fails)])];
    let pipeline = builder(&recipe, named("1f1b", 2, 3), &faults, 3).launch();
    let mut pipeline = pipeline.expect("it starts");
    pipeline.load(folder.path().join("1")).expect("it loads");
    for _ in 2..STEPS {
        pipeline.step().expect("it goes on");
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
}

/// Frozen weights are in no snapshot if they are as they were built. Weights of a loaded checkpoint are.
#[test]
fn frozen_weights_of_a_loaded_checkpoint_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let launch = |seed, faults: Faults| {
        let recipe = partly_frozen(false, seed, |name| name.starts_with("h.1."));
        let pipeline = builder(&recipe, named("1f1b", 2, 3), &[faults.clone(), faults], 2).launch();
        pipeline.expect("it starts")
    };
    let mut other = launch(1, Faults::default());
    other.step().expect("it trains");
    other.save(folder.path().join("other")).expect("it saves");
    let hash_after = |faults| {
        let mut pipeline = launch(2, faults);
        pipeline.step().expect("it trains");
        pipeline.load(folder.path().join("other")).expect("it loads");
        let restarts = pipeline.step().expect("it goes on").restarts.len();
        (restarts, pipeline.weights_hash().expect("it runs"))
    };
    let (_, expected) = hash_after(Faults::default());
    assert_eq!(hash_after(Faults::at(&[(45, How::Fails)])), (1, expected));
}

/// Its snapshots are for nobody else.
#[test]
fn a_run_of_one_process_repeats_no_more_than_is_asked() {
    let first = Membership { replaces: true, ..place(1, free_address()) };
    in_processes_like(&first, |world| {
        let recipe = recipe(2, true, 3);
        // A pass of a micro-batch is called six times in a step.
        let faults = [Faults::at(&[(6 * 3 * 10, How::Fails)])];
        let pipeline = builder(&recipe, named("1f1b", 2, 3), &faults, 2).world(world).launch();
        let mut pipeline = pipeline.expect("it starts");
        let reports: Vec<_> = (0..12).map(|_| pipeline.step().expect("it goes on")).collect();
        let restarts: Vec<_> = reports.iter().flat_map(|report| &report.restarts).collect();
        assert!(restarts.len() == 1 && restarts[0].repeated <= 2, "{restarts:?}");
    });
}

#[test]
fn a_report_tells_who_failed_where_and_why() {
    let recipe = recipe(2, false, 3);
    let faults = [Faults::default(), Faults::at(&[(2, How::Fails)])];
    let pipeline = builder(&recipe, named("1f1b", 2, 3), &faults, 2).launch();
    let (reports, _) = train(pipeline.expect("it starts"));
    assert_eq!(restarts(&reports), 1);
    let text = reports[0].restarts[0].to_string();
    assert!(
        text.starts_with(
            "rank 1, action 3 (1B0): the disk is on fire; rank 1 was built again and repeated 1 step in "
        ),
        "{text}"
    );
}

/// Over 100 steps, with a failure in most of them.
#[test]
fn many_failures_change_nothing() {
    const MANY: u64 = 100;
    let recipe = recipe(2, true, 4);
    let expected = recipe.plain_hash(MANY);
    // Passes count again when they are repeated, so failures come at all places of a step.
    let every = |calls: u64| {
        let how = |index| [How::Fails, How::Panics][index as usize % 2];
        let at: Vec<_> = (1..200).map(|index| (calls * index, how(index))).collect();
        Faults::at(&at)
    };
    let (data, loss, optimizer) = (every(37), every(43), every(997));
    let pipeline = builder(&recipe, named("1f1b", 2, 4), &[every(97), every(101)], 1)
        .data(Arc::new(FailingData(Arc::clone(&recipe.data), data)))
        .loss(FailingLoss(CrossEntropy::default(), loss))
        .optimizer(FailingOptimizer(recipe.optimizer, optimizer))
        .restarts(20, NonZeroU32::MIN)
        .launch();
    let mut pipeline = pipeline.expect("it starts");
    let reports = (0..MANY).map(|_| pipeline.step().expect("it goes on"));
    let restarts: usize = reports.map(|report| report.restarts.len()).sum();
    assert_eq!(pipeline.weights_hash().expect("the pipeline runs"), expected);
    assert!(restarts >= 80, "only {restarts}");
}
