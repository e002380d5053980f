//! Activations that are on the host between forward and backward.

use pipewright::plan::{Costs, StageCost};
use pipewright::schedule::LinkKind;
use pipewright::stages::{Recompute, recompute};

use super::*;
use crate::failures::left_since;

/// Set in a process whose memory is counted or whose calls fail, so other tests must not be there.
const ALONE: &str = "PIPEWRIGHT_OFFLOADING";

/// The schedule with all stages offloaded as far as that is worth it.
pub(crate) fn offloading(schedule: Schedule) -> Schedule {
    let weights = vec![1.0; schedule.stages() as usize];
    schedule.in_turn().offloading(&weights, f64::INFINITY)
}

fn most(reports: &[StepReport], rank: usize) -> u64 {
    reports[0].ranks[rank].peak_bytes
}

/// The bits without offload and with it, and that it was worth something where it was planned.
#[track_caller]
fn same_bits(recipe: &Recipe, schedule: Schedule, places: Vec<Place>) {
    let case = format!("{} on {places:?}", schedule.name());
    let with = offloading(schedule.clone());
    assert!(with.offloads(), "{case}: nothing is worth it");
    let (kept, expected) = train(recipe, schedule, places.clone());
    let (got, hash) = train(recipe, with, places);
    assert_eq!(hash, expected, "{case}");
    for (rank, report) in got[0].ranks.iter().enumerate() {
        match report.offloaded_bytes {
            0 => assert_eq!(report.peak_bytes, most(&kept, rank), "{case}, rank {rank}"),
            // What waits for backward-weight may be most of it, and stays.
            _ => assert!(report.peak_bytes <= most(&kept, rank), "{case}, rank {rank}"),
        }
    }
    assert!(got[0].ranks.iter().any(|rank| rank.offloaded_bytes > 0), "{case}");
}

#[test]
fn offloaded_activations_come_back_bit_for_bit() {
    if emulator::start().is_none() {
        return;
    }
    let many = recipe(2, true, 8);
    for dtype in [DType::F32, DType::Bf16] {
        for (name, ranks) in [("gpipe", 1), ("gpipe", 2), ("looped-bfs", 2), ("1f1b", 4), ("zb-2p", 3)] {
            same_bits(&many, named(name, ranks, 8), vec![on(GPU, dtype)]);
        }
    }
    // Two GPUs, and a rank on the CPU, which keeps what it has.
    let two = [GPU, Device::Cuda(1)].map(|device| on(device, DType::F32));
    same_bits(&many, named("gpipe", 2, 8), two.into());
    same_bits(&many, named("gpipe", 2, 8), vec![two[0], Place::default()]);
}

#[test]
fn replicas_offload_too() {
    if emulator::start().is_none() {
        return;
    }
    let mut both = recipe(2, true, 16);
    both.replicas = 2;
    same_bits(&both, named("gpipe", 2, 16), vec![on(GPU, DType::F32)]);
}

/// Trains two steps of stages that recompute.
fn recomputed(recipe: &Recipe, schedule: Schedule, how: Recompute) -> Result<(u64, u64, String)> {
    let stages = (recipe.model)().split(schedule.stages())?.into_iter();
    let mut pipeline = Pipeline::builder()
        .schedule(schedule)
        .stages(stages.map(|stage| recompute(stage, how)).collect())
        .loss(CrossEntropy::default())
        .data(Arc::clone(&recipe.data))
        .optimizer(recipe.optimizer)
        .learning_rate(recipe.learning_rate)
        .places(vec![on(GPU, DType::F32)])
        .pin(false)
        .launch()?;
    let last = pipeline.step()?.ranks[1];
    pipeline.step()?;
    Ok((last.peak_bytes, last.offloaded_bytes, pipeline.weights_hash()?))
}

#[test]
fn what_recomputing_stages_keep_is_offloaded() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = recipe(2, false, 8);
    let schedule = named("gpipe", 2, 8);
    for how in [Recompute::Selective, Recompute::Full] {
        let kept = recomputed(&recipe, schedule.clone(), how).expect("it trains");
        let got = recomputed(&recipe, offloading(schedule.clone()), how).expect("it trains");
        assert_eq!(got.2, kept.2, "{how:?}");
        assert!(got.0 < kept.0 && got.1 > 0 && kept.1 == 0, "{how:?}: {got:?}, {kept:?}");
    }
}

