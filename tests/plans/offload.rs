//! Which activations are offloaded, when they go and come back, and what that is worth. As pure data.

use pipewright::id::Rank;
use pipewright::plan::{
    Costs, Fit, Fitting, LayerCost, LinkCost, ModelCosts, Offload, RankSimulation, Setting, StageCost,
    offloaded, simulate,
};
use pipewright::schedule::{Cell, LinkKind, MoveStep, Pass};

use super::*;

/// Every named schedule, with several ranks, chunks and micro-batches.
fn schedules() -> impl Iterator<Item = Schedule> {
    let sizes = |name: &'static str| {
        let chunks = Schedule::chunks(name).expect("a name");
        let (least, most) = (*chunks.start(), *chunks.end());
        (least..=most.min(3)).flat_map(move |chunks| {
            let ranks = [1, 2, 4, 7].into_iter();
            ranks.flat_map(move |ranks| [1, 3, 8, 21].map(|micro_batches| (ranks, chunks, micro_batches)))
        })
    };
    Schedule::names().flat_map(move |name| {
        sizes(name).filter_map(move |(ranks, chunks, micro_batches)| {
            Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default()).ok()
        })
    })
}

/// The same, as it runs and with all offloaded that is worth it.
fn with(schedule: &Schedule) -> Schedule {
    let weights = vec![1.0; schedule.stages() as usize];
    schedule.clone().in_turn().offloading(&weights, f64::INFINITY)
}

fn ranks(schedule: &Schedule) -> impl Iterator<Item = Rank> + use<> {
    (0..schedule.ranks()).map(Rank)
}

fn costs(copy: f64) -> Costs {
    let cost = StageCost { copy, ..StageCost::default() };
    Costs::share(cost, 0.0).expect("costs")
}

fn simulated(schedule: &Schedule, copy: f64) -> Vec<RankSimulation> {
    let simulation = simulate(schedule, &costs(copy), LinkKind::Buffered).expect("it ends");
    simulation.ranks
}

/// For each pass of a rank, which cells are on its device, by following the moves.
fn on_device(schedule: &Schedule, rank: Rank) -> Vec<Vec<Cell>> {
    let moves = schedule.moves(rank);
    let (mut there, mut out, mut held): (Vec<Cell>, Vec<Cell>, Vec<_>) = Default::default();
    let mut next = moves.iter().peekable();
    for (index, (pass, cell)) in schedule.passes(rank).enumerate() {
        while let Some(one) = next.next_if(|one| one.before <= index) {
            let place = there.iter().position(|cell| *cell == one.cell);
            match one.step {
                MoveStep::Out => out.push(one.cell),
                MoveStep::Free => {
                    assert!(out.contains(&one.cell), "{one:?} has not begun to leave");
                    there.swap_remove(place.expect("it was there"));
                }
                MoveStep::Back => {
                    assert_eq!(place, None, "{one:?} was freed");
                    there.push(one.cell);
                }
            }
        }
        if pass == Pass::Forward {
            there.push(cell);
        }
        held.push(there.clone());
        if matches!(pass, Pass::Backward | Pass::BackwardInput) {
            let place = there.iter().position(|held| *held == cell);
            there.swap_remove(place.unwrap_or_else(|| panic!("{pass:?} of {cell:?} without activations")));
        }
    }
    assert_eq!(next.next(), None, "all is moved");
    assert!(there.is_empty());
    held
}

#[test]
fn what_leaves_is_back_before_its_backward_and_nothing_else_moves() {
    for schedule in schedules() {
        let with = with(&schedule);
        for rank in ranks(&with) {
            on_device(&with, rank);
            for one in with.moves(rank) {
                assert!(with.is_offloaded(one.cell));
                assert_eq!(with.rank_of(one.cell.stage), rank);
            }
        }
        assert!(!schedule.offloads(), "without the call nothing is offloaded");
    }
}

#[test]
fn a_rank_offloads_exactly_if_it_then_holds_less() {
    let mut less = 0;
    for schedule in schedules() {
        let (kept, got) = (schedule.clone().in_turn(), with(&schedule));
        let peaks = |schedule: &Schedule| {
            let most = |rank| on_device(schedule, rank).iter().map(Vec::len).max().unwrap_or(0);
            ranks(schedule).map(most).collect::<Vec<_>>()
        };
        let (before, after) = (peaks(&kept), peaks(&got));
        for rank in ranks(&got) {
            let moves = !got.moves(rank).is_empty();
            let (before, after) = (before[rank.index()], after[rank.index()]);
            assert_eq!(moves, after < before, "{} {rank}: {before} to {after}", got.name());
            less += usize::from(moves);
        }
    }
    assert!(less > 100, "{less} ranks hold less");
}

