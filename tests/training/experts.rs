//! A mixture of experts in a pipeline: the same bits however it is cut.

use super::*;

const ROWS: usize = 3;

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

#[test]
fn weights_are_equal_for_any_stages_schedule_and_threads() {
    for place in [Place::default(), HALF] {
        let mut recipe = recipe_of_mixtral(ROWS, 4);
        recipe.place = place;
        let plain = recipe.plain_hash(3);
        for (stages, schedule) in [(1, "1f1b"), (2, "gpipe"), (3, "zb-h1"), (6, "1f1b")] {
            assert_eq!(recipe.hash(stages, schedule, 3), plain, "{stages} stages, {schedule}");
        }
        recipe.threads_per_rank = 2;
        assert_eq!(recipe.hash(2, "1f1b", 3), plain, "two threads");
    }
}

/// An expert without tokens in one micro-batch must not disturb sums that are added in place.
#[test]
fn weights_do_not_depend_on_replicas() {
    for rows in [1, ROWS] {
        let mut recipe = recipe_of_mixtral(rows, 8);
        let plain = recipe.plain_hash(3);
        for (replicas, sharded) in [(1, false), (2, false), (2, true), (3, true)] {
            (recipe.replicas, recipe.sharded) = (replicas, sharded);
            assert_eq!(recipe.hash(2, "1f1b", 3), plain, "{replicas} replicas, sharded: {sharded}");
        }
    }
}
