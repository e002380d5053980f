//! Replicas of the pipeline: the weights are the same, bit for bit, however many there are.

use std::sync::Mutex;

use pipewright::mesh::Map;

use super::*;

const STEPS: u64 = 2;

fn assert_equal(recipe: &Recipe, expected: &str, name: &str, ranks: u32) {
    let hash = recipe.hash(ranks, name, STEPS);
    let Recipe { replicas, sharded, micro_batches, .. } = recipe;
    assert_eq!(
        hash, expected,
        "{replicas} replicas of {ranks} ranks, {name}, {micro_batches} micro-batches, sharded: {sharded}"
    );
}

#[test]
fn weights_do_not_depend_on_replicas() {
    for (micro_batches, tied) in [(8, false), (12, true), (5, true), (1, false)] {
        let mut recipe = recipe(2, tied, micro_batches);
        let expected = recipe.plain_hash(STEPS);
        for (replicas, ranks) in [(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (8, 1), (5, 3)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                assert_equal(&recipe, &expected, "1f1b", ranks);
            }
        }
    }
}

#[test]
fn weights_of_large_stages_do_not_depend_on_replicas() {
    for tied in [false, true] {
        let mut recipe = large(tied, 4);
        let expected = recipe.plain_hash(STEPS);
        for (replicas, ranks) in [(1, 1), (2, 1), (3, 1), (2, 2)] {
            for sharded in [false, true] {
                (recipe.replicas, recipe.sharded) = (replicas, sharded);
                assert_equal(&recipe, &expected, "1f1b", ranks);
            }
        }
    }
}

/// A product of more than 512 rows is summed in several parts, so it is not added to another group in place.
#[test]
fn weights_of_many_rows_do_not_depend_on_replicas() {
    let [width, classes] = [20, 5];
    let mlp = Mlp { sizes: vec![width, 40, classes], dropout: 0.1, seed: 3 };
    for (rows, micro_batches) in [(1100, 8), (600, 5), (512, 8)] {
        let data = Arc::new(RandomRows { rows, width, classes: classes as u32 });
        let mlp = mlp.clone();
        let mut recipe = recipe_of(move || mlp.model(), data, micro_batches);
        let expected = recipe.plain_hash(STEPS);
        for replicas in [1, 2, 4, 8] {
            recipe.replicas = replicas;
            assert_equal(&recipe, &expected, "1f1b", 1);
        }
    }
}

#[test]
fn every_schedule_trains_replicas_alike() {
    let mut recipe = recipe(2, true, 8);
    let expected = recipe.plain_hash(STEPS);
    (recipe.replicas, recipe.sharded) = (2, true);
    for name in Schedule::names() {
        if Schedule::named(name, 2, 8).is_ok_and(|schedule| schedule.placement().directions() == 1) {
            assert_equal(&recipe, &expected, name, 2);
        }
    }
}

/// The stages of looped-bfs do their backwards one after the other, so they use the same memory for their
/// gradients.
#[test]
fn stages_that_lend_each_other_the_memory_of_gradients_train_alike() {
    for (tied, micro_batches, ranks, replicas) in [(false, 8, 1, 2), (true, 5, 2, 8), (false, 7, 2, 3)] {
        // Pieces of a gradient have 65,536 numbers, so most matrices are divided among replicas.
        let gpt = Gpt { vocab: 500, dim: 144, layers: 6, heads: 2, context: 8, dropout: 0.1, tied, seed: 3 };
        let mut recipe = gpt_recipe(gpt, 1, micro_batches);
        let looped = Schedule::make("looped-bfs", ranks, Some(8 / ranks), micro_batches, &Costs::default());
        let looped = looped.expect("the sizes fit");
        for groups in [8, 16] {
            for (barrier, clip) in [(true, Some(0.5)), (false, None)] {
                (recipe.gradient_groups, recipe.replicas, recipe.clip) = (groups, 1, clip);
                let expected = recipe.plain_hash(3);
                // 8 replicas of 5 micro-batches: three have none.
                (recipe.replicas, recipe.sharded) = (replicas, true);
                let mut pipeline =
                    recipe.builder(looped.clone()).barrier(barrier).launch().expect("it starts");
                pipeline.steps_until(3);
                let got = trained(&mut pipeline, 3);
                assert_eq!(got, expected, "{replicas} replicas of {ranks} ranks, {groups} groups, {tied}");
            }
        }
    }
}

#[test]
fn any_number_of_gradient_groups_has_its_own_order() {
    let mut recipe = recipe(1, false, 7);
    for groups in 1..9 {
        (recipe.gradient_groups, recipe.replicas) = (groups, 1);
        let expected = recipe.plain_hash(STEPS);
        for replicas in 1..=groups {
            recipe.replicas = replicas;
            assert_equal(&recipe, &expected, "gpipe", 1);
        }
    }
}