#[test]
fn ranks_hold_exactly_what_is_planned() {
    if emulator::start().is_none() {
        return;
    }
    let recipe = recipe(2, false, 8);
    for (name, ranks) in [("gpipe", 2), ("1f1b", 4)] {
        let schedule = named(name, ranks, 8);
        let (kept, _) = train(&recipe, schedule.clone(), vec![on(GPU, DType::F32)]);
        let with = offloading(schedule.clone());
        let (got, _) = train(&recipe, with.clone(), vec![on(GPU, DType::F32)]);
        let peaks = |schedule: &Schedule, saved: f64, stays: f64| {
            let cost = StageCost { saved, stays, ..StageCost::default() };
            let costs = Costs::share(cost, 0.0).expect("costs");
            let simulation =
                pipewright::plan::simulate(schedule, &costs, LinkKind::Buffered).expect("it ends");
            simulation.ranks.iter().map(|rank| rank.peak_memory).collect::<Vec<_>>()
        };
        for rank in 0..ranks as usize {
            // What a micro-batch keeps, from the run without offload. The ids of rank 0 stay on the host.
            let each = most(&kept, rank) as f64 / peaks(&schedule, 1.0, 0.0)[rank];
            let ids = if rank == 0 { 2.0 * 8.0 * 4.0 } else { 0.0 };
            let planned = peaks(&with, each, ids)[rank];
            assert_eq!(most(&got, rank) as f64, planned, "{name}, rank {rank}");
        }
    }
}

#[test]
fn costs_measured_while_offloading_have_all_that_stages_keep() {
    if emulator::start().is_none() {
        return;
    }
    let saved = |schedule: Schedule| {
        let builder = recipe(2, false, 8).builder(schedule);
        let places = vec![on(GPU, DType::F32)];
        let mut pipeline = builder.places(places).launch().expect("it starts");
        let (report, timeline) = pipeline.step_traced().expect("a step");
        for (rank, row) in timeline.ranks.iter().enumerate() {
            let peak = row.iter().map(|pass| pass.most).fold(0.0, f64::max);
            assert_eq!(peak, report.ranks[rank].peak_bytes as f64, "rank {rank}");
        }
        let costs = Costs::measured(&[timeline]).expect("all passes");
        let stages = costs.of(pipeline.schedule().placement()).expect("as many stages");
        let held = stages.iter().map(|cost| (cost.saved, cost.restored));
        held.collect::<Vec<_>>()
    };
    let schedule = named("1f1b", 4, 8);
    assert_eq!(saved(offloading(schedule.clone())), saved(schedule));
}

#[test]
fn later_steps_take_no_more_memory() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    let alone = env::var(ALONE).ok();
    // All memory of one rank. Of two ranks on a GPU, one takes new memory for a wire while the other still
    // reads the last one, so how much they have depends on which is faster. Host memory does not.
    let left = emulator::answer as fn(&str) -> String;
    for (ranks, count) in [(1, left), (2, page_locked)] {
        // A process for each: page-locked memory of one that is freed would be counted with the next one.
        match &alone {
            Some(alone) if *alone == ranks.to_string() => {}
            Some(_) => continue,
            None => {
                let test = "offload::later_steps_take_no_more_memory";
                in_a_process_of_its_own(test, ALONE, &ranks.to_string());
                continue;
            }
        }
        let builder = recipe(2, false, 8).builder(offloading(named("gpipe", ranks, 8)));
        let places = vec![on(GPU, DType::F32)];
        let mut pipeline = builder.places(places).launch().expect("it starts");
        let counts = [0; 5].map(|_| {
            pipeline.step().expect("a step");
            count("pw_left")
        });
        // The first update makes the state of the optimizer.
        let later = &counts[1..];
        assert!(later.iter().all(|count| *count == later[0]), "{ranks}: {counts:?}");
    }
}

/// How many page-locked allocations there are, in words.
fn page_locked(left: &str) -> String {
    let left = emulator::answer(left);
    let found = left.split(", ").find(|part| part.contains("page-locked"));
    found.expect("there are some").to_owned()
}

/// Whether no host memory can be taken for offload when this call of CUDA finds none.
fn is_told(call: u32) -> bool {
    let recipe = recipe(2, false, 8);
    // While the run before still frees such memory, a call that finds none is made again.
    assert_eq!(left_since(""), None, "after a run");
    emulator::tell("pw_fail", &format!("cuMemHostAlloc:{call}:2"));
    let builder = recipe.builder(offloading(named("gpipe", 2, 8)));
    let launched = builder.places(vec![on(GPU, DType::F32)]).launch();
    let ended = launched.and_then(|mut pipeline| pipeline.step());
    emulator::tell("pw_fail", "");
    let told = ended.expect_err("a call fails").to_string();
    has(&told, &["out of memory on cpu: "]);
    told.contains("pipeline.offload")
}

#[test]
fn host_memory_that_cannot_be_had_is_told_with_the_key_that_wants_it() {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return;
    }
    if env::var_os(ALONE).is_none() {
        let test = "offload::host_memory_that_cannot_be_had_is_told_with_the_key_that_wants_it";
        return in_a_process_of_its_own(test, ALONE, "");
    }
    // Parameters and micro-batches go through such memory too, in more blocks where copies take longer.
    assert!((1..).any(is_told));
}
