//! Schedules with several stages per rank and a fixed order: who does what when, and closed formulas for
//! their costs.

use super::*;

fn made(name: &str, ranks: u32, chunks: u32, micro_batches: u32) -> Schedule {
    Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default()).unwrap()
}

/// What PyTorch 2.15 prints, without its idle cells.
#[test]
fn the_orders_are_pytorchs() {
    let interleaved = "\
0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3
1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3
";
    assert_eq!(made("interleaved-1f1b", 2, 2, 4).csv(), interleaved);
    let looped = "\
0F0,0F1,2F0,2F1,4F0,4F1,4B1,4B0,2B1,2B0,0B1,0B0
1F0,1F1,3F0,3F1,5F0,5F1,5B1,5B0,3B1,3B0,1B1,1B0
";
    assert_eq!(made("looped-bfs", 2, 3, 2).csv(), looped);
    let dualpipe = "\
0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,\
0I2,0W2,0I3,0W3
1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3
";
    assert_eq!(made("dualpipe-v", 2, 2, 4).csv(), dualpipe);
}

#[test]
fn a_timetable_joins_pairs_and_shows_how_long_a_whole_backward_takes() {
    let timetable = "\
rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3+3B1 --- 3F2+0B0 --- 3B2 --- 3F3+... 0B1 --- 3B3 --- 0I2 0W2 0I3 0W3
rank 1 | ... 1F0 2F0 1F1 2F1 1F2 2B0 --- 2F2+1B0 --- 1F3+2B1 --- 2F3+1B1 --- 2B2 --- 1B2 --- 2I3 1I3 2W3 1W3
";
    assert_eq!(made("dualpipe-v", 2, 2, 4).timetable(), timetable);
}

#[test]
fn numbers_of_stages_that_a_schedule_cannot_have_are_refused() {
    let refusal = |name, chunks| {
        let made = Schedule::make(name, 2, Some(chunks), 4, &Costs::default());
        made.unwrap_err().to_string()
    };
    assert_eq!(
        refusal("interleaved-1f1b", 1),
        "schedule interleaved-1f1b has at least 2 stages a rank; it was given 1 chunks"
    );
    assert_eq!(refusal("dualpipe-v", 3), "schedule dualpipe-v has 2 stages a rank; it was given 3 chunks");
    let many = Schedule::named("dualpipe-v", 1 << 20, 1).unwrap_err().to_string();
    has(&many, &["two micro-batches a rank at least, and with 1048576 ranks these are too many"]);
    assert_eq!(*Schedule::chunks("looped-bfs").unwrap().start(), 2);
}

#[test]
fn looped_bfs_goes_back_stage_by_stage() {
    for (ranks, chunks, micro_batches) in [(1, 2, 1), (2, 3, 4), (3, 4, 7)] {
        let looped = made("looped-bfs", ranks, chunks, micro_batches);
        for schedule in [looped.clone(), looped.clone().in_turn(), looped.in_turn().for_replicas(3)] {
            assert!(schedule.goes_back_by_stage(), "{}", schedule.csv());
        }
    }
    let interleaved = made("interleaved-1f1b", 2, 2, 4);
    assert!(!interleaved.goes_back_by_stage());
    let rows = |order: &str| {
        let read = Schedule::from_csv("x", &format!("{order}\n"), None, LinkKind::Buffered);
        read.unwrap().schedule.goes_back_by_stage()
    };
    assert!(rows("0F0,1F0,1I0,1W0,0I0,0W0"));
    // The weight gradients of the two stages in another order; one reduction only after the last of them.
    assert!(!rows("0F0,1F0,1I0,0I0,0W0,1W0"));
    assert!(!rows("0F0,1F0,1B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD"));
    assert!(rows("0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD"));
}

#[test]
fn a_pair_is_a_forward_with_a_backward_behind_it() {
    let rows = |order: &[(Pass, u32)]| vec![order.iter().map(|&(pass, m)| (pass, Cell::new(0, m))).collect()];
    let placement = || Placement::looped(1, 1).unwrap();
    let order = [(Pass::Forward, 0), (Pass::Forward, 1), (Pass::Backward, 0), (Pass::Backward, 1)];
    let schedule = || Schedule::from_passes("own", placement(), 2, rows(&order)).unwrap();
    let paired = schedule().with_pairs([Cell::new(0, 1)]).unwrap();
    assert_eq!(paired.csv(), "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n");
    assert!(paired.is_paired(Cell::new(0, 1)) && !paired.is_paired(Cell::new(0, 0)));
    assert_eq!(paired.actions(Rank(0)), schedule().actions(Rank(0)));
    assert_eq!(
        schedule().with_pairs([Cell::new(0, 0)]).unwrap_err().to_string(),
        "rank 0: 0F0 is marked as a pair with the backward after it, but none comes after it"
    );
    assert_eq!(
        schedule().with_pairs([Cell::new(3, 0)]).unwrap_err().to_string(),
        "1 pairs are marked, but the schedule has only 0 of their forwards"
    );
}

#[test]
fn two_pipelines_that_run_towards_each_other_are_told_by_where_they_begin() {
    let csv = "0F0,3F0,3B0,0B0\n2F0,1F0,1B0,2B0\n";
    let read = Schedule::from_csv("own", csv, None, LinkKind::Ordered).unwrap().schedule;
    assert_eq!(read.placement(), &Placement::bidirectional(2).unwrap());
    assert_eq!(read.placement().to_string(), "0,1 and 1,0");
    assert_eq!(read.csv(), csv);
    let comms = "\
0F0,0SEND_F0,3RECV_F0,3F0,3B0,3SEND_B0,0RECV_B0,0B0
1RECV_F0,2F0,2SEND_F0,1F0,2RECV_B0,1B0,1SEND_B0,2B0
";
    assert_eq!(read.csv_with_comms(), comms);
}

