//! Recomputing changes the memory of a run, but no bit of its weights.

use pipewright::plan::simulate;
use pipewright::stages::{Bytes, RecomputedStage, recompute};

use super::*;

const ALL: [Recompute; 4] = Recompute::ALL;

type Recomputed = Pipeline<RecomputedStage<Sequential>>;

/// A pipeline whose stages recompute, with one setting per stage.
fn launch(recipe: &Recipe, schedule: Schedule, how: &[Recompute]) -> Recomputed {
    let mut how = how.iter().copied();
    let make = |stage| recompute(stage, how.next().expect("one for each stage"));
    recipe.builder_of(schedule, make).launch().expect("it starts")
}

#[test]
fn the_weights_are_those_of_the_plain_loop_for_every_schedule() {
    for tied in [false, true] {
        let recipe = recipe(4, tied, 4);
        let expected = recipe.plain_hash(2);
        for name in Schedule::names() {
            let schedule = || named(name, 2, 4);
            let stages = schedule().stages() as usize;
            let mut words = ALL.map(|how| vec![how; stages]).to_vec();
            words.push(ALL.iter().copied().cycle().skip(1).take(stages).collect());
            for how in words {
                let hash = trained(&mut launch(&recipe, schedule(), &how), 2);
                assert_eq!(hash, expected, "{name}, {how:?}, tied: {tied}");
            }
        }
    }
}

/// I and W apart, micro-batches out of order, two stages per rank, some backwards whole.
#[test]
fn any_order_that_the_checker_accepts_gives_the_same_bits() {
    let recipe = recipe(4, true, 3);
    let expected = recipe.plain_hash(2);
    let rows = "0F0,0F2,0F1,2F0,2F2,2F1,2I0,2I2,2B1,0I0,2W2,0I1,0I2,0W0,2W0,0W2,0W1\n\
                1F0,1F2,1F1,3F0,3F2,3F1,3B0,3I2,3B1,1B0,1I1,1I2,3W2,1W2,1W1";
    for how in ALL {
        let schedule =
            Schedule::from_csv("mine", rows, None, LinkKind::Ordered).expect("a valid order").schedule;
        let hash = trained(&mut launch(&recipe, schedule, &[how; 4]), 2);
        assert_eq!(hash, expected, "{how:?}");
    }
}

/// For each stage: the bytes of its input, and of what forward keeps of a micro-batch with this setting.
fn bytes(recipe: &Recipe, stages: u32, how: Recompute) -> Vec<[u64; 2]> {
    let (mut wire, _) = recipe.data.micro_batch(0, pipewright::id::MicroBatch(0)).expect("data");
    let stages = (recipe.model)().split(stages).expect("enough layers");
    let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    let stages = stages.into_iter().map(|stage| {
        let input = wire.bytes();
        let mut stage = recompute(stage, how).build().expect("it can be built");
        let (output, saved) = stage.forward(at, wire.clone()).expect("forward");
        wire = output;
        [input, saved.bytes()]
    });
    stages.collect()
}

#[test]
fn the_peak_is_the_inputs_in_flight_and_one_micro_batch_made_again() {
    let recipe = recipe(6, false, 8);
    let kept = bytes(&recipe, 4, Recompute::None);
    let whole = bytes(&recipe, 4, Recompute::Cheap);
    let selective = bytes(&recipe, 4, Recompute::Selective);
    for schedule in ["gpipe", "1f1b"] {
        let run =
            |how| launch(&recipe, named(schedule, 4, 8), &[how; 4]).step().expect("the step succeeds").ranks;
        let runs = ALL.map(run);
        for rank in 0..4 {
            let [none, cheap, some, full] = ALL.map(|how| {
                let runs: &Vec<_> = &runs[ALL.iter().position(|other| *other == how).expect("one of them")];
                runs[rank].peak_bytes
            });
            let in_flight = u64::from(runs[0][rank].in_flight);
            let [input, all] = whole[rank];
            assert_eq!(none, in_flight * kept[rank][1], "{schedule}, rank {rank}");
            assert_eq!(cheap, in_flight * all, "{schedule}, rank {rank}");
            assert_eq!(some, in_flight * selective[rank][1], "{schedule}, rank {rank}");
            assert_eq!(full, (in_flight - 1) * input + all, "{schedule}, rank {rank}");
            assert!(
                cheap < none && some < cheap && (full < cheap || in_flight == 1),
                "{schedule}, rank {rank}"
            );
        }
    }
}

