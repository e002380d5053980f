//! Watching the steps of a training whose ranks become slow and fast again.

use pipewright::plan::{
    Better, LayerCost, LinkCost, ModelCosts, Prediction, Replicas, StageCost, Watch, Why,
};
use pipewright::schedule::{LinkKind, Schedule};
use pipewright::stages::rng;
use proptest::prelude::*;

/// A model of layers whose passes take these times.
fn model(times: &[f64]) -> ModelCosts {
    let layer = |(index, time): (usize, &f64)| LayerCost {
        name: format!("h.{index}"),
        cost: StageCost {
            forward: *time,
            backward_input: *time,
            backward_weight: *time,
            update: 0.1 * time,
            ..StageCost::NOTHING
        },
        backward: 2.0 * time,
        shared: 0.0,
        output: 1.0,
    };
    let layers = times.iter().enumerate().map(layer).collect();
    ModelCosts::new(layers, 1.0, LinkCost::default()).expect("possible costs")
}

/// All cuts of this many layers into this many stages.
fn cuts(layers: usize, stages: usize) -> Vec<Vec<usize>> {
    if stages == 1 {
        return vec![vec![layers]];
    }
    let firsts = 1..=layers + 1 - stages;
    let with =
        |first| cuts(layers - first, stages - 1).into_iter().map(move |rest| [&[first], &rest[..]].concat());
    firsts.flat_map(with).collect()
}

/// Cuts as it was proposed.
fn follow(watch: &mut Watch, better: &Better, seconds: f64) {
    match better.why {
        Why::Faster => watch.try_out(better.counts.clone(), better.was, seconds),
        Why::ItWasFaster => watch.set(better.counts.clone(), seconds),
    }
}

/// Ranks that train, and how slow they are.
struct Life {
    truth: ModelCosts,
    replicas: Replicas,
    slowness: Vec<f64>,
    watch: Watch,
    steps: u32,
    changes: usize,
}

impl Life {
    fn new(times: &[f64], schedule: Schedule, counts: Vec<usize>, is_measured: bool) -> Self {
        let (truth, replicas) = (model(times), Replicas::one(schedule));
        // Without measured costs, all that is known are shares of operations, and those are a little wrong.
        let known = match is_measured {
            true => truth.clone(),
            false => model(&times.iter().map(|time| 1e6 * time).collect::<Vec<_>>()),
        };
        let slowness = vec![1.0; replicas.ranks() as usize];
        let watch = Watch::new((known, is_measured), replicas.clone(), counts, None, 0.5);
        Self { truth, replicas, slowness, watch, steps: 0, changes: 0 }
    }

    /// The time of a step with this cut.
    fn step(&self, counts: &[usize]) -> f64 {
        let truth = self.truth.clone().at_slowness(self.slowness.clone()).expect("above 0");
        let costs = truth.stages_on(counts, self.replicas.largest().placement()).expect("all layers");
        Prediction::of_replicas(&self.replicas, &costs, LinkKind::Buffered).expect("it ends").step
    }

    fn best(&self) -> f64 {
        let all = cuts(self.truth.layers().len(), self.watch.counts().len());
        all.iter().map(|counts| self.step(counts)).fold(f64::INFINITY, f64::min)
    }

    /// Some steps. After them there are `after` more. Times are up to 1 % longer by chance.
    fn train(&mut self, steps: u32, after: u64) {
        for step in (0..u64::from(steps)).rev() {
            let noise = |draw: u32| {
                1.0 + 0.01 * f64::from(rng::unit(rng::philox([7, 9], [self.steps, draw, 0, 0])[0]))
            };
            let micro_batches = f64::from(self.replicas.micro_batches());
            let placement = self.replicas.largest().placement().clone();
            let (mut busy, mut first) = (vec![0.0; self.slowness.len()], 0);
            for (rank, count) in placement.iter().zip(self.watch.counts()) {
                let cost = self.truth.stage(first..first + count);
                first += count;
                busy[rank.index()] +=
                    self.slowness[rank.index()] * (micro_batches * cost.work() + cost.update);
            }
            let busy = busy.iter().zip(1..).map(|(busy, draw)| busy * noise(draw)).collect();
            let seconds = self.step(self.watch.counts()) * noise(0);
            self.watch.add(seconds, busy);
            self.steps += 1;
            if let Some(better) = self.watch.better(step + after).expect("it is simulated") {
                assert_eq!(better.counts.iter().sum::<usize>(), self.truth.layers().len());
                follow(&mut self.watch, &better, 0.5);
                self.changes += 1;
            }
        }
    }
}

