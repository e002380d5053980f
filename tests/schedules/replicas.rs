//! What is planned for several replicas of a pipeline.

use pipewright::plan::{Queue, simulate_replicas};

use super::*;

fn named(name: &str, ranks: u32, micro_batches: u32, groups: u32, replicas: u32) -> Replicas {
    let groups = GradientGroups::new(micro_batches, groups);
    Replicas::new(groups, replicas, |share| Schedule::named(name, ranks, share)).unwrap()
}

#[test]
fn one_replica_is_planned_as_before() {
    let cost = StageCost { update: 0.5, pending: 0.25, ..StageCost::default() };
    let costs = Costs::share(cost, 0.25).unwrap();
    for name in Schedule::names() {
        for (ranks, micro_batches) in [(1, 1), (2, 3), (4, 8), (3, 16)] {
            let Ok(schedule) = Schedule::named(name, ranks, micro_batches) else {
                continue;
            };
            let schedule = schedule.in_turn();
            let replicas = named(name, ranks, micro_batches, 8, 1);
            assert_eq!(replicas.schedule(0), &schedule);
            for links in [LinkKind::Buffered, LinkKind::Ordered] {
                let prediction = Prediction::of(&schedule, &costs, links).unwrap();
                assert_eq!(Prediction::of_replicas(&replicas, &costs, links).unwrap(), prediction);
                let simulations = simulate_replicas(&replicas, &costs, links).unwrap();
                assert_eq!(simulations, [simulate(&schedule, &costs, links).unwrap()]);
                let timeline = schedule.timeline(&costs, links).unwrap();
                assert_eq!(replicas.timeline(0, &costs, links).unwrap(), timeline);
                assert_eq!(replicas.whole_timeline(&costs, links).unwrap(), timeline);
            }
        }
    }
}

/// The costs of two stages whose passes take a time of 1, on a link that a transfer needs for 10 of its 12.
fn slow_link(reductions: bool) -> Costs {
    let cost = StageCost { reduce: 100.0, ..StageCost::default() };
    let queue = Queue { transfer: 10.0, reductions };
    Costs::each(vec![cost; 2], 12.0).unwrap().queued(queue).unwrap()
}

#[test]
fn on_a_slow_link_transfers_of_a_rank_come_one_after_the_other() {
    let replicas = named("gpipe", 2, 3, 8, 1);
    let timeline = replicas.timeline(0, &slow_link(false), LinkKind::Buffered).unwrap();
    let starts = |rank: usize, pass| -> Vec<f64> {
        let row = timeline.ranks[rank].iter().filter(|timed| timed.pass == pass);
        row.map(|timed| timed.start).collect()
    };
    assert_eq!(starts(0, Pass::Forward), [0.0, 1.0, 2.0]);
    assert_eq!(starts(1, Pass::Forward), [13.0, 23.0, 33.0]);
    // A rank that makes a gradient every 2 sends one every 10. The link back is another one.
    assert_eq!(starts(1, Pass::Backward), [34.0, 36.0, 38.0]);
    assert_eq!(starts(0, Pass::Backward), [48.0, 58.0, 68.0]);
}

#[test]
fn a_transfer_and_a_reduction_that_meet_on_a_link_have_half_of_it_each() {
    let replicas = named("1f1b", 2, 2, 8, 2);
    let at = |reductions| {
        let costs = slow_link(reductions);
        let timeline = replicas.timeline(0, &costs, LinkKind::Buffered).unwrap();
        let last = timeline.ranks[0].last().unwrap().start;
        (last, timeline.reductions.iter().map(|one| one.end).collect::<Vec<_>>())
    };
    // Rank 1 is done at 1 + 12 + 3. Its gradient arrives after 12, and then rank 0 is done after 2.
    assert_eq!(at(false), (28.0, vec![116.0, 130.0]));
    // The gradient has half of the link, and takes 10 longer. The reduction ends as if it came after it.
    assert_eq!(at(true), (38.0, vec![126.0, 140.0]));
}

