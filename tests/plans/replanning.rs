//! Watching the steps of a training whose ranks become slow and fast again.

use pipewright::groups::GradientGroups;
use pipewright::mesh::{Map, Mesh};
use pipewright::plan::{
    Better, Fit, Fitting, LayerCost, LinkCost, ModelCosts, Prediction, Reduction, Replicas, Scheduling,
    Setting, StageCost, Watch, Why,
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
            saved: 1.0,
            pending: 0.5,
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
    let next = (better.scheduling.clone(), better.counts.clone());
    match better.why {
        Why::Faster => watch.try_out(next, better.was, seconds),
        Why::ItWasFaster => watch.set(next, seconds),
    }
}

/// Ranks that train, and how slow they are.
struct Life {
    truth: ModelCosts,
    slowness: Vec<f64>,
    watch: Watch,
    memory: Option<f64>,
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
        let by = Scheduling::of(replicas.clone());
        let watch = Watch::new((known, is_measured), by, counts, None, 0.5);
        Self { truth, slowness, watch, memory: None, steps: 0, changes: 0 }
    }

    /// A step by these schedules and with this cut.
    fn step_by(&self, replicas: &Replicas, counts: &[usize]) -> Prediction {
        let schedule = replicas.largest();
        let truth = self.truth.clone().under(schedule).at_slowness(self.slowness.clone()).expect("above 0");
        let costs = truth.stages_on(counts, schedule.placement()).expect("all layers");
        Prediction::of_replicas(replicas, &costs, LinkKind::Buffered).expect("it ends")
    }

    /// A step as it is now.
    fn now(&self) -> Prediction {
        self.step_by(&self.watch.scheduling().replicas, self.watch.counts())
    }

    /// The time of a step by the schedules of now, with this cut.
    fn step(&self, counts: &[usize]) -> f64 {
        self.step_by(&self.watch.scheduling().replicas, counts).step
    }

    fn best(&self) -> f64 {
        let all = cuts(self.truth.layers().len(), self.watch.counts().len());
        all.iter().map(|counts| self.step(counts)).fold(f64::INFINITY, f64::min)
    }

    /// The shortest step by any of these schedules, with any cut, if no rank holds more than this.
    fn best_of(&self, all: &[Replicas], memory: f64) -> f64 {
        let layers = self.truth.layers().len();
        let steps = all.iter().flat_map(|replicas| {
            let cuts = cuts(layers, replicas.largest().stages() as usize);
            cuts.into_iter().map(|counts| self.step_by(replicas, &counts))
        });
        let within = steps.filter(|step| step.peak_memory <= memory);
        within.map(|step| step.step).fold(f64::INFINITY, f64::min)
    }

    /// Some steps. After them there are `after` more. Times are up to 1 % longer by chance.
    fn train(&mut self, steps: u32, after: u64) {
        for step in (0..u64::from(steps)).rev() {
            let noise = |draw: u32| {
                1.0 + 0.01 * f64::from(rng::unit(rng::philox([7, 9], [self.steps, draw, 0, 0])[0]))
            };
            let schedule = self.watch.scheduling().replicas.largest().clone();
            let (micro_batches, placement) = (f64::from(schedule.micro_batches()), schedule.placement());
            let truth = self.truth.clone().under(&schedule);
            let (mut busy, mut first) = (vec![0.0; self.slowness.len()], 0);
            for (rank, count) in placement.iter().zip(self.watch.counts()) {
                let cost = truth.stage(first..first + count);
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
                let (before, was) = (self.watch.scheduling().clone(), self.now().peak_memory);
                follow(&mut self.watch, &better, 0.5);
                self.changes += 1;
                let is_other = better.scheduling != before && better.why == Why::Faster;
                let holds = self.now().peak_memory;
                // Another cut of the same schedule may give a rank more layers.
                if let Some(most) = self.memory.or(is_other.then_some(was)) {
                    assert!(holds <= most * 1.001, "{holds} instead of {most}");
                }
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
    let by = Scheduling::of(Replicas::one(schedule));
    let mut watch = Watch::new((model(&[1.0; 8]), true), by, vec![4, 4], None, 0.0);
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

/// A schedule that is tried without gain hides no cut that would help.
#[test]
fn a_schedule_that_did_not_help_is_left_out_for_longer_and_longer() {
    let by = |name| Scheduling::of(Replicas::one(Schedule::named(name, 2, 8).expect("it fits")));
    for is_refused in [false, true] {
        let known = (model(&[1.0; 8]), true);
        let mut watch = Watch::new(known, by("gpipe"), vec![4, 4], None, 0.0).or(vec![by("zb-h1")]);
        let mut told = Vec::new();
        for _ in 0..400 {
            // The second rank is slow. By any other schedule than its own a step takes as long as before.
            let counts = watch.counts().to_vec();
            let micro_batch = |count: usize| count as f64 * (8.0 * 3.0 + 0.1);
            let seconds = match counts[..] {
                [4, 4] => 100.0,
                _ if watch.scheduling().schedule == "gpipe" => 80.0,
                _ => 100.0,
            };
            watch.add(seconds, vec![micro_batch(counts[0]), 1.5 * micro_batch(counts[1])]);
            if let Some(better) = watch.better(10_000).expect("it is simulated") {
                told.push((better.scheduling.schedule.clone(), better.counts.clone(), better.why));
                match is_refused && better.scheduling.schedule == "zb-h1" {
                    true => watch.refused(),
                    false => follow(&mut watch, &better, 0.1),
                }
            }
        }
        let tries = told.iter().filter(|(schedule, ..)| schedule == "zb-h1").count();
        assert!((1..=3).contains(&tries), "{told:?}");
        let helped = told.iter().any(|(schedule, counts, _)| schedule == "gpipe" && *counts == [5, 3]);
        assert!(helped, "{told:?}");
    }
}

/// Without a barrier, the idle time at a step's end is filled, and zb-2p has no other.
#[test]
fn steps_without_a_barrier_are_judged_without_one() {
    let by = |name| Scheduling::of(Replicas::one(Schedule::named(name, 2, 8).expect("it fits")));
    let [with, without] = [true, false].map(|barrier| {
        let known = (model(&[1.0; 8]), true);
        let watch = Watch::new(known, by("1f1b"), vec![4, 4], Some(1e9), 0.0).or(vec![by("zb-2p")]);
        let mut watch = if barrier { watch } else { watch.without_barrier() };
        let work = 4.0 * (8.0 * 3.0 + 0.1);
        let proposals = (0..40).filter_map(|_| {
            watch.add(1.0, vec![work; 2]);
            watch.better(10_000).expect("it is simulated")
        });
        proposals.map(|better| better.will_be).fold(1.0, f64::min)
    });
    assert!(without < with, "{without} {with}");
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn another_schedule_is_taken_where_it_is_faster_and_no_rank_holds_more(
        times in prop::collection::vec(0.5..2.0_f64, 8..10),
        slow in (0..2_usize, 1.0..2.5_f64),
        which in 0..4_usize,
        is_limited: bool,
        is_measured: bool,
    ) {
        let named = |name| Replicas::one(Schedule::named(name, 2, 8).expect("it fits"));
        let names = ["1f1b", "gpipe", "zb-h1", "zb-2p", "zb-v", "interleaved-1f1b", "looped-bfs"];
        let all = names.map(named);
        let schedule = all[which].largest().clone();
        let stages = schedule.stages() as usize;
        let mut counts = vec![times.len() / stages; stages];
        counts[0] += times.len() % stages;
        let mut life = Life::new(&times, schedule, counts.clone(), is_measured);
        let held = life.step_by(&all[which], &counts).peak_memory;
        life.memory = is_limited.then(|| held.max(2.0 * times.len() as f64 + 10.0));
        if let Some(memory) = life.memory {
            let known = (life.truth.clone(), is_measured);
            let by = life.watch.scheduling().clone();
            life.watch = Watch::new(known, by, counts, Some(memory), 0.5);
        }
        life.watch = life.watch.or(all.iter().cloned().map(Scheduling::of).collect());
        // Before that, all ranks are equally fast: what is not measured is known by then.
        life.train(20, 0);
        life.slowness[slow.0] = slow.1;
        for round in 0..12 {
            let most = life.memory.unwrap_or(life.now().peak_memory);
            let least = life.best_of(&all, most);
            life.train(100, 10_000);
            let now = life.now().step;
            // A schedule that was tried when the rank became slow is tried again later.
            prop_assert!(round < 3 || now <= 1.1 * least, "{now} instead of {least}");
        }
        prop_assert!(life.changes <= 12, "{} changes", life.changes);
    }
}

/// What is chosen for steps without a barrier is, without one, at least as fast as what is chosen for steps
/// with a barrier, and as any schedule that has a name.
#[test]
fn a_setting_is_chosen_by_the_times_that_steps_have() {
    for (ranks, micro_batches) in [(2, 4), (3, 6), (4, 8)] {
        let model = model(&[1.0; 16]);
        let setting = |schedule: &str, chunks| Setting {
            schedule: schedule.to_owned(),
            ranks,
            chunks,
            micro_batches,
            replicas: 1,
            gradient_groups: 1,
        };
        let step = |setting: &Setting, barrier| {
            let fitting = Fitting { model: &model, counts: None, memory: None, offload: None, barrier };
            let Fit::Within(found) = fitting.setting(setting).expect("it can be made") else {
                unreachable!("there is no limit");
            };
            let (replicas, links) = (&found.replicas, LinkKind::Buffered);
            let without = Prediction::of_steps(replicas, &found.costs, links, false).expect("it ends").step;
            assert!(barrier || (found.prediction.step - without).abs() < 1e-9 * without);
            without
        };
        let chosen = step(&setting("auto", 1), false);
        assert!(chosen <= step(&setting("auto", 1), true) * (1.0 + 1e-9));
        for name in ["gpipe", "1f1b", "zb-h1", "zb-2p"] {
            let named = step(&setting(name, 1), false);
            assert!(chosen <= named * 1.001, "{chosen} by auto, and {named} by {name}, {ranks} ranks");
        }
    }
}

/// Four ranks as replicas of pipelines of ranks of shards, and how slow each of the four is.
struct Shapes {
    times: Vec<f64>,
    slowness: [f64; 4],
    map: Map,
    all: Vec<Scheduling>,
}

impl Shapes {
    fn new(times: &[f64], map: Map) -> Self {
        let shapes = [[1, 4, 1], [2, 2, 1], [4, 1, 1], [1, 2, 2], [1, 1, 4], [2, 1, 2]];
        let by = |[count, ranks, shards]: [u32; 3], name: &str| {
            let make = |share| Schedule::named(name, ranks, share);
            let replicas = Replicas::new(GradientGroups::new(8, 4), count, make).expect("it fits");
            Scheduling { schedule: name.to_owned(), recomputed: false, replicas, shards }
        };
        let all = shapes.into_iter().flat_map(|shape| ["1f1b", "zb-h1"].map(|name| by(shape, name)));
        Self { times: times.to_vec(), slowness: [1.0; 4], map, all: all.collect() }
    }

    /// What layers cost in this shape. Two shards take a little more than half the time, and a sum over
    /// replicas takes some time too.
    fn costs(&self, [replicas, shards]: [u32; 2]) -> ModelCosts {
        let times: Vec<f64> = self
            .times
            .iter()
            .map(|time| time * (1.0 + 0.1 * f64::from(shards - 1)) / f64::from(shards))
            .collect();
        let link = LinkCost { latency: 0.1, per_byte: 1e-3 };
        let reduction = Reduction { replicas, link, add: 1e-3, sent: 1.0, sharded: false };
        model(&times).replicated(vec![8.0; times.len()], reduction).expect("possible costs")
    }

    /// By pipeline rank.
    fn slowest(&self, by: &Scheduling) -> Vec<f64> {
        let mesh = self.mesh(by);
        let mut slowest = vec![0.0_f64; by.replicas.ranks() as usize];
        for rank in mesh.world() {
            let own = &mut slowest[mesh.coordinate(rank).rank.index()];
            *own = own.max(self.slowness[rank.index()]);
        }
        slowest
    }

    fn mesh(&self, by: &Scheduling) -> Mesh {
        let sizes = [by.replicas.count(), by.replicas.ranks(), by.shards];
        Mesh::new(sizes, 1, &[]).expect("four ranks").mapped(self.map)
    }

    fn step(&self, by: &Scheduling, counts: &[usize]) -> Prediction {
        let schedule = by.replicas.largest();
        let costs = self.costs([by.replicas.count(), by.shards]).under(schedule);
        let costs = costs.at_slowness(self.slowest(by)).expect("above 0");
        let costs = costs.stages_on(counts, schedule.placement()).expect("all layers");
        Prediction::of_replicas(&by.replicas, &costs, LinkKind::Buffered).expect("it ends")
    }

    /// The shortest step in any shape, if no rank holds more than this.
    fn best(&self, memory: f64) -> f64 {
        let steps = self.all.iter().flat_map(|by| {
            let cuts = cuts(self.times.len(), by.replicas.largest().stages() as usize);
            cuts.into_iter().map(|counts| self.step(by, &counts))
        });
        steps.filter(|step| step.peak_memory <= memory).map(|step| step.step).fold(f64::INFINITY, f64::min)
    }

    /// For how long each rank of the run works in a step.
    fn busy(&self, by: &Scheduling, counts: &[usize]) -> Vec<f64> {
        let mesh = self.mesh(by);
        let costs = self.costs([by.replicas.count(), by.shards]).under(by.replicas.largest());
        let of = |rank| {
            let at = mesh.coordinate(rank);
            let first = counts[..at.rank.index()].iter().sum::<usize>();
            let cost = costs.stage(first..first + counts[at.rank.index()]);
            let micro_batches = f64::from(by.replicas.schedule(at.replica).micro_batches());
            self.slowness[rank.index()] * (micro_batches * cost.work() + cost.update)
        };
        mesh.world().map(of).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn another_shape_is_taken_where_it_is_faster(
        times in prop::collection::vec(0.5..2.0_f64, 8),
        slow in (0..4_usize, 1.0..3.0_f64),
        launched in 0..12_usize,
        by_replicas: bool,
    ) {
        let map = if by_replicas { Map::Replicas } else { Map::Pipeline };
        let mut life = Shapes::new(&times, map);
        let own = life.all[launched].clone();
        let shape = [own.replicas.count(), own.shards];
        let stages = own.replicas.largest().stages() as usize;
        let counts = vec![8 / stages; stages];
        let memory = 40.0;
        let mut watch = Watch::new((life.costs(shape), true), own, counts, Some(memory), 0.5).mapped(map);
        for of in life.all.chunk_by(|a, b| (a.replicas.count(), a.shards) == (b.replicas.count(), b.shards)) {
            let of_shape = [of[0].replicas.count(), of[0].shards];
            watch = match of_shape == shape {
                true => watch.or(of.to_vec()),
                false => watch.or_in_shape(life.costs(of_shape), of.to_vec()),
            };
        }
        for slowness in [1.0, slow.1] {
            life.slowness[slow.0] = slowness;
            let mut changes = 0;
            for step in (0..400).rev() {
                let (by, counts) = (watch.scheduling().clone(), watch.counts().to_vec());
                watch.add(life.step(&by, &counts).step, life.busy(&by, &counts));
                if let Some(better) = watch.better(step + 10_000).expect("it is simulated") {
                    // Only the slow rank is, whatever the shape.
                    let expected = life.slowest(&by);
                    let is_near = |(a, b): (&f64, &f64)| (a / b - 1.0).abs() < 1e-6;
                    prop_assert!(better.slowness.iter().zip(&expected).all(is_near), "{better:?}");
                    follow(&mut watch, &better, 0.5);
                    changes += 1;
                }
            }
            let now = life.step(watch.scheduling(), watch.counts());
            let best = life.best(memory);
            prop_assert!(now.step <= 1.1 * best, "{} instead of {best}", now.step);
            prop_assert!(now.peak_memory <= memory * 1.001);
            prop_assert!(changes <= 4, "{changes} changes");
        }
    }
}

/// Nobody knows what layers cost in a shape that the run was asked to have. Estimates are the same in all.
#[test]
fn in_a_shape_without_costs_nothing_is_proposed() {
    let life = Shapes::new(&[1.0; 8], Map::Pipeline);
    let [pipeline, _, replicas, ..] = &life.all[..] else { unreachable!() };
    let proposals = |is_measured, knows_another: bool| {
        let known = (life.costs([1, 1]), is_measured);
        let mut watch = Watch::new(known, pipeline.clone(), vec![2; 4], None, 0.0);
        if knows_another {
            watch = watch.or_in_shape(life.costs([4, 1]), vec![life.all[4].clone()]);
        }
        watch.set((replicas.clone(), vec![1, 7]), 0.0);
        let proposed = (0..100).filter(|step| {
            // All ranks become slow in turn.
            watch.add(100.0, (0..4).map(|rank| if step / 30 == rank { 400.0 } else { 100.0 }).collect());
            watch.better(1_000_000).expect("it is simulated").is_some()
        });
        proposed.count()
    };
    assert_eq!([proposals(true, true), proposals(true, false)], [0, 0]);
    assert!(proposals(false, false) > 0);
}
