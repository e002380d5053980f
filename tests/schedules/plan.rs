//! Compares the simulator with published figures and with closed formulas.

use pipewright::plan::Wait;

use super::*;

fn named(name: &str, ranks: u32, micro_batches: u32, costs: Costs) -> Simulation {
    simulated(&Schedule::named(name, ranks, micro_batches).unwrap(), &costs)
}

#[test]
fn one_f_one_b_with_4_ranks_and_8_micro_batches() {
    let simulation = named("1f1b", 4, 8, Costs::default());
    assert_eq!((simulation.makespan, simulation.span), (33.0, 33.0));
    assert_eq!(format!("{:.4} {:.4}", simulation.bubble_makespan, simulation.bubble_span), "0.2727 0.2727");
    assert_eq!(peaks(&simulation), [4.0, 3.0, 2.0, 1.0]);
    assert_eq!(simulation.ranks.iter().map(|rank| rank.busy).collect::<Vec<_>>(), [24.0; 4]);
    assert_eq!(simulation.ranks.iter().map(|rank| rank.span).collect::<Vec<_>>(), [33.0, 30.0, 27.0, 24.0]);
}

#[test]
fn gpipe_takes_what_pytorch_takes() {
    // ranks, micro-batches, makespan, peak: PyTorch 2.15 at F = I = W = 1
    for (ranks, micro_batches, makespan, peak) in
        [(2, 2, 9.0, 2.0), (2, 4, 15.0, 4.0), (4, 4, 21.0, 4.0), (4, 8, 33.0, 8.0)]
    {
        let simulation = named("gpipe", ranks, micro_batches, Costs::default());
        assert_eq!((simulation.makespan, simulation.span), (makespan, makespan));
        assert!(peaks(&simulation).iter().all(|&held| held == peak));
    }
}

#[test]
fn one_f_one_b_has_the_published_bubbles_at_measured_times() {
    // arXiv 2401.10241, table 5, 1F1B, at the times of table 9: ranks, micro-batches, F, I, W, comm, bubble
    let rows = [
        (8, 24, [18.522, 18.086, 9.337, 0.601], "0.2431"),
        (8, 32, [18.513, 18.086, 9.331, 0.626], "0.1985"),
        (8, 64, [18.546, 18.097, 9.321, 0.762], "0.1240"),
        (8, 24, [29.718, 29.444, 19.927, 0.527], "0.2347"),
        (8, 32, [29.802, 29.428, 19.530, 0.577], "0.1898"),
        (8, 64, [29.935, 29.621, 19.388, 0.535], "0.1091"),
        (16, 48, [11.347, 11.248, 8.132, 0.377], "0.2552"),
        (16, 64, [11.307, 11.254, 8.101, 0.379], "0.2082"),
        (16, 128, [11.325, 11.308, 8.109, 0.378], "0.1251"),
        (32, 96, [10.419, 10.207, 7.715, 0.408], "0.2646"),
        (32, 128, [10.408, 10.204, 7.703, 0.408], "0.2168"),
        (32, 256, [10.402, 10.248, 7.698, 0.460], "0.1352"),
    ];
    for (ranks, micro_batches, [forward, backward_input, backward_weight, comm], bubble) in rows {
        let costs = costs([forward, backward_input, backward_weight], comm);
        let simulation = named("1f1b", ranks, micro_batches, costs);
        assert_eq!(format!("{:.4}", simulation.bubble_span), bubble);
    }
}

#[test]
fn a_chunk_costs_its_part_of_the_rank() {
    // zero-bubble's own order for V-placed stages, 2 ranks, 4 micro-batches
    let csv =
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,0I2,3W3,0I3,0W2,0W3
1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,1I2,2I3,1I3,2W2,1W2,2W3,1W3";
    let schedule = read(csv);
    let simulation = simulated(&schedule, &Costs::default());
    assert_eq!((simulation.span, simulation.makespan), (12.0, 12.5));
    assert_eq!((simulation.bubble_span, format!("{:.2}", simulation.bubble_makespan)), (0.0, "0.04".into()));
    assert_eq!(peaks(&simulation), [2.0, 2.0]);
    // Without a barrier, the steps overlap, so the span decides.
    assert_eq!(simulation.step, 12.5);
    assert_eq!(period(&schedule, &Costs::default(), LinkKind::Buffered).unwrap(), 12.0);
}

#[test]
fn each_rank_says_where_its_time_goes() {
    // rank 0 | F0 F1 .. .. .. .. B0 B0 .. B1 B1
    // rank 1 | .. .. F0 B0 B0 F1 B1 B1            at a column a unit, with transfers that take one
    let schedule = Schedule::one_f_one_b(2, 2).unwrap();
    let simulation = simulate(&schedule, &costs([1.0; 3], 1.0), LinkKind::Buffered).unwrap();
    let [first, last] = &simulation.ranks[..] else {
        panic!("2 ranks");
    };
    assert_eq!(simulation.makespan, 11.0);
    assert_eq!([first.warm_up, first.busy, first.waiting, first.drain], [0.0, 6.0, 5.0, 0.0]);
    assert_eq!([last.warm_up, last.busy, last.waiting, last.drain], [2.0, 6.0, 0.0, 3.0]);
    assert_eq!(first.waits, [Wait { on: Rank(1), time: 5.0 }]);
    assert_eq!(last.waits, []);
}

