//! Models that are cut by the costs of their layers.

use pipewright::plan::{Fit, partition};

use super::*;

/// Layers with these times (a third for each pass) that keep this many bytes.
fn model(times: &[f64], saved: &[f64]) -> ModelCosts {
    let layer = |(index, (time, saved)): (usize, (&f64, &f64))| LayerCost {
        name: format!("layer{index}"),
        cost: StageCost {
            forward: time / 3.0,
            backward_input: time / 3.0,
            backward_weight: time / 3.0,
            saved: *saved,
            ..StageCost::NOTHING
        },
        backward: time * 2.0 / 3.0,
        shared: 0.0,
        output: 1.0,
    };
    let layers = times.iter().zip(saved).enumerate().map(layer).collect();
    ModelCosts::new(layers, 0.0, LinkCost::default()).unwrap()
}

fn light(times: &[f64]) -> ModelCosts {
    model(times, &vec![1.0; times.len()])
}

fn schedule(name: &str, ranks: u32, chunks: u32, micro_batches: u32) -> Schedule {
    Schedule::make(name, ranks, Some(chunks), micro_batches, &Default::default()).unwrap()
}

fn loads(times: &[f64], counts: &[usize], schedule: &Schedule) -> Vec<f64> {
    let mut loads = vec![0.0; schedule.ranks() as usize];
    let mut layers = times.iter();
    for (rank, &count) in schedule.placement().iter().zip(counts) {
        loads[rank.index()] += layers.by_ref().take(count).sum::<f64>();
    }
    loads
}

fn slowest(times: &[f64], counts: &[usize], schedule: &Schedule) -> f64 {
    loads(times, counts, schedule).into_iter().fold(0.0, f64::max)
}

/// All ways to cut this many layers into this many stages.
fn cuts(layers: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![layers]];
    }
    let firsts = 1..=layers - (stages - 1);
    let longer = |first: usize| {
        let rest = cuts(layers - first, stages - 1).into_iter();
        rest.map(move |rest| [vec![first], rest].concat())
    };
    firsts.flat_map(longer).collect()
}

#[test]
fn one_stage_a_rank_is_cut_at_the_smallest_largest_time() {
    let times = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert_eq!(partition(&light(&times), &schedule("1f1b", 2, 1, 4), None).unwrap(), [3, 2]);
    assert_eq!(partition(&light(&times), &schedule("1f1b", 3, 1, 4), None).unwrap(), [3, 1, 1]);
}

#[test]
fn a_rank_with_both_ends_of_a_vee_counts_their_sum() {
    // The head is expensive. Stage by stage [2, 2, 1, 1] would look balanced, but rank 0 would have two
    // thirds of the work.
    let times = [4.0, 1.0, 1.0, 1.0, 1.0, 4.0];
    let vee = schedule("dualpipe-v", 2, 2, 8);
    let counts = partition(&light(&times), &vee, None).unwrap();
    assert_eq!(slowest(&times, &counts, &vee), 8.0, "two layers of 4 cannot be apart: {counts:?}");
    let times = [1.0, 1.0, 1.0, 1.0, 1.0, 3.0];
    let counts = partition(&light(&times), &vee, None).unwrap();
    assert_eq!(slowest(&times, &counts, &vee), 4.0, "{counts:?}");
    assert_eq!(counts, [1, 2, 2, 1]);
}

#[test]
fn the_first_ranks_get_less_when_memory_is_short() {
    let (times, saved) = ([1.0; 8], [10.0; 8]);
    let schedule = schedule("1f1b", 2, 1, 8);
    assert_eq!(partition(&model(&times, &saved), &schedule, None).unwrap(), [4, 4]);
    // Rank 0 holds two micro-batches of its layers, rank 1 one.
    assert_eq!(partition(&model(&times, &saved), &schedule, Some(60.0)).unwrap(), [3, 5]);
    let error = partition(&model(&times, &saved), &schedule, Some(50.0)).unwrap_err().to_string();
    assert_eq!(error, "no cut of 8 layers into 2 stages keeps every rank within 50 bytes");
}

