//! The schedule that `auto` chooses.

use pipewright::plan::{Auto, Goal, Wanted, auto};

use super::*;

fn share([forward, backward_input, backward_weight, comm]: [f64; 4], pending: f64) -> Costs {
    let share = StageCost { forward, backward_input, backward_weight, pending, ..StageCost::default() };
    Costs::share(share, comm).unwrap()
}

fn wanted(ranks: u32, micro_batches: u32, costs: &Costs) -> Wanted<'_> {
    Wanted {
        ranks,
        chunks: None,
        micro_batches,
        costs,
        memory: None,
        links: LinkKind::Buffered,
        goal: Goal::Makespan,
    }
}

fn chosen(wanted: &Wanted<'_>) -> Auto {
    auto(wanted).unwrap_or_else(|refusal| panic!("{wanted:?}: {refusal}"))
}

#[test]
fn it_is_never_longer_than_a_schedule_with_a_name_that_fits_and_never_too_large() {
    for (ranks, micro_batches) in [(1, 3), (2, 1), (2, 5), (3, 2), (4, 4), (4, 9)] {
        for (times, pending) in
            [([1.0, 1.0, 1.0, 0.0], 0.0), ([2.0, 3.0, 1.0, 0.2], 0.5), ([1.0, 1.2, 0.4, 0.0], 1.0)]
        {
            let costs = share(times, pending);
            let every = Schedule::names().flat_map(|name| (1..=8).map(move |chunks| (name, chunks)));
            let named: Vec<_> = every
                .filter_map(|(name, chunks)| {
                    Schedule::make(name, ranks, Some(chunks), micro_batches, &costs).ok()
                })
                .map(|schedule| simulated(&schedule.in_turn(), &costs))
                .collect();
            for memory in [1.0, 1.5, f64::from(ranks), 2.0 * f64::from(ranks)] {
                let auto = chosen(&Wanted { memory: Some(memory), ..wanted(ranks, micro_batches, &costs) });
                assert!(
                    auto.simulation.peak_memory() <= memory + 1e-9,
                    "{ranks} {micro_batches} {memory}: {auto}"
                );
                let fits = named.iter().filter(|named| named.peak_memory() <= memory + 1e-9);
                let shortest = fits.map(|named| named.makespan).fold(f64::INFINITY, f64::min);
                assert!(
                    auto.simulation.makespan <= shortest + 1e-9,
                    "{ranks} {micro_batches} {memory}: {auto}"
                );
                // Of equally short ones it is the smallest.
                let as_short =
                    named.iter().filter(|named| named.makespan <= auto.simulation.makespan * (1.0 + 1e-12));
                for named in as_short {
                    assert!(
                        auto.simulation.peak_memory() <= named.peak_memory() * (1.0 + 1e-6),
                        "{ranks} {micro_batches} {memory}: {auto}"
                    );
                }
            }
        }
    }
}

#[test]
fn placed_out_and_back_in_1f1bs_memory_it_has_smaller_bubbles_than_published() {
    // arXiv 2401.10241, times of table 9, 8 ranks; and the bubble of the longest span that the authors' ZB-V
    // reaches there
    let rows = [
        (24, [18.522, 18.086, 9.337, 0.601], 0.0703),
        (32, [18.513, 18.086, 9.331, 0.626], 0.0543),
        (64, [18.546, 18.097, 9.321, 0.762], 0.0298),
        (24, [29.718, 29.444, 19.927, 0.527], 0.0403),
        (32, [29.802, 29.428, 19.530, 0.577], 0.0326),
        (64, [29.935, 29.621, 19.388, 0.535], 0.0166),
    ];
    for (micro_batches, times, published) in rows {
        let costs = share(times, 0.0);
        let auto = chosen(&Wanted {
            chunks: Some(2),
            memory: Some(8.0),
            goal: Goal::Span,
            ..wanted(8, micro_batches, &costs)
        });
        assert!(auto.simulation.bubble_span <= published, "{auto}");
        assert_eq!(auto.schedule.placement(), &Placement::vee(8).unwrap());
    }
}

#[test]
fn it_is_the_same_each_time_and_says_what_it_chose_and_why() {
    let costs = share([1.0; 4].map(|time| time * 2.0), 1.0);
    let wanted = Wanted { memory: Some(3.0), ..wanted(4, 6, &costs) };
    let (one, other) = (chosen(&wanted), chosen(&wanted));
    assert_eq!(one.schedule, other.schedule);
    let text = one.to_string();
    assert!(text.starts_with("chose ") && text.contains("the smallest makespan"), "{text}");
    has(&text, &["do not fit in 3 a rank", "; next is "]);
    assert!(one.tried.iter().any(|tried| !tried.fits && tried.name.starts_with("gpipe")));
}

