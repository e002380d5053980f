//! Compares the simulator with the oracle's clock, on random schedules with random costs.

mod clock;
mod replicas;

use clock::{Clock, Times};
use pipewright::plan::RankSimulation;

use crate::*;

/// A cost that is often 0.
fn cost() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 4 => 0.0..5.0f64]
}

prop_compose! {
    fn stage_cost()(
        forward in 0.1..5.0f64,
        rest in [cost(), cost(), cost(), cost(), cost(), cost(), cost(), cost()],
    ) -> StageCost {
        let [backward_input, backward_weight, update, reduce, gather, saved, pending, restored] = rest;
        StageCost {
            forward, backward_input, backward_weight, update, reduce, gather, saved, pending, restored,
            ..StageCost::NOTHING
        }
    }
}

/// A random schedule with random costs.
#[derive(Clone, Debug)]
struct Case {
    schedule: Schedule,
    stages: Vec<StageCost>,
    comm: f64,
    /// How much work each micro-batch is.
    work: Vec<f64>,
}

impl Case {
    fn costs(&self) -> Costs {
        Costs::each(self.stages.clone(), self.comm).unwrap().uneven(self.work.clone()).unwrap()
    }

    fn clock(&self, links: LinkKind) -> Clock<'_> {
        Clock { schedule: &self.schedule, costs: &self.stages, work: &self.work, comm: self.comm, links }
    }

    /// The kinds of links that it can be simulated on.
    fn links(&self) -> impl Iterator<Item = LinkKind> + '_ {
        [LinkKind::Buffered, LinkKind::Ordered]
            .into_iter()
            .filter(|&links| self.schedule.holds_on(links).is_ok())
    }

    fn ranks(&self) -> impl Iterator<Item = Rank> {
        (0..self.schedule.ranks()).map(Rank)
    }
}

prop_compose! {
    fn case()(
        sizes in (1_u32..5, 0_u32..4, 1_u32..6),
        stages in proptest::collection::vec(stage_cost(), 8),
        comm in cost(),
        work in proptest::collection::vec(0.2..4.0f64, 1..6),
        reduces: bool,
        late in 0_usize..8,
        draws in proptest::collection::vec(any::<Index>(), 64),
    ) -> Case {
        let (ranks, more, micro_batches) = sizes;
        let mut draws = draws.iter().cycle();
        let mut pick = |count: usize| draws.next().unwrap().index(count.max(1));
        let placement = random_placement(ranks, ranks + more, &mut pick);
        let rows = random_rows(&placement, micro_batches, &mut pick);
        let schedule = Schedule::from_passes("random", placement, micro_batches, rows).unwrap();
        let schedule = if reduces { schedule.for_replicas(2) } else { schedule };
        let schedule = (0..late).fold(schedule, |schedule, _| later(schedule, &mut pick));
        let stages = stages[..schedule.stages() as usize].to_vec();
        Case { schedule, stages, comm, work }
    }
}

/// The schedule with a transfer or a reduction moved later by one in its rank's list, if it still runs to its
/// end.
fn later(schedule: Schedule, mut pick: impl FnMut(usize) -> usize) -> Schedule {
    let mut rows: Vec<_> = (0..schedule.ranks()).map(|rank| schedule.actions(Rank(rank)).to_vec()).collect();
    let rank = pick(rows.len());
    let at = pick(rows[rank].len() - 1);
    if !matches!(rows[rank][at], Action::Send(..) | Action::Recv(..) | Action::Reduce(_)) {
        return schedule;
    }
    rows[rank].swap(at, at + 1);
    let (placement, micro_batches) = (schedule.placement().clone(), schedule.micro_batches());
    Schedule::from_actions("late", placement, micro_batches, rows, LinkKind::Buffered).unwrap_or(schedule)
}