#[test]
fn what_two_layers_share_counts_once_in_one_stage() {
    let mut layers = model(&[1.0; 3], &[10.0; 3]).layers().to_vec();
    layers[2].shared = 4.0;
    let model = ModelCosts::new(layers, 0.0, LinkCost::default()).unwrap();
    assert_eq!(model.stage(0..3).saved, 26.0);
    assert_eq!(model.stage(2..3).saved, 10.0);
    assert_eq!(model.clone().recomputed(true).stage(2..3).saved, 1.0, "the output before it");
}

#[test]
fn costs_that_are_none_are_refused_by_layer() {
    for wrong in [-1.0, f64::NAN, f64::INFINITY] {
        let mut layers = light(&[1.0; 2]).layers().to_vec();
        layers[1].cost.backward_input = wrong;
        let error = ModelCosts::new(layers, 0.0, LinkCost::default()).unwrap_err().to_string();
        assert!(error.starts_with("layer `layer1`: the cost backward-input is"), "{error}");
    }
}

#[test]
fn a_setting_says_the_least_memory_that_works() {
    let costs = model(&[1.0; 8], &[10.0; 8]);
    let setting = |schedule: &str| Setting {
        schedule: schedule.to_owned(),
        ranks: 2,
        chunks: 1,
        micro_batches: 4,
        replicas: 1,
        gradient_groups: 1,
    };
    let Fit::Within(candidate) = setting("1f1b").fit(&costs, Some(60.0)).unwrap() else {
        panic!("three layers on rank 0 hold 60");
    };
    assert_eq!(candidate.counts, [3, 5]);
    assert_eq!(candidate.prediction.peak_memory, 60.0);
    let Fit::Above(least) = setting("gpipe").fit(&costs, Some(60.0)).unwrap() else {
        panic!("gpipe holds all four micro-batches");
    };
    assert_eq!(least, 160.0);
    assert!(setting("dualpipe-v").fit(&costs, None).is_err(), "it has two stages a rank");
}

#[test]
fn a_memory_limit_counts_what_a_backward_makes_again() {
    let model = model(&[3.0; 12], &[30.0; 12]).recomputed(true);
    for (name, chunks) in [("gpipe", 1), ("1f1b", 1), ("zb-h1", 1), ("interleaved-1f1b", 2), ("zb-v", 2)] {
        let schedule = schedule(name, 2, chunks, 4);
        let peak = |memory| {
            let counts = partition(&model, &schedule, memory).ok()?;
            let costs = model.stages(&counts).unwrap();
            Some(Prediction::of(&schedule, &costs, LinkKind::Buffered).unwrap().peak_memory)
        };
        let even = peak(None).unwrap();
        assert!(even >= 30.0 * 6.0 / f64::from(chunks), "{name}: {even}");
        assert_eq!(peak(Some(even)), Some(even), "{name}");
        for memory in [100.0, 150.0, 190.0, 200.0] {
            assert!(peak(Some(memory)).is_none_or(|peak| peak <= memory), "{name}, {memory}");
        }
    }
}