#[test]
fn the_simulation_holds_what_the_moves_say() {
    for schedule in schedules() {
        let with = with(&schedule);
        let chunks = with.placement().chunks();
        for (rank, simulated) in ranks(&with).zip(simulated(&with, 0.3)) {
            let most = on_device(&with, rank).iter().map(Vec::len).max().unwrap_or(0);
            let most = most as f64 / f64::from(chunks[rank.index()]);
            assert!((simulated.peak_memory - most).abs() < 1e-9, "{} {rank}", with.name());
        }
    }
}

#[test]
fn copies_are_between_the_passes_of_their_cells_and_one_after_the_other() {
    for schedule in schedules() {
        let with = with(&schedule);
        let step = with.timeline(&costs(0.7), LinkKind::Buffered).expect("it ends");
        for rank in ranks(&with) {
            let pass = |is: fn(Pass) -> bool, cell| {
                let mut row = step.ranks[rank.index()].iter();
                *row.find(|pass| is(pass.pass) && pass.cell == cell).expect("there is one")
            };
            let mut ends = [0.0; 2];
            for copy in step.copies.iter().filter(|copy| copy.rank == rank) {
                let forward = pass(|pass| pass == Pass::Forward, copy.cell);
                let backward = pass(|pass| matches!(pass, Pass::Backward | Pass::BackwardInput), copy.cell);
                assert!(forward.end <= copy.start && copy.end <= backward.start, "{copy:?}");
                let end = &mut ends[usize::from(copy.step == MoveStep::Back)];
                assert!(*end <= copy.start, "{copy:?}");
                *end = copy.end;
            }
            let moves = with.moves(rank);
            let copies = step.copies.iter().filter(|copy| copy.rank == rank);
            assert_eq!(3 * copies.count(), 2 * moves.len());
        }
    }
}

#[test]
fn one_f_one_b_holds_three_micro_batches_at_most() {
    let schedule = with(&Schedule::named("1f1b", 8, 32).expect("the sizes fit"));
    let most: Vec<f64> = simulated(&schedule, 0.0).iter().map(|rank| rank.peak_memory).collect();
    assert_eq!(most, [3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0]);
    let host = offloaded(&schedule, &costs(0.0)).expect("costs");
    assert_eq!(host[5..], [0.0, 0.0, 0.0], "the last three gain nothing");
    assert!(host[..5].iter().all(|host| *host > 0.0));
}

#[test]
fn copies_that_are_shorter_than_passes_cost_no_time_and_slow_ones_do() {
    let kept = Schedule::named("1f1b", 8, 32).expect("the sizes fit");
    let with = with(&kept);
    let step = |schedule: &Schedule, copy| {
        let simulation = simulate(schedule, &costs(copy), LinkKind::Buffered).expect("it ends");
        let copying: f64 = simulation.ranks.iter().map(|rank| rank.copying).sum();
        for rank in &simulation.ranks {
            let sum = rank.busy + rank.warm_up + rank.waiting + rank.drain;
            assert!((sum - simulation.makespan).abs() < 1e-9, "{rank:?}");
        }
        (simulation.makespan, copying)
    };
    assert_eq!(step(&with, 1.0), step(&kept, 1.0));
    let (slow, copying) = step(&with, 4.0);
    assert!(slow > step(&kept, 4.0).0 && copying > 0.0);
    // The link sets the pace: each micro-batch needs 4 in each direction.
    assert!(slow > 4.0 * 24.0, "{slow}");
}

#[test]
fn a_rank_never_has_more_on_the_host_than_it_may() {
    for schedule in schedules() {
        let weights = vec![1.0; schedule.stages() as usize];
        let chunks = schedule.placement().chunks();
        for most in [0.0, 1.0, 2.5] {
            let with = schedule.clone().in_turn().offloading(&weights, most);
            let host = offloaded(&with, &Costs::default()).expect("costs");
            for (host, chunks) in host.iter().zip(&chunks) {
                assert!(host * f64::from(*chunks) <= most + 1e-9, "{}: {host} of {most}", with.name());
            }
            assert!(most > 0.0 || !with.offloads());
        }
    }
}

