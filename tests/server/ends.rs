//! How steps with stale weights end: all replicas end, and none waits for ever.

use pipewright::Error;
use pipewright::error::NotFinite;
use pipewright::stages::models::Mlp;

use super::*;
use crate::common::*;

/// Data of which one input is another one.
fn odd_at(
    data: Arc<dyn DataSource>,
    at: (u64, u32),
    odd: fn(Tensor) -> Result<Tensor>,
) -> Arc<dyn DataSource> {
    changed(data, move |data, step, micro_batch| {
        let (input, target) = data.micro_batch(step, micro_batch)?;
        Ok((if (step, micro_batch.0) == at { odd(input)? } else { input }, target))
    })
}

fn two(mut recipe: Recipe, max_staleness: u32) -> Recipe {
    (recipe.replicas, recipe.sync) = (2, server(max_staleness));
    recipe
}

fn cannot_be_read(_: Tensor) -> Result<Tensor> {
    Err(Error::io("read", "tokens")(std::io::ErrorKind::NotFound.into()))
}

#[test]
fn a_rank_that_fails_ends_all_with_its_cause() {
    for (processes, micro_batch) in [(2, 3), (2, 0), (4, 3)] {
        let broken = || {
            let mut recipe = two(slowed(recipe(2, false, 4), 2..4), 2);
            recipe.data = odd_at(recipe.data, (4, micro_batch), cannot_be_read);
            recipe
        };
        let failures = in_processes(processes, broken, |_, mut pipeline| {
            let failed = (0..20).find_map(|_| pipeline.step().err());
            failed.expect("the data fails").to_string()
        });
        for (process, failure) in failures.iter().enumerate() {
            assert!(
                failure.contains("could not read tokens") || failure.contains("cannot read tokens"),
                "process {process} of {processes}: {failure}"
            );
            has(&failure, &[&format!("replica {}", micro_batch / 2)]);
        }
    }
}

#[test]
fn processes_that_make_other_calls_are_told() {
    let recipe = || two(recipe(1, false, 4), 2);
    let failures = in_processes(2, recipe, |process, mut pipeline| {
        train(&mut pipeline, 3);
        let failed = match process {
            0 => pipeline.weights_hash().err(),
            _ => (0..6).find_map(|_| pipeline.step().err()),
        };
        failed.expect("the other process makes another call").to_string()
    });
    for failure in failures {
        has(&failure, &["hash of the weights", "step 3"]);
    }
}

#[test]
fn a_process_that_is_done_early_leaves_its_shard_until_all_are_done() {
    let recipe = || two(slowed(recipe(1, false, 4), 2..4), 3);
    let done = in_processes(2, recipe, |_, mut pipeline| {
        train(&mut pipeline, 6);
        pipeline.next_step()
    });
    assert_eq!(done, [6, 6]);
}

#[test]
fn a_process_that_leaves_earlier_ends_the_others() {
    let recipe = || two(recipe(1, false, 4), 2);
    in_processes(2, recipe, |process, mut pipeline| {
        train(&mut pipeline, 3);
        if process == 0 {
            let failed = (0..6).find_map(|_| pipeline.step().err());
            failed.expect("process 1 has left");
        }
    });
}

fn not_a_number(input: Tensor) -> Result<Tensor> {
    let shape = *input.shape();
    let count = shape.dims().iter().product();
    Ok(Tensor::from_vec(shape.dims(), vec![f32::NAN; count])?)
}

/// A small perceptron whose inputs of this step and micro-batch are no numbers.
fn not_finite_at(step: u64, micro_batch: u32) -> Recipe {
    let mlp = || Mlp { sizes: vec![6, 8, 3], dropout: 0.0, seed: 5 }.model();
    let rows = RandomRows { rows: 2, width: 6, classes: 3 };
    recipe_of(mlp, odd_at(Arc::new(rows), (step, micro_batch), not_a_number), 4)
}

#[test]
fn a_step_that_is_not_finite_is_discarded_by_all_and_told_soon() {
    const BAD: u64 = 4;
    for max_staleness in [1, 3] {
        let odd = || two(slowed(not_finite_at(BAD, 2), 0..2), max_staleness);
        let told = in_processes(2, odd, |_, mut pipeline| {
            let (mut failed, mut after) = (None, 0);
            for _ in 0..12 {
                match pipeline.step() {
                    Ok(report) => {
                        assert!(report.loss.is_finite() && report.loss_step != BAD);
                        after += u32::from(failed.is_some());
                    }
                    Err(Error::NotFinite { step, what }) => {
                        let NotFinite::StaleLoss { micro_batch } = *what else {
                            panic!("{what}");
                        };
                        assert_eq!((step, micro_batch.0), (BAD, 2));
                        assert!(failed.replace(pipeline.next_step()).is_none(), "it is told once");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            (failed, after, pipeline.weights_hash().expect("it runs"))
        });
        assert_eq!(told[0], told[1]);
        assert_eq!(told[0].0, Some(BAD + 1 + u64::from(max_staleness)));
        assert!(told[0].1 > 0, "steps go on");
    }
}

#[test]
fn the_last_step_is_not_saved_unless_it_is_finite() {
    let folder = tempfile::tempdir().expect("a folder");
    let odd = || two(not_finite_at(3, 0), 2);
    in_processes(2, odd, |_, mut pipeline| {
        train(&mut pipeline, 4);
        let error = pipeline.save(folder.path().join("saved")).expect_err("step 3 was discarded");
        assert!(matches!(error, Error::NotFinite { step: 3, .. }), "{error}");
        pipeline.save(folder.path().join("saved")).expect("it is told once");
    });
}

fn shifted(mut input: Tensor) -> Result<Tensor> {
    input.ids_mut()[3] = (input.ids()[3] + 1) % 17;
    Ok(input)
}

#[test]
fn data_that_differs_between_processes_is_told_where_all_meet_again() {
    let said = worlds::in_processes(4, |world| {
        let mut recipe = two(recipe(2, false, 4), 2);
        if world.process() == 3 {
            recipe.data = odd_at(recipe.data, (3, 2), shifted);
        }
        let builder = recipe.builder(named("1f1b", 2, 4));
        let mut pipeline = builder.world(world).launch().expect("their first batches are equal");
        train(&mut pipeline, 6);
        pipeline.weights_hash().expect_err("other data").to_string()
    });
    let told =
        "the data of steps 0 to 5 differ: process 3 has read another micro-batch 2 than process 2. All ";
    assert!(said.iter().all(|said| said.starts_with(told)), "{said:?}");
}