#[test]
fn auto_tries_cuts_for_both_placements_and_cuts_without_the_limit() {
    // The head is expensive, and in a V rank 0 has both ends of the model.
    let costs = model(&[1.0, 1.0, 1.0, 1.0, 1.0, 3.0], &[10.0; 6]);
    let setting = |schedule: &str| Setting {
        schedule: schedule.to_owned(),
        ranks: 2,
        chunks: 2,
        micro_batches: 6,
        replicas: 1,
        gradient_groups: 1,
    };
    let step = |name: &str, memory| match setting(name).fit(&costs, memory) {
        Ok(Fit::Within(candidate)) => Some(candidate.prediction.step),
        _ => None,
    };
    for memory in [None, Some(200.0), Some(120.0), Some(60.0)] {
        let auto = step("auto", memory).expect("one micro-batch fits");
        for name in ["zb-v", "v-half", "v-min", "interleaved-zb"] {
            let named = step(name, memory).unwrap_or(f64::INFINITY);
            assert!(auto <= named * (1.0 + 1e-9), "{name} in {memory:?}: {named}, auto {auto}");
        }
    }
    let Fit::Above(least) = setting("auto").fit(&costs, Some(5.0)).unwrap() else {
        panic!("no layer fits in 5");
    };
    assert!(matches!(setting("auto").fit(&costs, Some(least)).unwrap(), Fit::Within(_)));
}

#[test]
fn a_prediction_counts_the_update_as_work() {
    let mut layers = light(&[3.0; 2]).layers().to_vec();
    layers[0].cost.update = 2.0;
    let costs = ModelCosts::new(layers, 0.0, LinkCost::default()).unwrap().stages(&[1, 1]).unwrap();
    let schedule = schedule("1f1b", 2, 1, 1);
    let prediction = Prediction::of(&schedule, &costs, LinkKind::Buffered).unwrap();
    assert_eq!(prediction.step, 8.0, "two stages of 3 in a row, and the longer update");
    assert!((prediction.bubble - 0.5).abs() < 1e-12, "{}", prediction.bubble);
    assert_eq!(simulated(&schedule, &costs).makespan, 6.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_other_cut_has_a_faster_slowest_rank_and_stage(
        times in prop::collection::vec(1..20_u32, 4..9),
        (name, ranks, chunks) in prop::sample::select(vec![
            ("1f1b", 2, 1), ("1f1b", 4, 1), ("interleaved-1f1b", 2, 2), ("dualpipe-v", 2, 2),
        ]),
    ) {
        let times: Vec<f64> = times.into_iter().map(f64::from).collect();
        let schedule = schedule(name, ranks, chunks, 4);
        let score = |counts: &[usize]| {
            let stages = light(&times).stages(counts).unwrap();
            let stages = stages.of(schedule.placement()).unwrap();
            let stage = stages.iter().map(StageCost::work).fold(0.0, f64::max);
            4.0 * slowest(&times, counts, &schedule) + (f64::from(ranks) - 1.0) * stage
        };
        let counts = partition(&light(&times), &schedule, None).unwrap();
        let scores = cuts(times.len(), counts.len());
        let best = scores.iter().map(|counts| score(counts)).fold(f64::INFINITY, f64::min);
        let found = score(&counts);
        prop_assert!(found <= best * (1.0 + 1e-9), "{:?}: {} above {}", counts, found, best);
    }
}

#[test]
fn a_backward_in_one_piece_costs_what_was_measured_of_it() {
    let mut layers = light(&[3.0; 2]).layers().to_vec();
    layers[0].backward = 1.0;
    let costs = ModelCosts::new(layers, 0.0, LinkCost::default()).unwrap();
    let work = |name| costs.clone().under(&schedule(name, 2, 1, 4)).stage(0..1).work();
    assert_eq!((work("1f1b"), work("zb-h1")), (2.0, 3.0));
}

#[test]
fn weight_gradients_wait_for_their_turn() {
    let bfs = schedule("looped-bfs", 2, 2, 3);
    let run = bfs.in_turn();
    let row: Vec<String> =
        run.passes(Rank(1)).map(|(pass, cell)| Action::Compute(pass, cell).to_string()).collect();
    assert_eq!(row[6..], ["3I2", "3I1", "3B0", "3W1", "3W2", "1I2", "1I1", "1B0", "1W1", "1W2"]);
    for name in ["gpipe", "1f1b", "zb-h1"] {
        let schedule = schedule(name, 2, 1, 4);
        assert_eq!(schedule.clone().in_turn(), schedule, "{name}");
    }
}
