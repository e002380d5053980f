//! Training gives the same bits however the model is cut, and the same as a plain loop.

use super::*;

#[test]
fn weights_are_equal_for_any_stages_and_schedule() {
    for tied in [false, true] {
        let recipe = recipe(6, tied, 4);
        let plain = recipe.plain_hash(4);
        for stages in [1, 2, 3, 4, 8] {
            for schedule in ["gpipe", "1f1b"] {
                assert_eq!(
                    recipe.hash(stages, schedule, 4),
                    plain,
                    "{stages} stages, {schedule}, tied: {tied}"
                );
            }
        }
    }
}

#[test]
fn losses_and_norms_are_equal_to_the_plain_loop() {
    let recipe = recipe(2, true, 3);
    let mut plain = recipe.plain();
    let mut pipeline = recipe.pipeline(3, "1f1b");
    for step in 0..4 {
        let (loss, norm) =
            plain.step(recipe.data.as_ref(), step, 3, &mut pipewright::stages::loss::CrossEntropy::default());
        let report = pipeline.step().expect("the step succeeds");
        assert_eq!((report.loss, report.grad_norm), (loss, norm), "step {step}");
        assert_eq!(report.weight, 48.0, "tokens of step {step}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_trains_to_the_same_bits(
        name in prop::sample::select(Schedule::names().collect::<Vec<_>>()),
        ranks in 1_u32..6,
        more in 0_u32..4,
        micro_batches in 1_u32..9,
        tied: bool,
    ) {
        let known = Schedule::chunks(name).expect("it has a name");
        let chunks = (known.start() + more).min(*known.end());
        // The model has ten units.
        let ranks = ranks.min(10 / chunks);
        let schedule = Schedule::make(name, ranks, Some(chunks), micro_batches, &Costs::default());
        let schedule = schedule.expect("sizes");
        let recipe = recipe(6, tied, micro_batches);
        prop_assert_eq!(recipe.hash_on(schedule, 2), recipe.plain_hash(2));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_small_gpt_trains_to_the_same_bits(
        (layers, heads, width) in (1_usize..4, 1_usize..4, prop::sample::select(vec![3, 4, 8, 16, 20])),
        (vocab, context, rows) in (5_usize..50, 1_usize..40, 1_usize..4),
        stages in 1_u32..5,
        micro_batches in 1_u32..7,
        tied: bool,
        one_f_one_b: bool,
    ) {
        let dim = heads * width;
        let gpt = Gpt { vocab, dim, layers, heads, context, dropout: 0.1, tied, seed: 3 };
        let recipe = gpt_recipe(gpt, rows, micro_batches);
        let schedule = if one_f_one_b { "1f1b" } else { "gpipe" };
        prop_assert_eq!(recipe.hash(stages, schedule, 2), recipe.plain_hash(2));
    }

    #[test]
    fn any_small_mlp_trains_to_the_same_bits(
        sizes in prop::collection::vec(1_usize..70, 2..6),
        rows in 1_usize..10,
        cut: prop::sample::Index,
        micro_batches in 1_u32..7,
        one_f_one_b: bool,
    ) {
        let data = RandomRows { rows, width: sizes[0], classes: sizes[sizes.len() - 1] as u32 };
        let mlp = Mlp { sizes, dropout: 0.1, seed: 5 };
        let units = mlp.model().expect("the sizes fit").names().len();
        let recipe = recipe_of(move || mlp.model(), Arc::new(data), micro_batches);
        let stages = 1 + cut.index(units) as u32;
        let schedule = if one_f_one_b { "1f1b" } else { "gpipe" };
        prop_assert_eq!(recipe.hash(stages, schedule, 2), recipe.plain_hash(2));
    }
}