#[test]
fn memory_changes_at_each_pass_by_what_the_stage_says() {
    let csv = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1";
    let schedule = read(csv);
    let peaks = |saved, pending| {
        let share = StageCost { saved, pending, ..StageCost::default() };
        let costs = Costs::each(vec![share; 2], 0.0).unwrap();
        let simulation = simulated(&schedule, &costs);
        assert_eq!(peaks(&simulation), [2.0, 1.0]);
        simulation.ranks.iter().map(|rank| rank.peak_memory).collect::<Vec<_>>()
    };
    assert_eq!(peaks(1.0, 0.0), [2.0, 1.0]);
    assert_eq!(peaks(1.0, 1.0), [2.0, 2.0]);
    assert_eq!(peaks(8.0, 2.0), [16.0, 10.0]);
    // A backward-input may leave more memory than it found.
    assert_eq!(peaks(1.0, 3.0), [6.0, 6.0]);
}

#[test]
fn transfers_take_their_time_and_on_ordered_links_their_turn() {
    let costs = costs([1.0; 3], 1.0);
    let makespans = |name| {
        let schedule = Schedule::named(name, 4, 8).unwrap();
        [LinkKind::Buffered, LinkKind::Ordered]
            .map(|links| simulate(&schedule, &costs, links).unwrap().makespan)
    };
    assert_eq!(makespans("gpipe"), [39.0, 67.0]);
    assert_eq!(makespans("1f1b"), [49.0, 52.0]);
}

#[test]
fn a_schedule_that_locks_ordered_links_is_not_simulated_on_them() {
    let csv = "\
0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
";
    let schedule = read(csv);
    has(&simulate(&schedule, &Costs::default(), LinkKind::Ordered).unwrap_err(), &["is queued behind"]);
}

#[test]
fn costs_that_are_no_times_are_refused() {
    let refusal = |costs: Result<Costs, pipewright::schedule::Error>| costs.unwrap_err().to_string();
    let share = StageCost::default();
    let backward_input = StageCost { backward_input: -1.0, ..share };
    assert_eq!(
        refusal(Costs::share(backward_input, 0.0)),
        "the cost backward-input is -1; it has to be a number from 0 on"
    );
    assert_eq!(
        refusal(Costs::share(share, f64::NAN)),
        "the cost comm is NaN; it has to be a number from 0 on"
    );
    assert_eq!(
        refusal(Costs::each(vec![share, backward_input], 0.0)),
        "stage 1: the cost backward-input is -1; it has to be a number from 0 on"
    );
    let nothing = StageCost { forward: 0.0, backward_input: 0.0, backward_weight: 0.0, ..share };
    assert_eq!(
        refusal(Costs::share(nothing, 1.0)),
        "forward, backward-input and backward-weight all cost 0; give one a cost"
    );
}

#[test]
fn costs_of_another_number_of_stages_are_refused() {
    let costs = Costs::each(vec![StageCost::default(); 3], 0.0).unwrap();
    let refusal = simulate(&Schedule::gpipe(2, 2).unwrap(), &costs, LinkKind::Buffered).unwrap_err();
    assert_eq!(refusal.to_string(), "there are costs of 3 stages for 2 (placement 0,1); give one a stage");
}

fn times() -> impl Strategy<Value = [f64; 3]> {
    [0.1..10.0f64, 0.1..10.0f64, 0.1..10.0f64]
}

