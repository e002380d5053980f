//! Training gives the same bits for any number of threads in a rank.

use pipewright::stages::threads;

use super::*;

/// Large enough that all work is shared, with sizes that nothing divides.
fn odd_gpt() -> Recipe {
    let gpt =
        Gpt { vocab: 301, dim: 99, layers: 2, heads: 3, context: 67, dropout: 0.1, tied: true, seed: 3 };
    gpt_recipe(gpt, 13, 2)
}

#[test]
fn weights_are_equal_for_any_number_of_threads() {
    for (mut recipe, most) in [(odd_gpt(), 4), (odd_mlp(), 3)] {
        let plain = recipe.plain_hash(2);
        for threads_per_rank in [1, 2, 3, 5] {
            recipe.threads_per_rank = threads_per_rank;
            for (name, ranks) in [("1f1b", 1), ("gpipe", 2), ("zb-h1", most)] {
                assert_eq!(recipe.hash(ranks, name, 2), plain, "{threads_per_rank} threads, {name}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_gpt_trains_to_the_same_bits(
        (layers, heads, width) in (1_usize..3, 1_usize..5, 1_usize..60),
        (vocab, context, rows) in (5_usize..400, 1_usize..150, 1_usize..7),
        stages in 1_u32..4,
        micro_batches in 1_u32..4,
        tied: bool,
        threads_per_rank in 2_usize..6,
    ) {
        let gpt = Gpt { vocab, dim: heads * width, layers, heads, context, dropout: 0.1, tied, seed: 3 };
        let recipe = Recipe { threads_per_rank, ..gpt_recipe(gpt, rows, micro_batches) };
        prop_assert_eq!(recipe.hash(stages, "1f1b", 2), recipe.plain_hash(2));
    }

    #[test]
    fn any_mlp_trains_to_the_same_bits(
        sizes in prop::collection::vec(1_usize..300, 2..5),
        rows in 1_usize..300,
        threads_per_rank in 2_usize..6,
    ) {
        let data = RandomRows { rows, width: sizes[0], classes: sizes[sizes.len() - 1] as u32 };
        let mlp = Mlp { sizes, dropout: 0.1, seed: 5 };
        let recipe = Recipe { threads_per_rank, ..recipe_of(move || mlp.model(), Arc::new(data), 2) };
        prop_assert_eq!(recipe.hash(1, "gpipe", 2), recipe.plain_hash(2));
    }
}

#[test]
fn a_rank_without_threads_is_refused() {
    let recipe = Recipe { threads_per_rank: 0, ..recipe(2, false, 2) };
    let refused = recipe.launch(named("1f1b", 2, 2));
    match refused {
        Err(Error::Launch(error)) => {
            assert_eq!(error.to_string(), "0 threads a rank cannot train: give `threads_per_rank` 1 or more")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_count_until_they_are_dropped() {
    assert_eq!(threads::count(), 1);
    let (started, helpers) = crossbeam_channel::unbounded();
    let three =
        threads::start(3, move |helper| started.send(helper).expect("it is read below")).expect("threads");
    assert_eq!(threads::count(), 3);
    drop(three);
    let mut helpers: Vec<usize> = helpers.iter().collect();
    helpers.sort_unstable();
    assert_eq!(helpers, [1, 2]);
    assert_eq!(threads::count(), 1);
    let again = threads::start(2, |_| ()).expect_err("once a thread");
    assert!(again.to_string().starts_with("no 2 threads: "), "{again}");
}