fn schedules(ranks: u32) -> Vec<Schedule> {
    let names = ["1f1b", "gpipe", "zb-h1", "interleaved-1f1b"];
    names.map(|name| Schedule::named(name, ranks, 4 * ranks).expect("it fits")).into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_rank_that_becomes_slow_and_fast_again_costs_a_tenth_at_most(
        times in prop::collection::vec(0.5..2.0_f64, 8..13),
        ranks in 2..4_u32,
        which in 0..4_usize,
        slow in (0..4_usize, 1.3..3.0_f64),
        is_measured: bool,
    ) {
        let schedule = schedules(ranks)[which].clone();
        let stages = schedule.stages() as usize;
        let mut counts = vec![times.len() / stages; stages];
        counts[0] += times.len() % stages;
        let mut life = Life::new(&times, schedule, counts, is_measured);
        let rank = slow.0 % ranks as usize;
        for slowness in [1.0, slow.1, 1.0] {
            life.slowness[rank] = slowness;
            let before = life.changes;
            life.train(150, 10_000);
            let (now, best) = (life.step(life.watch.counts()), life.best());
            prop_assert!(now <= 1.1 * best, "{now} instead of {best}, {:?}", life.watch.counts());
            prop_assert!(life.changes - before <= 6, "{} changes", life.changes - before);
        }
    }
}

#[test]
fn nothing_is_changed_where_nothing_is_gained_or_too_few_steps_are_left() {
    for schedule in schedules(2) {
        let stages = schedule.stages() as usize;
        let even = vec![8 / stages; stages];
        let mut life = Life::new(&[1.0; 8], schedule.clone(), even.clone(), true);
        life.train(200, 10_000);
        assert_eq!(life.changes, 0, "{}", schedule.name());
        // A change costs half a second, and steps of a few milliseconds do not save that within 100.
        let mut life = Life::new(&[1e-5; 8], schedule.clone(), even.clone(), true);
        life.slowness[1] = 3.0;
        life.train(100, 0);
        assert_eq!(life.changes, 0, "{}", schedule.name());
        let mut life = Life::new(&[1e-5; 8], schedule, even, true);
        life.slowness[1] = 3.0;
        life.train(100, 1_000_000);
        assert!(life.changes > 0);
    }
}

#[test]
fn a_cut_that_did_not_help_is_taken_back_and_then_there_are_longer_and_longer_pauses() {
    let schedule = Schedule::named("1f1b", 2, 8).expect("it fits");
    let replicas = Replicas::one(schedule);
    let mut watch = Watch::new((model(&[1.0; 8]), true), replicas, vec![4, 4], None, 0.0);
    let mut told = Vec::new();
    for step in 0..400 {
        // Whatever the cut is, the second rank says that it is slow, and a step takes as long.
        let expected = |count: usize| count as f64 * (8.0 * 3.0 + 0.1);
        let counts = watch.counts();
        watch.add(100.0, vec![expected(counts[0]), 3.0 * expected(counts[1])]);
        if let Some(better) = watch.better(10_000).expect("it is simulated") {
            told.push((step, better.why));
            follow(&mut watch, &better, 0.1);
        }
    }
    let whys: Vec<Why> = told.iter().map(|(_, why)| *why).collect();
    assert!(whys.len() >= 6, "{told:?}");
    for (pair, next) in whys.chunks(2).zip([Why::Faster; 9]) {
        assert_eq!(pair[0], next);
        assert!(pair.len() < 2 || pair[1] == Why::ItWasFaster, "{told:?}");
    }
    let faster: Vec<i32> =
        told.iter().filter(|(_, why)| *why == Why::Faster).map(|(step, _)| *step).collect();
    let pauses: Vec<i32> = faster.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses.windows(2).all(|two| two[1] > two[0]), "{pauses:?}");
}

#[test]
fn a_cut_for_slow_ranks_is_the_best_of_all_cuts() {
    for (slowness, expected) in [([1.0, 1.0], [6, 6]), ([1.0, 2.0], [8, 4]), ([3.0, 1.0], [3, 9])] {
        let model = model(&[1.0; 12]).at_slowness(slowness.to_vec()).expect("above 0");
        let schedule = Schedule::named("1f1b", 2, 16).expect("it fits");
        let counts = pipewright::plan::partition(&model, &schedule, None).expect("it can be cut");
        assert_eq!(counts, expected);
    }
    let error = model(&[1.0]).at_slowness(vec![0.0]).expect_err("no rank takes no time");
    assert_eq!(error.to_string(), "a rank cannot take 0 times as long");
}

/// A search by neighbours from one cut alone ended at 1.105 times the best step.
#[test]
fn the_search_does_not_end_beside_the_best_cut() {
    let times = [1.165, 0.946, 1.047, 0.5, 0.994, 1.853, 0.884, 1.022, 1.883];
    let mut life = Life::new(&times, schedules(2)[3].clone(), vec![3, 2, 2, 2], false);
    for slowness in [1.0, 1.764] {
        life.slowness[0] = slowness;
        life.train(150, 10_000);
    }
    let (now, best) = (life.step(life.watch.counts()), life.best());
    assert!(now <= 1.05 * best, "{now} instead of {best}, {:?}", life.watch.counts());
}