#[test]
fn replicas_without_micro_batches_only_reduce_and_step() {
    let replicas = named("1f1b", 2, 3, 8, 4);
    let schedule = replicas.schedule(3);
    assert_eq!(schedule.micro_batches(), 0);
    assert_eq!(replicas.share(3), 3..3);
    let reduce_and_step = [Action::Reduce(StageId(1)), Action::Step(StageId(1))];
    assert_eq!(schedule.actions(Rank(1)), reduce_and_step);
    let cost = StageCost { reduce: 2.0, ..StageCost::default() };
    let costs = Costs::share(cost, 0.0).unwrap();
    let timeline = replicas.timeline(3, &costs, LinkKind::Buffered).unwrap();
    let reductions: Vec<_> =
        timeline.reductions.iter().map(|one| (one.stage.0, one.start, one.end)).collect();
    assert_eq!(reductions, [(0, 6.0, 8.0), (1, 4.0, 6.0)], "when the others have their sums");
    let prediction = Prediction::of_replicas(&replicas, &costs, LinkKind::Buffered).unwrap();
    assert_eq!((prediction.step, prediction.bubble), (8.0, 1.0 - 18.0 / 64.0));
}

#[test]
fn threads_that_share_cores_need_at_least_the_time_of_all_their_work() {
    let schedule = Schedule::named("1f1b", 4, 4).unwrap();
    let alone = Prediction::of(&schedule, &Costs::default(), LinkKind::Buffered).unwrap();
    // 4 passes of 3 on each rank.
    assert_eq!(alone.step, 21.0);
    let on = |cores| alone.clone().on_cores(4, cores);
    for cores in [3, 4, 5] {
        assert_eq!(on(cores), alone, "{cores} cores: the idle time is enough");
    }
    assert_eq!((on(2).step, on(2).bubble), (24.0, 0.5));
    assert_eq!((on(1).step, on(1).bubble), (48.0, 0.75));
}

#[test]
fn a_schedule_for_fewer_micro_batches_keeps_its_order() {
    for name in Schedule::names() {
        let Ok(whole) = Schedule::named(name, 2, 6) else {
            continue;
        };
        assert_eq!(whole.part(0..6), whole);
        assert_eq!(whole.part(0..0), whole.idle());
        for micro_batches in 1..6 {
            let fewer = whole.part(0..micro_batches);
            assert_eq!(fewer.micro_batches(), micro_batches);
            for rank in [Rank(0), Rank(1)] {
                let kept = whole.passes(rank).filter(|(_, cell)| cell.micro_batch.0 < micro_batches);
                assert!(fewer.passes(rank).eq(kept), "{name} {micro_batches}");
            }
            fewer.holds_on(LinkKind::Ordered).unwrap();
        }
    }
}

#[test]
fn replicas_that_reduce_in_other_orders_are_refused_on_ordered_links() {
    let groups = GradientGroups::new(3, 2);
    let rows = |csv: &str| Schedule::from_csv("own", csv, None, LinkKind::Ordered).unwrap().schedule;
    let replicas = Replicas::new(groups, 2, |share| {
        Ok::<_, Error>(match share {
            2 => rows("0F0,1F0,0F1,1F1,1B0,1B1,0B0,0B1"),
            _ => rows("0F0,1F0,1I0,0B0,1W0"),
        })
    })
    .unwrap();
    let costs = Costs::share(StageCost { reduce: 1.0, ..StageCost::default() }, 0.0).unwrap();
    assert!(simulate_replicas(&replicas, &costs, LinkKind::Buffered).is_ok());
    assert_eq!(
        simulate_replicas(&replicas, &costs, LinkKind::Ordered).unwrap_err().to_string(),
        "on ordered links the replicas wait for each other for ever: with [2, 1] micro-batches they reduce \
         their stages in other orders; give each replica as many, or take buffered links"
    );
}

#[test]
fn a_cluster_of_1024_ranks_is_planned_from_one_pipeline() {
    let replicas = named("1f1b", 16, 64 * 32, 64, 64);
    assert_eq!((replicas.count(), replicas.schedules().count()), (64, 1));
    let cost = StageCost { reduce: 5.0, ..StageCost::default() };
    let costs = Costs::share(cost, 0.1).unwrap();
    let all = Prediction::of_replicas(&replicas, &costs, LinkKind::Buffered).unwrap();
    let one = Schedule::one_f_one_b(16, 32).unwrap().for_replicas(2);
    assert_eq!(all.step, simulated(&one, &costs).step);
    let uneven = named("1f1b", 16, 64 * 32 - 1, 64, 64);
    assert_eq!(uneven.schedules().map(|(_, count)| count).collect::<Vec<_>>(), [63, 1]);
    assert_eq!(Prediction::of_replicas(&uneven, &costs, LinkKind::Buffered).unwrap().step, all.step);
}