/// How many micro-batches interleaved 1F1B takes as a group.
fn group(ranks: u32, micro_batches: u32) -> u32 {
    micro_batches.div_ceil((micro_batches / ranks).max(1))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn interleaving_takes_the_least_time_there_is(
        ranks in 1..17u32, chunks in 2..9u32, micro_batches in 1..49u32,
        times in [0.1..10.0f64, 0.1..10.0f64, 0.1..10.0f64],
    ) {
        let simulation = simulated(
            &made("interleaved-1f1b", ranks, chunks, micro_batches),
            &costs(times, 0.0),
        );
        let (p, v, m) = (f64::from(ranks), f64::from(chunks), f64::from(micro_batches));
        let whole = p.max(m) + (p.min(m) - 1.0) / v;
        let makespan = simulation.makespan;
        prop_assert!(close(makespan, whole * times.iter().sum::<f64>()), "{}", makespan);
        let group = f64::from(group(ranks, micro_batches));
        let held = ((v - 1.0) * group + 2.0 * p - 1.0) / v;
        prop_assert!(close(peak(&simulation), held.min(m)), "{}", peak(&simulation));
        if micro_batches > ranks && micro_batches.is_multiple_of(ranks) {
            prop_assert!(close(peak(&simulation), p + (p - 1.0) / v));
        }
    }

    #[test]
    fn looped_bfs_idles_as_interleaving_does_and_holds_all(
        ranks in 1..17u32, chunks in 2..9u32, micro_batches in 1..49u32,
        times in [0.1..10.0f64, 0.1..10.0f64, 0.1..10.0f64],
    ) {
        let simulation = simulated(
            &made("looped-bfs", ranks, chunks, micro_batches),
            &costs(times, 0.0),
        );
        let (p, v, m) = (f64::from(ranks), f64::from(chunks), f64::from(micro_batches));
        let whole = p.max(m) + (p.min(m) - 1.0) / v;
        let makespan = simulation.makespan;
        prop_assert!(close(makespan, whole * times.iter().sum::<f64>()), "{}", makespan);
        prop_assert_eq!(peak(&simulation), m);
    }

    #[test]
    fn dualpipe_v_idles_no_longer_than_its_readme_says(
        ranks in 1..17u32, more in 0..33u32, times in [1.0..3.0f64, 1.0..3.0f64, 1.0..3.0f64],
    ) {
        let micro_batches = 2 * ranks + more;
        let schedule = made("dualpipe-v", ranks, 2, micro_batches);
        let p = f64::from(ranks);
        let equal = simulated(&schedule, &Costs::default());
        // By the README, with the passes of one stage as its unit, the idle time is (PP/2-1)(F&B + B - 3W),
        // with PP = 2p and F&B = F + B. It is less if the pairs run one after the other, because a forward's
        // output does not wait for the end of its backward.
        prop_assert!(close(equal.makespan - 3.0 * f64::from(micro_batches), (p - 1.0) / 2.0));
        if micro_batches > 2 * ranks || ranks > 1 {
            prop_assert_eq!(2.0 * peak(&equal), 2.0 * p + 1.0);
        }
        let [forward, a, b] = times;
        let (input, weight) = (a.max(b), a.min(b));
        let simulation = simulated(&schedule, &costs([forward, input, weight], 0.0));
        let whole = input + weight;
        let readme = (p - 1.0) * (forward + whole + whole - 3.0 * weight) / 2.0;
        let idle = simulation.makespan - f64::from(micro_batches) * (forward + whole);
        prop_assert!(idle <= readme + 1e-9, "{idle} {readme}");
    }

    #[test]
    fn dualpipe_v_takes_few_micro_batches_too(ranks in 1..17u32, micro_batches in 1..33u32) {
        let schedule = made("dualpipe-v", ranks, 2, micro_batches);
        let interleaved = made("interleaved-1f1b", ranks, 2, micro_batches);
        let [ours, theirs] = [schedule, interleaved].map(|schedule| simulated(&schedule, &Costs::default()));
        prop_assert!(ours.makespan <= theirs.makespan + 1e-9);
        prop_assert!(peak(&ours) <= f64::from(ranks) + 0.5);
    }
}

#[test]
fn the_closed_forms_hold_at_the_largest_sizes() {
    for (ranks, chunks, micro_batches) in [(64, 8, 512), (64, 2, 500), (61, 3, 512), (64, 8, 20)] {
        let (p, v, m) = (f64::from(ranks), f64::from(chunks), f64::from(micro_batches));
        for name in ["interleaved-1f1b", "looped-bfs"] {
            let simulation = simulated(&made(name, ranks, chunks, micro_batches), &Costs::default());
            assert!(close(simulation.makespan, 3.0 * (p.max(m) + (p.min(m) - 1.0) / v)), "{name}");
        }
    }
    let simulation = simulated(&made("dualpipe-v", 64, 2, 512), &Costs::default());
    assert_eq!((simulation.makespan, peak(&simulation)), (3.0 * 512.0 + 31.5, 64.5));
}