#[test]
fn stages_without_weight_keep_all_and_parts_and_turns_keep_their_offload() {
    let schedule = Schedule::named("gpipe", 2, 8).expect("the sizes fit");
    let first = schedule.clone().offloading(&[1.0, 0.0], f64::INFINITY);
    assert!(first.moves(Rank(1)).is_empty() && !first.moves(Rank(0)).is_empty());
    let part = with(&schedule).part(0..6);
    assert!(part.offloads());
    ranks(&part).for_each(|rank| drop(on_device(&part, rank)));
    assert!(!part.idle().offloads());
    assert_eq!(first.clone().for_replicas(2).moves(Rank(0)), first.moves(Rank(0)));
    let turned = Schedule::named("zb-2p", 4, 8).expect("the sizes fit");
    let turned = turned.offloading(&[1.0; 4], f64::INFINITY).in_turn();
    ranks(&turned).for_each(|rank| drop(on_device(&turned, rank)));
}

/// A model of equal layers, on GPUs that copy 1 MB in a time of 1. Each layer keeps 1 MB.
fn model() -> ModelCosts {
    let layer = |index: usize| LayerCost {
        name: format!("layer.{index}"),
        cost: StageCost { saved: 1e6, ..StageCost::default() },
        backward: 2.0,
        shared: 0.0,
        output: 0.0,
    };
    let link = LinkCost { latency: 0.0, per_byte: 0.0 };
    let model = ModelCosts::new((0..8).map(layer).collect(), 1e5, link).expect("costs");
    model.with_host(1e-6, 1e5).expect("costs")
}

#[test]
fn a_cut_that_is_too_large_fits_with_offload() {
    let model = model();
    let setting = Setting {
        schedule: "1f1b".to_owned(),
        ranks: 4,
        chunks: 1,
        micro_batches: 16,
        replicas: 1,
        gradient_groups: 16,
    };
    let fit = |memory, most: Option<f64>| {
        let offload = most.map(|most| Offload { ranks: vec![true; 4], most });
        let fitting = Fitting {
            model: &model,
            counts: None,
            memory: Some(memory),
            offload: offload.as_ref(),
            barrier: true,
        };
        match fitting.setting(&setting).expect("it can be planned") {
            Fit::Within(candidate) => Some(candidate),
            Fit::Above(_) => None,
        }
    };
    // Two layers on the first rank, four micro-batches in flight.
    let kept = fit(8e6, None).expect("it fits");
    assert_eq!(kept.counts, [2, 2, 2, 2]);
    let with = fit(6.2e6, Some(1e9)).expect("it fits with offload");
    assert_eq!(with.counts, [2, 2, 2, 2]);
    assert!(with.prediction.peak_memory <= 6.2e6);
    assert_eq!(with.prediction.step, kept.prediction.step, "copies are hidden");
    let other = fit(6.2e6, None);
    assert!(other.is_none_or(|other| other.prediction.step > with.prediction.step));
}

const CONFIG: &str = "
[model]
kind = 'gpt'
dim = 512
layers = 8
heads = 8

[data]
kind = 'text'
path = 'builtin:shakespeare'
seq = 512

[pipeline]
stages = 8
micro_batches = 32
micro_batch_size = 4
dtype = 'bf16'
";

fn config(offload: &str) -> Config {
    Config::parse("my.toml", &format!("{CONFIG}{offload}"), &[], &[]).expect("a config")
}

#[test]
fn a_config_that_offloads_holds_less_on_its_gpus_and_the_rest_on_the_host() {
    let h100 = Gpu::named("h100").expect("a kind");
    let held = |offload: &str| {
        let (config, _) = compose::with_gpus(config(offload), h100).expect("GPUs");
        let plan = compose::plan_for(&config, h100).expect("a plan");
        compose::memory(&config, &plan).expect("an estimate")
    };
    let (kept, with) = (held(""), held("offload = '64GiB'"));
    assert!(kept.iter().all(|rank| rank.offloaded == 0.0));
    assert!(with[0].activations < 0.5 * kept[0].activations);
    // Seven of the eight that were on the GPU, at most, and what is on its way.
    assert!(with[0].offloaded > 4.0 * with[0].activations / 3.0);
    assert_eq!(with[7].activations, kept[7].activations);
    let less = held("offload = '20MiB'");
    assert!(less[0].offloaded <= f64::from(20 << 20) && less[0].activations > with[0].activations);
}

#[test]
fn a_config_with_all_ranks_on_the_cpu_cannot_offload() {
    let told = compose::plan(&config("offload = '1GiB'")).expect_err("refused").to_string();
    has(&told, &["my.toml:18: pipeline.offload: all ranks are on the CPU"]);
}