/// The totals of a rank, computed from the times of its passes.
fn add_up(case: &Case, rank: Rank, times: &Times, makespan: f64) -> RankSimulation {
    let chunks = f64::from(case.schedule.placement().chunks()[rank.index()]);
    let (mut last, mut activations, mut most, mut held, mut most_held) =
        (None, 0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    let mut sum = RankSimulation {
        busy: 0.0,
        warm_up: 0.0,
        waiting: 0.0,
        copying: 0.0,
        copies: 0.0,
        drain: 0.0,
        span: 0.0,
        exposed_reductions: 0.0,
        waits: Vec::new(),
        peak_activations: 0.0,
        peak_memory: 0.0,
    };
    for (pass, cell) in case.schedule.passes(rank) {
        let (start, end) = times[&Action::Compute(pass, cell)];
        sum.busy += end - start;
        match last {
            None => sum.warm_up = start,
            Some(last) => sum.waiting += start - last,
        }
        last = Some(end);
        let cost = case.stages[cell.stage.index()];
        let (left, memory) = match pass {
            Pass::Forward => (1.0, cost.saved),
            Pass::Backward => (-1.0, -cost.saved),
            Pass::BackwardInput => (-1.0, cost.pending - cost.saved),
            Pass::BackwardWeight => (0.0, -cost.pending),
        };
        if left < 0.0 {
            most_held = most_held.max(held + cost.restored);
        }
        activations += left;
        held += memory;
        (most, most_held) = (most.max(activations), most_held.max(held));
    }
    sum.drain = makespan - last.unwrap();
    sum.span = last.unwrap() - sum.warm_up;
    sum.exposed_reductions = reduced(case, rank, times).map_or(0.0, |end| (end - last.unwrap()).max(0.0));
    sum.peak_activations = most / chunks;
    sum.peak_memory = most_held;
    sum
}

/// When the last reduction of a rank ends.
fn reduced(case: &Case, rank: Rank, times: &Times) -> Option<f64> {
    let stages = case.schedule.placement().stages_on(rank);
    let ends = stages.filter_map(|stage| times.get(&Action::Reduce(stage)));
    ends.map(|&(_, end)| end).max_by(f64::total_cmp)
}

/// How long a rank waits for another, by the oracle's times.
fn waits_on(case: &Case, rank: Rank, other: Rank, times: &Times) -> f64 {
    let (mut last, mut waited) = (None, 0.0);
    for (pass, cell) in case.schedule.passes(rank) {
        let (start, end) = times[&Action::Compute(pass, cell)];
        let flow = if pass == Pass::Forward { Flow::Activation } else { Flow::Gradient };
        let from = flow.before(cell.stage).and_then(|stage| case.schedule.placement().rank(stage));
        if from == Some(other) && pass != Pass::BackwardWeight {
            waited += last.map_or(0.0, |last| start - last);
        }
        last = Some(end);
    }
    waited
}

fn assert_close(name: &str, ours: f64, theirs: f64) -> Result<(), TestCaseError> {
    prop_assert!(close(ours, theirs), "{name}: {ours}, the oracle says {theirs}");
    Ok(())
}

fn assert_agrees(case: &Case, simulation: &Simulation, times: &Times) -> Result<(), TestCaseError> {
    let passes = times.iter().filter(|(action, _)| action.compute().is_some());
    let makespan = passes.map(|(_, &(_, end))| end).fold(0.0, f64::max);
    assert_close("makespan", simulation.makespan, makespan)?;
    let ranks: Vec<_> = case.ranks().map(|rank| add_up(case, rank, times, makespan)).collect();
    for ((rank, ours), theirs) in case.ranks().zip(&simulation.ranks).zip(&ranks) {
        for (name, ours, theirs) in [
            ("busy", ours.busy, theirs.busy),
            ("warm-up", ours.warm_up, theirs.warm_up),
            ("waiting", ours.waiting, theirs.waiting),
            ("drain", ours.drain, theirs.drain),
            ("span", ours.span, theirs.span),
            ("exposed reductions", ours.exposed_reductions, theirs.exposed_reductions),
            ("peak memory", ours.peak_memory, theirs.peak_memory),
            ("peak activations", ours.peak_activations, theirs.peak_activations),
            ("sum", ours.busy + ours.warm_up + ours.waiting + ours.drain, makespan),
        ] {
            assert_close(name, ours, theirs)?;
        }
        prop_assert!(ours.waits.is_sorted_by(|a, b| a.time >= b.time));
        for other in case.ranks() {
            let waited: f64 = ours.waits.iter().filter(|wait| wait.on == other).map(|wait| wait.time).sum();
            assert_close("waits", waited, waits_on(case, rank, other, times))?;
        }
    }
    let span = ranks.iter().map(|rank| rank.span).fold(0.0, f64::max);
    let idle = |time: f64| ranks.iter().map(|rank| 1.0 - rank.busy / time).sum::<f64>() / ranks.len() as f64;
    assert_close("span", simulation.span, span)?;
    assert_close("bubble of the makespan", simulation.bubble_makespan, idle(makespan))?;
    assert_close("bubble of the span", simulation.bubble_span, idle(span))
}

/// The cost of a rank's updates, with the weights that it collects.
fn update(case: &Case, rank: Rank) -> f64 {
    let stages = case.schedule.placement().stages_on(rank);
    stages.map(|stage| case.stages[stage.index()].update + case.stages[stage.index()].gather).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_pass_transfer_and_reduction_has_the_time_that_the_oracle_gives_it(case in case()) {
        for links in case.links() {
            let (times, _) = case.clock(links).times(&vec![0.0; case.schedule.ranks() as usize]);
            let timeline = case.schedule.timeline(&case.costs(), links).unwrap();
            let mut seen = 0;
            for (rank, row) in case.ranks().zip(&timeline.ranks) {
                let passes: Vec<_> = row.iter().map(|timed| (timed.pass, timed.cell)).collect();
                prop_assert_eq!(passes, case.schedule.passes(rank).collect::<Vec<(Pass, Cell)>>());
                for timed in row {
                    let (start, end) = times[&Action::Compute(timed.pass, timed.cell)];
                    assert_close("start", timed.start, start)?;
                    assert_close("end", timed.end, end)?;
                    seen += 1;
                }
                assert_close("held at the end", row.last().unwrap().held, 0.0)?;
            }
            for transfer in &timeline.transfers {
                let (start, end) = times[&Action::Send(transfer.flow, transfer.cell)];
                assert_close("start of a transfer", transfer.start, start)?;
                assert_close("end of a transfer", transfer.end, end)?;
                let to = transfer.flow.after(transfer.cell.stage).unwrap();
                prop_assert_eq!(transfer.from, case.schedule.rank_of(transfer.cell.stage));
                prop_assert_eq!(transfer.to, case.schedule.rank_of(to));
                seen += 1;
            }
            for reduction in &timeline.reductions {
                let (start, end) = times[&Action::Reduce(reduction.stage)];
                assert_close("start of a reduction", reduction.start, start)?;
                assert_close("end of a reduction", reduction.end, end)?;
                prop_assert_eq!(reduction.rank, case.schedule.rank_of(reduction.stage));
                seen += 1;
            }
            prop_assert_eq!(seen, times.len());
        }
    }

    #[test]
    fn every_rank_adds_up_to_what_the_oracle_says(case in case()) {
        for links in case.links() {
            let (times, _) = case.clock(links).times(&vec![0.0; case.schedule.ranks() as usize]);
            let simulation = simulate(&case.schedule, &case.costs(), links).unwrap();
            assert_agrees(&case, &simulation, &times)?;
            let longest = case.ranks().map(|rank| update(&case, rank)).fold(0.0, f64::max);
            let ends = case.ranks().filter_map(|rank| reduced(&case, rank, &times));
            let exposed = ends.fold(simulation.makespan, f64::max) - simulation.makespan;
            assert_close("exposed reductions", simulation.exposed_reductions, exposed)?;
            assert_close("step", simulation.step, simulation.makespan + exposed + longest)?;
        }
    }

    #[test]
    fn a_period_is_no_shorter_than_a_ranks_work_and_no_longer_than_a_step_with_a_barrier(case in case()) {
        for links in case.links() {
            let simulation = simulate(&case.schedule, &case.costs(), links).unwrap();
            let period = period(&case.schedule, &case.costs(), links).unwrap();
            let ranks = case.ranks().zip(&simulation.ranks);
            let work = ranks.map(|(rank, ours)| ours.busy + update(&case, rank));
            prop_assert!(period >= work.fold(0.0, f64::max) * (1.0 - 1e-9));
            prop_assert!(period <= simulation.step * (1.0 + 1e-9));
        }
    }

    #[test]
    fn a_period_is_the_growth_of_the_oracles_times_in_the_long_run(case in case()) {
        let clock = case.clock(LinkKind::Buffered);
        let mut ends = vec![vec![0.0; case.schedule.ranks() as usize]];
        for step in 0..24 {
            ends.push(clock.times(&ends[step]).1);
        }
        let period = period(&case.schedule, &case.costs(), LinkKind::Buffered).unwrap();
        let ends = ends[24].iter().zip(&ends[12]);
        let growth: Vec<_> = ends.map(|(late, early)| (late - early) / 12.0).collect();
        let (slow, fast) = growth.iter().fold((f64::INFINITY, 0.0), |(slow, fast): (f64, f64), &growth| {
            (slow.min(growth), fast.max(growth))
        });
        let between = slow <= period * (1.0 + 1e-9) && period <= fast * (1.0 + 1e-9);
        prop_assert!(between, "{slow} {period} {fast}");
    }
}

#[test]
fn a_backward_holds_what_it_makes_again_until_its_end() {
    let whole = StageCost { saved: 10.0, pending: 4.0, ..StageCost::default() };
    let costs = Costs::each(vec![whole.recomputed(1.5); 2], 0.0).unwrap();
    for (csv, peaks, most) in [
        // Two inputs, and what one backward recomputes; if backward is split, also what waits for its
        // backward-weight.
        ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", [11.5, 10.0], [1.5, 3.0, 11.5, 10.0]),
        ("0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1W0,1F1,1I1,1W1", [14.0, 10.0], [1.5, 3.0, 11.5, 14.0]),
    ] {
        let schedule = read(csv);
        let simulation = simulated(&schedule, &costs);
        let ours: Vec<_> = simulation.ranks.iter().map(|rank| rank.peak_memory).collect();
        assert_eq!(ours, peaks);
        let timeline = schedule.timeline(&costs, LinkKind::Buffered).unwrap();
        let ours: Vec<_> = timeline.ranks[0].iter().map(|timed| timed.most).collect();
        assert_eq!(ours[..4], most);
    }
}

#[test]
fn whole_micro_batches_are_whole_numbers_however_many_chunks_they_are_made_of() {
    for chunks in 1..8 {
        for name in Schedule::names() {
            let costs = Costs::default();
            let Ok(schedule) = Schedule::make(name, 3, Some(chunks), 4, &costs) else {
                continue;
            };
            for rank in simulated(&schedule, &costs).ranks {
                if rank.peak_activations.fract() == 0.0 {
                    assert_eq!(rank.peak_memory, rank.peak_activations, "{name}, {chunks} chunks");
                }
            }
        }
    }
}