#[test]
fn stages_that_differ_are_taken_as_they_are() {
    let stage = |forward: f64, saved: f64| StageCost {
        forward,
        backward_input: 1.5 * forward,
        backward_weight: 0.8 * forward,
        saved,
        pending: 0.6 * saved,
        ..StageCost::NOTHING
    };
    let stages = [0.2, 1.0, 1.1, 0.9, 1.0, 1.3].map(|time| stage(time, 100.0 * time)).to_vec();
    let costs = Costs::each(stages, 0.05).unwrap();
    let auto = chosen(&Wanted { memory: Some(400.0), ..wanted(3, 8, &costs) });
    assert_eq!(auto.schedule.stages(), 6);
    assert!(auto.simulation.peak_memory() <= 400.0);
}

#[test]
fn a_memory_that_is_too_small_is_refused_with_the_least_that_works() {
    let costs = Costs::default();
    let refusal = |memory| {
        let wanted = Wanted { memory, ..wanted(4, 8, &costs) };
        auto(&wanted).unwrap_err().to_string()
    };
    assert_eq!(refusal(Some(0.5)), "no schedule fits in 0.5 a rank; the least that works on 4 ranks is 1");
    assert!(refusal(Some(f64::NAN)).contains("the memory limit is NaN"));
    assert!(refusal(Some(-1.0)).contains("the memory limit is -1"));
}

#[test]
fn costs_of_stages_that_do_not_spread_evenly_are_refused() {
    let costs = Costs::each(vec![StageCost::default(); 5], 0.0).unwrap();
    let refusal = auto(&wanted(2, 4, &costs)).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "there are costs of 5 stages, which 2 ranks cannot share evenly; give costs of a multiple of 2"
    );
    has(&auto(&wanted(0, 4, &costs)).unwrap_err(), &["at least 1 rank"]);
    let costs = Costs::default();
    has(&auto(&wanted(100_000, 100_000, &costs)).unwrap_err(), &["name a schedule"]);
}

#[test]
fn what_a_backward_makes_again_counts_in_the_limit() {
    let whole = StageCost { pending: 0.5, ..StageCost::default() };
    for (ranks, chunks, micro_batches) in [(1, 1, 3), (2, 1, 5), (3, 2, 7), (4, 1, 8), (2, 4, 6)] {
        let stages = |stage: u32| {
            let saved = 1.0 + 0.1 * f64::from(stage);
            StageCost { saved, ..whole }.recomputed(0.1)
        };
        let costs = Costs::each((0..ranks * chunks).map(stages).collect(), 0.1).unwrap();
        let wanted = |memory| Wanted { memory, chunks: Some(chunks), ..wanted(ranks, micro_batches, &costs) };
        assert!(chosen(&wanted(None)).tried.iter().any(|tried| tried.name.starts_with("auto")));
        let refusal = auto(&wanted(Some(0.1))).unwrap_err().to_string();
        let least: f64 = refusal.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(least >= 1.0, "{refusal}");
        for more in [1.0, 1.1, 1.5, 3.0] {
            let auto = chosen(&wanted(Some(more * least)));
            assert!(auto.simulation.peak_memory() <= more * least * (1.0 + 1e-9), "{auto}");
        }
    }
}

#[test]
fn a_backward_weight_that_costs_nothing_is_never_put_apart() {
    for (ranks, micro_batches, chunks) in [(2, 6, 1), (3, 8, 1), (3, 4, 2), (2, 8, 2)] {
        for comm in [0.0, 0.05, 0.3] {
            let costs = share([1.0, 2.0, 0.0, comm], 0.2);
            let wanted = wanted(ranks, micro_batches, &costs);
            let chunks = Some(chunks);
            let Auto { schedule, .. } = chosen(&Wanted { chunks, ..wanted });
            let whole = |rank| {
                let passes = schedule.passes(Rank(rank));
                let whole = passes.filter_map(|(pass, cell)| match pass {
                    Pass::BackwardWeight => None,
                    Pass::BackwardInput => Some((Pass::Backward, cell)),
                    pass => Some((pass, cell)),
                });
                whole.collect()
            };
            let rows = (0..ranks).map(whole).collect();
            let placement = schedule.placement().clone();
            let joined = Schedule::from_passes("auto", placement, micro_batches, rows).unwrap();
            // Only a backward that comes before its turn has its weight gradient later.
            let joined = joined.in_turn();
            assert!((0..ranks).all(|rank| joined.passes(Rank(rank)).eq(schedule.passes(Rank(rank)))));
        }
    }
}
