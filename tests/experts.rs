//! A mixture of experts in a pipeline: the same bits however it is cut, and memory as it is planned.

mod common;
#[path = "common/mixtral.rs"]
mod mixtral;

use common::RandomTokens;
use mixtral::{SEQ, mixtral, recipe_of_mixtral};
use pipewright::data::DataSource;
use pipewright::id::MicroBatch;
use pipewright::stages::{Bytes, DType, Device, ForwardContext, Mode, Place, Recompute, Stage, recompute};

const ROWS: usize = 3;

const HALF: Place = Place {
    device: Device::Cpu,
    dtype: DType::Bf16,
};

#[test]
fn weights_are_equal_for_any_stages_schedule_and_threads() {
    for place in [Place::default(), HALF] {
        let mut recipe = recipe_of_mixtral(ROWS, 4);
        recipe.place = place;
        let plain = recipe.plain_hash(3);
        for (stages, schedule) in [(1, "1f1b"), (2, "gpipe"), (3, "zb-h1"), (6, "1f1b")] {
            assert_eq!(
                recipe.hash(stages, schedule, 3),
                plain,
                "{stages} stages, {schedule}"
            );
        }
        recipe.threads_per_rank = 2;
        assert_eq!(recipe.hash(2, "1f1b", 3), plain, "two threads");
    }
}

/// An expert without tokens in one micro-batch must not disturb sums that are added in place.
#[test]
fn weights_do_not_depend_on_replicas() {
    for rows in [1, ROWS] {
        let mut recipe = recipe_of_mixtral(rows, 8);
        let plain = recipe.plain_hash(3);
        for (replicas, sharded) in [(1, false), (2, false), (2, true), (3, true)] {
            (recipe.replicas, recipe.sharded) = (replicas, sharded);
            assert_eq!(
                recipe.hash(2, "1f1b", 3),
                plain,
                "{replicas} replicas, sharded: {sharded}"
            );
        }
    }
}

/// Of each unit: its weights, and the bytes that a micro-batch's forward and backward-input leave.
fn held(how: Recompute) -> Vec<[u64; 3]> {
    let data = RandomTokens {
        rows: ROWS,
        seq: SEQ,
        vocab: mixtral().vocab as u32,
    };
    let (mut wire, _) = data.micro_batch(0, MicroBatch(0)).expect("random tokens");
    let at = ForwardContext {
        step: 0,
        micro_batch: 0,
        mode: Mode::Train,
    };
    let model = mixtral().model().expect("possible sizes");
    let units = vec![1; model.names().len()];
    let stages = model.cut(&units).expect("a unit a stage").into_iter();
    let each = stages.map(|stage| {
        let mut stage = recompute(stage, how).build().expect("possible sizes");
        let parameters = stage.parameters();
        let weights: usize = parameters.iter().map(|parameter| parameter.value.len()).sum();
        let (output, saved) = stage.forward(at, wire.clone()).expect("forward");
        wire = output.clone();
        let kept = saved.bytes();
        let (_, pending) = stage.backward_input(saved, output).expect("backward-input");
        [weights as u64, kept, pending.bytes()]
    });
    each.collect()
}

#[test]
fn a_unit_of_experts_keeps_what_is_planned() {
    let units = mixtral().unit_sizes(ROWS, SEQ);
    for how in [Recompute::None, Recompute::Selective] {
        let pairs = held(how).into_iter().zip(&units).enumerate();
        for (index, (held, unit)) in pairs.filter(|(index, _)| [2, 4].contains(index)) {
            let saved = match how {
                Recompute::None => unit.saved,
                _ => unit.selective,
            };
            let planned = [unit.weights, 4 * saved, 4 * unit.pending];
            assert_eq!(held, planned, "unit {index}, {how:?}");
        }
    }
}