/// For each stage, the bytes that its backward-input leaves for its backward-weight.
fn pending(recipe: &Recipe, stages: u32) -> Vec<u64> {
    let (mut wire, _) = recipe.data.micro_batch(0, pipewright::id::MicroBatch(0)).expect("data");
    let stages = (recipe.model)().split(stages).expect("enough layers");
    let at = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };
    let stages = stages.into_iter().map(|stage| {
        let mut stage = stage.build().expect("it can be built");
        let (output, saved) = stage.forward(at, wire.clone()).expect("forward");
        wire = output.clone();
        let (_, pending) = stage.backward_input(saved, output).expect("backward-input");
        pending.bytes()
    });
    stages.collect()
}

#[test]
fn the_planned_peak_is_the_measured_one() {
    use Recompute::{Cheap, Full};
    let recipe = recipe(6, false, 8);
    let (bytes, pending) = (bytes(&recipe, 4, Cheap), pending(&recipe, 4));
    for how in [[Full; 4], [Full, Cheap, Full, Cheap], [Cheap; 4]] {
        let stage = |(([input, all], pending), how): ((&[u64; 2], &u64), &Recompute)| {
            let cost = StageCost { saved: *all as f64, pending: *pending as f64, ..StageCost::default() };
            if *how == Full { cost.recomputed(*input as f64) } else { cost }
        };
        let stages = bytes.iter().zip(&pending).zip(&how).map(stage).collect();
        let costs = Costs::each(stages, 0.0).expect("costs");
        for (name, ranks) in [("gpipe", 4), ("1f1b", 4), ("zb-h1", 4), ("zb-v", 2), ("interleaved-1f1b", 2)] {
            let schedule = Schedule::make(name, ranks, None, 8, &costs).expect("the sizes fit");
            let planned = simulate(&schedule, &costs, LinkKind::Buffered).expect("it ends").ranks;
            let planned: Vec<_> = planned.iter().map(|rank| rank.peak_memory).collect();
            let (report, timeline) =
                launch(&recipe, schedule, &how).step_traced().expect("the step succeeds");
            let measured: Vec<_> = report.ranks.iter().map(|rank| rank.peak_bytes as f64).collect();
            assert_eq!(planned, measured, "{name}, {how:?}");
            let traced =
                timeline.ranks.iter().map(|row| row.iter().map(|pass| pass.most).fold(0.0, f64::max));
            assert_eq!(traced.collect::<Vec<_>>(), measured, "{name}, {how:?}: traced");
        }
    }
}

#[test]
fn a_list_recomputes_the_stages_it_names() {
    let recipe = recipe(6, false, 8);
    let peaks = |how: [Recompute; 2]| {
        let report = launch(&recipe, named("gpipe", 2, 8), &how).step().expect("the step succeeds");
        [report.ranks[0].peak_bytes, report.ranks[1].peak_bytes]
    };
    let [none, full] = [Recompute::None, Recompute::Full].map(|how| peaks([how; 2]));
    assert_eq!(peaks([Recompute::None, Recompute::Full]), [none[0], full[1]]);
    assert_eq!(peaks([Recompute::Full, Recompute::None]), [full[0], none[1]]);
}

#[test]
fn a_run_continues_bit_for_bit_with_another_word() {
    let recipe = recipe(3, true, 3);
    let expected = recipe.plain_hash(4);
    let folder = tempfile::tempdir().expect("a folder");
    for (from, to) in [(0, 3), (3, 2), (2, 1), (1, 0)] {
        let place = folder.path().join(format!("from-{from}"));
        let schedule = |stages| named("1f1b", stages, 3);
        let mut pipeline = launch(&recipe, schedule(2), &[ALL[from]; 2]);
        train(&mut pipeline, 2);
        pipeline.save(&place).expect("it is saved");
        let mut pipeline = launch(&recipe, schedule(3), &[ALL[to]; 3]);
        pipeline.load(&place).expect("it loads");
        assert_eq!(trained(&mut pipeline, 2), expected, "{:?} to {:?}", ALL[from], ALL[to]);
    }
}

#[test]
fn a_planned_step_takes_one_forward_a_backward_more() {
    let none = StageCost {
        forward: 2.0,
        backward_input: 3.0,
        backward_weight: 1.0,
        update: 0.5,
        saved: 10.0,
        pending: 4.0,
        ..StageCost::NOTHING
    };
    let full = none.recomputed(1.5);
    let expected = StageCost { backward_input: 5.0, saved: 1.5, restored: 8.5, ..none };
    assert_eq!(full, expected);
    let schedule = named("gpipe", 3, 4);
    let makespan = |cost| {
        let costs = Costs::share(StageCost { update: 0.0, ..cost }, 0.0).expect("costs");
        simulate(&schedule, &costs, LinkKind::Buffered).expect("it ends").makespan
    };
    assert_eq!((makespan(none), makespan(full)), (6.0 * 6.0, 6.0 * 8.0));
}
