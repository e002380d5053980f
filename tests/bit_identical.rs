//! Training gives the same bits however the model is cut, and the same as a plain loop.

mod common;

use common::recipe;
use proptest::prelude::*;

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
        let (loss, norm) = plain.step(
            recipe.data.as_ref(),
            step,
            3,
            &mut pipewright::stages::loss::CrossEntropy::default(),
        );
        let report = pipeline.step().expect("the step succeeds");
        assert_eq!((report.loss, report.grad_norm), (loss, norm), "step {step}");
        assert_eq!(report.weight, 48.0, "tokens of step {step}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_small_model_trains_to_the_same_bits(
        layers in 1_usize..4,
        stages in 1_u32..5,
        micro_batches in 1_u32..7,
        tied: bool,
        one_f_one_b: bool,
    ) {
        let recipe = recipe(layers, tied, micro_batches);
        let schedule = if one_f_one_b { "1f1b" } else { "gpipe" };
        prop_assert_eq!(recipe.hash(stages, schedule, 2), recipe.plain_hash(2));
    }
}