proptest! {
    #[test]
    fn both_schedules_idle_for_ranks_less_one_micro_batches(
        ranks in 1..12u32, micro_batches in 1..24u32, times in times(),
    ) {
        let (p, m) = (f64::from(ranks), f64::from(micro_batches));
        for name in ["gpipe", "1f1b"] {
            let simulation = named(name, ranks, micro_batches, costs(times, 0.0));
            prop_assert!(close(simulation.makespan, (m + p - 1.0) * times.iter().sum::<f64>()));
            prop_assert!(close(simulation.bubble_makespan, (p - 1.0) / (m + p - 1.0)));
        }
    }

    #[test]
    fn one_f_one_b_without_a_barrier_is_held_up_by_the_rank_with_the_longest_span_and_update(
        ranks in 1..12u32, micro_batches in 1..24u32, times in times(),
        updates in proptest::collection::vec(0.0..100.0f64, 12),
    ) {
        let [forward, backward_input, backward_weight] = times;
        let stage = |&update| StageCost {
            forward, backward_input, backward_weight, update, ..StageCost::default()
        };
        let updates = &updates[..ranks as usize];
        let costs = Costs::each(updates.iter().map(stage).collect(), 0.0).unwrap();
        let schedule = Schedule::one_f_one_b(ranks, micro_batches).unwrap();
        let simulation = simulated(&schedule, &costs);
        let longest = updates.iter().copied().fold(0.0, f64::max);
        prop_assert!(close(simulation.step, simulation.makespan + longest));
        let held_up = simulation.ranks.iter().zip(updates).map(|(rank, update)| rank.span + update);
        let period = period(&schedule, &costs, LinkKind::Buffered).unwrap();
        prop_assert!(close(period, held_up.fold(0.0, f64::max)));
    }

    #[test]
    fn one_f_one_b_holds_no_more_than_the_ranks_from_here_on(ranks in 1..12u32, micro_batches in 1..24u32) {
        let held: Vec<_> = (0..ranks).map(|rank| f64::from(micro_batches.min(ranks - rank))).collect();
        prop_assert_eq!(peaks(&named("1f1b", ranks, micro_batches, Costs::default())), held);
        let all = vec![f64::from(micro_batches); ranks as usize];
        prop_assert_eq!(peaks(&named("gpipe", ranks, micro_batches, Costs::default())), all);
    }

    #[test]
    fn gpipe_pays_for_each_hop_once_on_the_way_and_once_back(
        ranks in 1..8u32, micro_batches in 1..12u32, times in times(), comm in 0.0..5.0f64,
    ) {
        let simulation = named("gpipe", ranks, micro_batches, costs(times, comm));
        let (p, m) = (f64::from(ranks), f64::from(micro_batches));
        let work: f64 = times.iter().sum();
        prop_assert!(close(simulation.makespan, (m + p - 1.0) * work + 2.0 * (p - 1.0) * comm));
    }

    #[test]
    fn ordered_links_are_never_faster(
        ranks in 1..8u32, micro_batches in 1..12u32, times in times(), comm in 0.0..5.0f64,
    ) {
        let costs = costs(times, comm);
        for name in Schedule::names() {
            let schedule = Schedule::named(name, ranks, micro_batches).unwrap();
            let ordered = simulate(&schedule, &costs, LinkKind::Ordered).unwrap().makespan;
            prop_assert!(ordered >= simulated(&schedule, &costs).makespan - 1e-9);
        }
    }
}

#[test]
fn passes_hide_reductions_and_the_step_waits_for_the_rest() {
    let cost = StageCost { reduce: 2.5, gather: 0.0, update: 0.5, ..StageCost::default() };
    let costs = Costs::share(cost, 0.0).unwrap();
    let plain = Schedule::one_f_one_b(3, 4).unwrap();
    let reduced = plain.clone().for_replicas(2);
    let [without, with] = [&plain, &reduced].map(|schedule| simulated(schedule, &costs));
    assert_eq!(without.exposed_reductions, 0.0);
    assert_eq!((with.makespan, with.step), (without.makespan, without.step + 2.5));
    assert_eq!(with.exposed_reductions, 2.5, "rank 0 does the last backward, and then its sum");
    let exposed: Vec<_> = with.ranks.iter().map(|rank| rank.exposed_reductions).collect();
    assert_eq!(exposed, [2.5, 2.5, 2.5], "each rank does one stage, and reduces it at its end");

    let two = Schedule::make("interleaved-1f1b", 2, Some(2), 4, &costs).unwrap().for_replicas(2);
    let with = simulated(&two, &costs);
    let timeline = two.timeline(&costs, LinkKind::Buffered).unwrap();
    let hidden = timeline.reductions.iter().filter(|reduction| reduction.end <= with.makespan).count();
    assert_eq!((hidden, timeline.reductions.len()), (2, 4), "those of the stages that are done first");
}

#[test]
fn ordered_links_do_one_reduction_of_a_rank_after_the_other() {
    let costs = Costs::share(StageCost { reduce: 6.0, gather: 0.0, ..StageCost::default() }, 0.0).unwrap();
    let schedule = Schedule::from_csv("own", "0F0,1F0,1B0,0B0", None, LinkKind::Ordered).unwrap().schedule;
    let schedule = schedule.for_replicas(2);
    assert_eq!(schedule.csv_with_comms(), "0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD\n");
    let times = |links| -> Vec<_> {
        let reductions = schedule.timeline(&costs, links).unwrap().reductions;
        reductions.iter().map(|reduction| (reduction.stage.0, reduction.start, reduction.end)).collect()
    };
    assert_eq!(times(LinkKind::Buffered), [(1, 2.0, 5.0), (0, 3.0, 6.0)]);
    assert_eq!(times(LinkKind::Ordered), [(1, 2.0, 5.0), (0, 5.0, 8.0)]);
}
