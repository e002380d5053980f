//! Good schedules with one change. The checker accepts those that run, and no others.

use super::*;

/// Passes in an order that works on any placement: by micro-batch or by pass, with backward whole or in two
/// halves.
fn simple(placement: &Placement, micro_batches: u32, by_pass: bool, split: bool) -> Schedule {
    let stages = placement.stages();
    let mut passes = vec![Vec::new(); placement.ranks() as usize];
    let mut push = |pass, stage, m| {
        let cell = Cell::new(stage, m);
        passes[placement.rank(cell.stage).unwrap().index()].push((pass, cell));
    };
    let groups: Vec<Vec<u32>> = match by_pass {
        true => vec![(0..micro_batches).collect()],
        false => (0..micro_batches).map(|m| vec![m]).collect(),
    };
    for group in &groups {
        (0..stages).for_each(|stage| group.iter().for_each(|&m| push(Pass::Forward, stage, m)));
        let backward = if split { Pass::BackwardInput } else { Pass::Backward };
        (0..stages).rev().for_each(|stage| group.iter().for_each(|&m| push(backward, stage, m)));
        if split {
            (0..stages).for_each(|stage| group.iter().for_each(|&m| push(Pass::BackwardWeight, stage, m)));
        }
    }
    Schedule::from_passes("simple", placement.clone(), micro_batches, passes).unwrap()
}

fn schedules() -> impl Strategy<Value = Schedule> {
    let named = (prop::sample::select(Schedule::names().collect::<Vec<_>>()), 1..5u32, 1..6u32)
        .prop_map(|(name, ranks, micro_batches)| Schedule::named(name, ranks, micro_batches).unwrap());
    let placement = prop_oneof![
        (1..4u32, 1..3u32).prop_map(|(ranks, chunks)| Placement::looped(ranks, chunks).unwrap()),
        (1..4u32).prop_map(|ranks| Placement::vee(ranks).unwrap()),
        Just(Placement::new([0, 0, 1, 1, 0].map(Rank).to_vec()).unwrap()),
    ];
    let own = (placement, 1..4u32, any::<bool>(), any::<bool>()).prop_map(
        |(placement, micro_batches, by_pass, split)| simple(&placement, micro_batches, by_pass, split),
    );
    (prop_oneof![named, own], any::<bool>()).prop_map(|(schedule, reduces)| match reduces {
        true => schedule.for_replicas(2),
        false => schedule,
    })
}

#[derive(Clone, Debug)]
enum Kind {
    Swap,
    Drop,
    Repeat,
    Move,
}

#[derive(Clone, Debug)]
struct Mutation {
    kind: Kind,
    /// A rank and a place in its list, each taken modulo their number.
    at: (usize, usize),
    to: (usize, usize),
}

fn mutate(rows: &mut [Vec<Action>], Mutation { kind, at, to }: &Mutation) {
    let rank = at.0 % rows.len();
    if rows[rank].is_empty() {
        return;
    }
    let index = at.1 % rows[rank].len();
    let action = rows[rank][index];
    let other = to.0 % rows.len();
    match kind {
        Kind::Swap => {
            let with = to.1 % rows[rank].len();
            rows[rank].swap(index, with);
        }
        Kind::Drop => {
            rows[rank].remove(index);
        }
        Kind::Repeat => {
            let place = to.1 % (rows[other].len() + 1);
            rows[other].insert(place, action);
        }
        Kind::Move => {
            rows[rank].remove(index);
            let place = to.1 % (rows[other].len() + 1);
            rows[other].insert(place, action);
        }
    }
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let kind = prop_oneof![
        4 => Just(Kind::Swap),
        1 => Just(Kind::Drop),
        1 => Just(Kind::Repeat),
        1 => Just(Kind::Move),
    ];
    let place = || (0..64usize, 0..256usize);
    let mutation = (kind, place(), place()).prop_map(|(kind, at, to)| Mutation { kind, at, to });
    prop::collection::vec(mutation, 1..3)
}

fn rows(schedule: &Schedule) -> Vec<Vec<Action>> {
    (0..schedule.ranks()).map(|rank| schedule.actions(Rank(rank)).to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_mutant_with_transfers_is_accepted_exactly_when_it_runs(
        schedule in schedules(), mutations in mutations(),
    ) {
        let mut rows = rows(&schedule);
        mutations.iter().for_each(|mutation| mutate(&mut rows, mutation));
        let (placement, micro_batches) = (schedule.placement(), schedule.micro_batches());
        for links in [LinkKind::Buffered, LinkKind::Ordered] {
            let mutant =
                Schedule::from_actions("mutant", placement.clone(), micro_batches, rows.clone(), links);
            let runs = oracle::runs(&rows, placement, micro_batches, links);
            prop_assert_eq!(mutant.is_ok(), runs, "{:?} {:?}", mutant, rows);
        }
    }

    #[test]
    fn a_mutant_of_passes_is_lowered_to_what_runs_on_ordered_links(
        schedule in schedules(), mutations in mutations(),
    ) {
        let mut mutated = rows(&schedule);
        mutated.iter_mut().for_each(|row| row.retain(|action| action.compute().is_some()));
        mutations.iter().for_each(|mutation| mutate(&mut mutated, mutation));
        let passes = |row: &Vec<Action>| row.iter().filter_map(|action| action.compute()).collect();
        let passes = mutated.iter().map(passes).collect();
        let (placement, micro_batches) = (schedule.placement(), schedule.micro_batches());
        match Schedule::from_passes("mutant", placement.clone(), micro_batches, passes) {
            Ok(mutant) => {
                prop_assert!(oracle::runs(&rows(&mutant), placement, micro_batches, LinkKind::Ordered));
            }
            Err(refusal) => {
                let runs = oracle::passes_run(&mutated, placement, micro_batches);
                prop_assert!(!runs, "{} {:?}", refusal, mutated);
            }
        }
    }
}
