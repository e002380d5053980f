//! Replicas on GPUs, whose gradients are added there.

use pipewright::stages::Parameter;
use pipewright::stages::models::Gpt;
use pipewright::stages::optimizer::LearningRate;

use super::*;

/// A place for each rank: on GPU 0, 1, 0, 1, and so on, or on GPU 0 if there is only one.
fn in_turn(ranks: u32, dtype: DType) -> Vec<Place> {
    let gpus = devices::probe().gpus.expect("there is one").len() as u32;
    let device = |rank| Device::Cuda(rank % gpus.min(2));
    (0..ranks).map(|rank| on(device(rank), dtype)).collect()
}

/// Trains in this many replicas of these ranks, and compares with one rank.
#[track_caller]
fn same_bits(recipe: &mut Recipe, schedule: (&str, u32), replicas: u32, dtype: DType, expected: &str) {
    let (name, ranks) = schedule;
    for sharded in [false, true] {
        (recipe.replicas, recipe.sharded) = (replicas, sharded);
        let schedule = Schedule::named(name, ranks, recipe.micro_batches).expect("the sizes fit");
        let (_, hash) = train(recipe, schedule, in_turn(replicas * ranks, dtype));
        let case = format!("{replicas} replicas of {ranks} ranks by {name}, {dtype}, sharded: {sharded}");
        assert_eq!(hash, expected, "{case}");
    }
}

#[test]
fn replicas_on_a_gpu_train_to_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        let mut recipe = recipe(2, true, 4);
        let (expected, weights) = train(&recipe, named("1f1b", 1, 4), vec![on(GPU, dtype)]);
        for (replicas, ranks, sharded) in [(2, 1, false), (2, 2, true), (4, 1, true)] {
            (recipe.replicas, recipe.sharded) = (replicas, sharded);
            let (got, hash) = train(&recipe, named("1f1b", ranks, 4), vec![on(GPU, dtype)]);
            assert_eq!(hash, weights, "{replicas} replicas of {ranks} ranks in {dtype}");
            assert_close(&got, &expected, f64::MIN_POSITIVE);
        }
    }
}

/// With three and four replicas, an owner adds up at least three sums. So their order shows in the bits.
#[test]
fn replicas_on_several_gpus_train_to_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    for dtype in [DType::F32, DType::Bf16] {
        // One stage has more numbers than replicas exchange as a whole.
        let data = RandomRows { rows: 2, width: 10, classes: 5 };
        let model = || Mlp { sizes: vec![10, 150, 120, 5], dropout: 0.1, seed: 3 }.model();
        let mut recipe = recipe_of(model, Arc::new(data), 8);
        let whole = Schedule::named("1f1b", 1, 8).expect("the sizes fit");
        let (_, expected) = train(&recipe, whole, vec![on(GPU, dtype)]);
        for (replicas, ranks) in [(3, 1), (4, 1), (2, 2)] {
            same_bits(&mut recipe, ("1f1b", ranks), replicas, dtype, &expected);
        }
    }
}

/// Four micro-batches for three replicas: one replica has two of them, so its lists are longer. It reaches
/// the reductions of its two stages later, and in a schedule of its own.
#[test]
fn replicas_with_unequal_shares_and_several_stages_a_rank_end_their_steps() {
    if emulator::start().is_none() {
        return;
    }
    let mut recipe = recipe(2, true, 4);
    let (_, expected) = train(&recipe, named("1f1b", 1, 4), vec![on(GPU, DType::F32)]);
    for (schedule, replicas) in [("interleaved-1f1b", 3), ("zb-v", 3), ("zb-v", 2)] {
        same_bits(&mut recipe, (schedule, 2), replicas, DType::F32, &expected);
    }
    // Two of six replicas have nothing to add.
    same_bits(&mut recipe, ("1f1b", 1), 6, DType::F32, &expected);
}

/// Six million numbers are six buckets, which is more than are sent before the first one is added.
#[test]
fn gradients_of_many_buckets_are_added_to_the_same_bits() {
    if emulator::start().is_none() {
        return;
    }
    let data = RandomRows { rows: 2, width: 1000, classes: 5 };
    let model = || Mlp { sizes: vec![1000, 2400, 1500], dropout: 0.0, seed: 3 }.model();
    let mut recipe = recipe_of(model, Arc::new(data), 4);
    let (_, expected) = train(&recipe, named("1f1b", 1, 4), vec![on(GPU, DType::F32)]);
    for replicas in [2, 3] {
        same_bits(&mut recipe, ("1f1b", 1), replicas, DType::F32, &expected);
    }
}

#[test]
fn a_trace_has_the_sums_over_replicas_at_the_time_of_the_device() {
    if emulator::start().is_none() {
        return;
    }
    // With equal shares they begin after a stage's last pass, with unequal shares after the rank's.
    for micro_batches in [4, 3] {
        let mut recipe = recipe(2, false, micro_batches);
        recipe.replicas = 2;
        let schedule = Schedule::named("1f1b", 2, micro_batches).expect("the sizes fit");
        let builder = recipe.builder(schedule);
        let mut pipeline = builder.places(vec![on(GPU, DType::F32)]).launch().expect("it starts");
        let (report, timeline) = pipeline.step_traced().expect("a step");
        assert_eq!(timeline.reductions.len(), 4, "one for each stage of each replica");
        for reduction in &timeline.reductions {
            let passes = &timeline.ranks[reduction.rank.index()];
            let last = passes.last().expect("each rank has passes").end;
            assert!(reduction.start >= last - 1e-6, "{reduction:?} and {last}");
            assert!(reduction.end >= reduction.start, "{reduction:?}");
            let reducing = report.ranks[reduction.rank.index()].reducing;
            let shown = reduction.end - reduction.start;
            assert!(reducing > 0.0 && reducing < shown + 1.0, "{reducing} and {shown}");
        }
    }
}

/// Each of them owns a part of the table: a replica on a GPU, where the two layers share its weights, and one
/// on the CPU. Both have the new weights of all parts after a step.
#[test]
fn a_tied_table_is_divided_among_replicas_on_a_gpu_and_on_the_cpu() {
    if emulator::start().is_none() {
        return;
    }
    let vocab = 2 * Parameter::PIECE / 16;
    let gpt = Gpt { vocab, dim: 16, layers: 1, heads: 2, context: 8, dropout: 0.0, tied: true, seed: 3 };
    let mut recipe = gpt_recipe(gpt, 2, 4);
    recipe.learning_rate = LearningRate::Constant(0.1);
    recipe.replicas = 2;
    let cpu = on(Device::Cpu, DType::F32);
    let mut losses = |sharded, places| {
        recipe.sharded = sharded;
        train(&recipe, Schedule::named("1f1b", 1, 4).expect("the sizes fit"), places).0
    };
    let expected = losses(false, vec![cpu; 2]);
    for places in [[cpu, on(GPU, DType::F32)], [on(GPU, DType::F32), cpu]] {
        let got = losses(true, places.to_vec());
        assert_close(&got, &expected, 1e-4);
    }
}
