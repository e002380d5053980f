//! Every schedule that the checker accepts trains to the right numbers: random orders, random placements, and
//! mutants of good schedules.

use super::*;
use crate::random::{Rows, random_placement, random_rows};

/// Runs two steps and an evaluation of a schedule, and compares them with the plain loop.
fn assert_right(recipe: &Recipe, schedule: Schedule) {
    let micro_batches = schedule.micro_batches();
    let mut pipeline = recipe.launch(schedule).expect("it starts");
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(2));
    let several = pipeline.evaluate(recipe.data.clone(), micro_batches).expect("it evaluates");
    let mut whole = recipe.pipeline(1, "gpipe");
    (0..2).for_each(|_| drop(whole.step().expect("the step succeeds")));
    assert_eq!(several, whole.evaluate(recipe.data.clone(), micro_batches).expect("it evaluates"));
}

fn mutate<T: Copy>(rows: &mut [Vec<T>], mut pick: impl FnMut(usize) -> usize) {
    let rank = pick(rows.len());
    let at = pick(rows[rank].len());
    match pick(4) {
        0 => {
            let other = pick(rows[rank].len());
            rows[rank].swap(at, other);
        }
        1 => drop(rows[rank].remove(at)),
        2 => {
            let pass = rows[rank][at];
            rows[rank].push(pass);
        }
        _ => {
            let pass = rows[rank].remove(at);
            let other = pick(rows.len());
            rows[other].push(pass);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_random_order_on_a_random_placement_trains_to_the_same_bits(
        ranks in 1_u32..5,
        more in 0_u32..4,
        micro_batches in 1_u32..5,
        tied: bool,
        seed in proptest::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let mut draws = seed.iter().cycle();
        let mut pick = |count: usize| draws.next().expect("endless").index(count);
        let placement = random_placement(ranks, (ranks + more).min(6), &mut pick);
        let rows = random_rows(&placement, micro_batches, &mut pick);
        let schedule = Schedule::from_passes("random", placement, micro_batches, rows);
        let schedule = schedule.expect("a valid order");
        assert_right(&recipe(2, tied, micro_batches), schedule);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_mutant_is_refused_or_trains_to_the_same_bits(
        ranks in 1_u32..5,
        micro_batches in 1_u32..5,
        one_f_one_b: bool,
        mutations in 1_usize..3,
        seed in proptest::collection::vec(any::<prop::sample::Index>(), 16),
    ) {
        let name = if one_f_one_b { "1f1b" } else { "gpipe" };
        let schedule = named(name, ranks, micro_batches);
        let mut rows: Rows = (0..ranks).map(|rank| schedule.passes(Rank(rank)).collect()).collect();
        let mut draws = seed.iter().cycle();
        let mut pick = |count: usize| draws.next().expect("endless").index(count.max(1));
        (0..mutations).for_each(|_| mutate(&mut rows, &mut pick));
        match Schedule::from_passes("mutant", schedule.placement().clone(), micro_batches, rows) {
            Ok(mutant) => assert_right(&recipe(2, false, micro_batches), mutant),
            Err(error) => prop_assert!(matches!(error, pipewright::schedule::Error::Schedule(_))),
        }
    }
}