#[test]
fn losses_norms_and_evaluations_do_not_depend_on_replicas() {
    let mut recipe = recipe(2, true, 6);
    let told = |recipe: &Recipe| {
        let mut pipeline = recipe.pipeline(2, "1f1b");
        let reports: Vec<_> = (0..STEPS).map(|_| pipeline.step().expect("a step")).collect();
        let evaluation = pipeline.evaluate(recipe.data.clone(), 5).expect("forward only");
        let numbers = reports.iter().map(|report| [report.loss, report.grad_norm, report.weight]);
        (numbers.collect::<Vec<_>>(), [evaluation.loss, evaluation.weight])
    };
    let expected = told(&recipe);
    for (replicas, sharded) in [(2, false), (3, true), (8, false)] {
        (recipe.replicas, recipe.sharded) = (replicas, sharded);
        assert_eq!(told(&recipe), expected, "{replicas} replicas");
    }
}

#[test]
fn a_checkpoint_goes_on_with_another_number_of_replicas() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut recipe = large(true, 4);
    let expected = recipe.plain_hash(4);
    let shapes = [(1, false, 1), (2, true, 1), (3, false, 1), (2, true, 2)];
    for (step, (replicas, sharded, ranks)) in (0..).zip(shapes) {
        (recipe.replicas, recipe.sharded) = (replicas, sharded);
        let mut pipeline = recipe.pipeline(ranks, "1f1b");
        if step > 0 {
            pipeline.load(folder.path().join(format!("{}", step - 1))).expect("it is whole");
        }
        pipeline.step().expect("a step");
        pipeline.save(folder.path().join(step.to_string())).expect("saved");
        if step == 3 {
            assert_eq!(pipeline.weights_hash().expect("it runs"), expected);
        }
    }
    let bytes = |step: u32, file: &str| {
        let path = folder.path().join(step.to_string()).join(file);
        std::fs::read(path).expect("it is there").len()
    };
    for file in ["model.safetensors", "optimizer.safetensors"] {
        assert_eq!(bytes(3, file), bytes(0, file), "{file} does not know of replicas");
    }
}

#[test]
fn a_sharded_optimizer_has_its_part_of_the_state() {
    let mut recipe = large(false, 4);
    let state = |recipe: &Recipe| -> Vec<usize> {
        let lengths = Arc::new(Mutex::new(Vec::new()));
        let builder = recipe.builder(named("gpipe", 1, 4));
        let told = Arc::clone(&lengths);
        let mut pipeline =
            builder.optimizer(Counting { told, adamw: recipe.optimizer }).launch().expect("it starts");
        pipeline.step().expect("a step");
        let mut lengths = lengths.lock().expect("no panic");
        std::mem::take(&mut *lengths)
    };
    let all: usize = state(&recipe).iter().sum();
    (recipe.replicas, recipe.sharded) = (2, true);
    let sharded = state(&recipe);
    assert_eq!(sharded.iter().sum::<usize>(), all, "together they have all of it, once");
    recipe.sharded = false;
    assert_eq!(state(&recipe).iter().sum::<usize>(), 2 * all);
}

/// AdamW that tells how much state it has for each parameter.
#[derive(Clone)]
struct Counting {
    told: Arc<Mutex<Vec<usize>>>,
    adamw: AdamW,
}

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.adamw.fmt(f)
    }
}

impl Optimizer for Counting {
    fn states(&self, name: &str, dims: &[usize]) -> Vec<StateTensor> {
        self.adamw.states(name, dims)
    }

    fn update(
        &self,
        parameter: &mut Parameter,
        update: Update,
        together: &mut Together,
    ) -> pipewright::stages::Result<()> {
        self.adamw.update(parameter, update, together)?;
        let numbers = parameter.state.iter().map(|numbers| numbers.len()).sum();
        self.told.lock().expect("no panic").push(numbers);
        Ok(())
    }

    fn updates_parts(&self) -> bool {
        true
    }
}

#[test]
fn a_trace_has_the_reductions_and_all_micro_batches() {
    let mut recipe = recipe(2, false, 6);
    recipe.replicas = 2;
    let builder = recipe.builder(named("1f1b", 2, 6));
    let builder = builder.map(Map::Replicas);
    let (report, timeline) = builder.launch().expect("it starts").step_traced().expect("a step");
    assert_eq!((report.ranks.len(), timeline.ranks.len()), (4, 4));
    assert_eq!(timeline.reductions.len(), 4);
    assert!(timeline.reductions.iter().all(|reduction| reduction.end >= reduction.start));
    let of_rank = |rank: usize| -> Vec<u32> {
        let forwards = timeline.ranks[rank].iter().filter(|timed| timed.pass == Pass::Forward);
        forwards.map(|timed| timed.cell.micro_batch.0).collect()
    };
    // Replica 0 has the first two rows, whatever the numbers of its ranks.
    assert_eq!([of_rank(0), of_rank(2)], [vec![0, 1, 2], vec![3, 4, 5]]);
    assert!(timeline.transfers.iter().all(|transfer| (transfer.from.0 < 2) == (transfer.to.0 < 2)));
    let reducing = report.ranks.iter().map(|rank| rank.reducing);
    assert!(reducing.clone().all(|seconds| seconds >= 0.0) && reducing.sum::<f64>() > 0.0);
}
