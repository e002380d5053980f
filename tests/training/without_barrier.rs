//! Steps without a barrier have the bits of steps with one, also when two of them are taken back.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pipewright::PipelineBuilder;
use pipewright::data::IGNORED;
use pipewright::privacy::Privacy;

use super::*;
use crate::gates::{Asked, gated};
use crate::worlds::in_processes;

/// Enough that some begin early after those that must not be clipped.
const STEPS: u64 = 24;

/// What each step reports, and the weights after all of them.
type Story = (Vec<[u64; 4]>, String);

fn told(pipeline: &mut Pipeline<Sequential>, barrier: bool) -> Story {
    if !barrier {
        pipeline.steps_until(STEPS);
    }
    let mut begun = 0;
    let mut step = |pipeline: &mut Pipeline<Sequential>| {
        let report = pipeline.step().expect("the step succeeds");
        begun += u64::from(pipeline.next_has_begun());
        [report.loss, report.grad_norm, report.weight, report.learning_rate].map(f64::to_bits)
    };
    let told = (0..STEPS).map(|_| step(pipeline)).collect();
    assert_eq!(begun > 0, !barrier, "{begun} steps began early");
    (told, pipeline.weights_hash().expect("the pipeline runs"))
}

/// Fails unless the barrier changes nothing. Returns the story.
#[track_caller]
fn assert_same(recipe: &Recipe, schedule: &Schedule, what: &str) -> Story {
    let [with, without] = [true, false].map(|barrier| {
        let builder = recipe.builder(schedule.clone()).barrier(barrier);
        told(&mut builder.launch().expect("it starts"), barrier)
    });
    assert_eq!(without, with, "{what}");
    with
}

#[test]
fn every_schedule_has_the_bits_of_steps_with_a_barrier() {
    let recipe = Recipe { clip: None, ..recipe(4, true, 4) };
    for name in Schedule::names() {
        let schedule = named(name, 2, 4);
        assert_same(&recipe, &schedule, name);
    }
}

/// Two steps with few targets, whose mean gradient is larger than in other steps.
const FEW: [u64; 2] = [13, 14];

fn with_few_targets(recipe: Recipe) -> Recipe {
    let data = changed(Arc::clone(&recipe.data), |data, step, micro_batch| {
        let (input, mut target) = data.micro_batch(step, micro_batch)?;
        if FEW.contains(&step) {
            let all = target.ids_mut();
            all[1..].fill(IGNORED);
        }
        Ok((input, target))
    });
    Recipe { data, ..recipe }
}

/// The recipe, clipped in these steps only.
fn clipped_in_two(recipe: Recipe, schedule: &Schedule) -> Recipe {
    let recipe = with_few_targets(Recipe { clip: None, ..recipe });
    let mut pipeline = recipe.launch(schedule.clone()).expect("it starts");
    let (mut others, mut few) = (0.0_f64, f64::INFINITY);
    for step in 0..STEPS {
        let norm = pipeline.step().expect("the step succeeds").grad_norm;
        match FEW.contains(&step) {
            true => few = few.min(norm),
            false => others = others.max(norm),
        }
    }
    assert!(others < few, "{others} and {few}");
    Recipe { clip: Some((others * few).sqrt()), ..recipe }
}

#[test]
fn steps_that_have_to_be_clipped_are_taken_back() {
    for name in Schedule::names() {
        let schedule = named(name, 2, 4);
        let recipe = clipped_in_two(recipe(4, true, 4), &schedule);
        let (steps, _) = assert_same(&recipe, &schedule, name);
        let limit = recipe.clip.expect("it is clipped");
        let clipped = steps.iter().map(|step| f64::from_bits(step[1]) > limit);
        assert_eq!(clipped.filter(|clipped| *clipped).count(), FEW.len(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_mesh_has_the_bits_of_steps_with_a_barrier(
        name in prop::sample::select(vec!["gpipe", "1f1b", "zb-2p", "zb-v", "v-half"]),
        ranks in 1_u32..=3,
        micro_batches in 3_u32..=5,
        replicas in 1_u32..=2,
        shards in prop::sample::select(vec![1_u32, 2]),
        (tied, sharded, clipped) in any::<(bool, bool, bool)>(),
    ) {
        let (replicas, shards) = if ranks > 2 { (replicas, 1) } else { (replicas, shards) };
        let schedule = named(name, ranks, micro_batches);
        let recipe = recipe(4, tied, micro_batches);
        let recipe = Recipe { replicas, shards, shard_groups: 2, sharded, clip: None, ..recipe };
        let recipe = if clipped { clipped_in_two(recipe, &schedule) } else { recipe };
        assert_same(&recipe, &schedule, "any mesh");
    }
}

/// A batch whose loss is infinite in this step.
fn spoilt(recipe: Recipe, spoilt: u64) -> Recipe {
    let data = changed(Arc::clone(&recipe.data), move |data, step, micro_batch| {
        let (mut input, target) = data.micro_batch(step, micro_batch)?;
        if step == spoilt && micro_batch.0 == 1 {
            input.f32_mut()[0] = f32::INFINITY;
        }
        Ok((input, target))
    });
    Recipe { data, ..recipe }
}

#[test]
fn a_step_whose_loss_is_not_finite_is_taken_back_with_the_next_one() {
    let plain = || {
        let rows = RandomRows { rows: 4, width: 8, classes: 3 };
        let mlp = Mlp { sizes: vec![8, 8, 8, 3], dropout: 0.1, seed: 5 };
        Recipe { clip: None, ..recipe_of(move || mlp.model(), Arc::new(rows), 4) }
    };
    let schedule = named("zb-2p", 3, 4);
    let hash = plain().hash_on(schedule.clone(), 5);
    let recipe = spoilt(plain(), 5);
    let mut pipeline = recipe.builder(schedule).barrier(false).launch().expect("it starts");
    pipeline.steps_until(9);
    train(&mut pipeline, 5);
    assert!(pipeline.next_has_begun());
    let error = pipeline.step().expect_err("a loss is infinite");
    assert!(matches!(error, Error::NotFinite { step: 5, .. }), "{error}");
    assert!(!pipeline.next_has_begun());
    assert_eq!(pipeline.next_step(), 5);
    assert_eq!(pipeline.weights_hash().expect("it goes on"), hash);
    // And again, as with a barrier.
    assert!(matches!(pipeline.step(), Err(Error::NotFinite { step: 5, .. })));
}

#[test]
fn processes_have_the_bits_of_one() {
    let schedule = named("zb-2p", 4, 4);
    let recipe = |schedule| clipped_in_two(recipe(4, true, 4), schedule);
    let expected = assert_same(&recipe(&schedule), &schedule, "one process");
    for processes in [2, 4] {
        let told = in_processes(processes, |world| {
            let builder = recipe(&schedule).builder(schedule.clone()).barrier(false).world(world);
            told(&mut builder.launch().expect("it starts"), false)
        });
        told.iter().for_each(|told| assert_eq!(told, &expected, "{processes} processes"));
    }
}

#[test]
fn another_call_while_the_next_step_has_begun_is_refused() {
    let recipe = Recipe { clip: None, ..recipe(2, false, 2) };
    let mut pipeline = recipe.builder(named("1f1b", 2, 2)).barrier(false).launch().expect("it starts");
    pipeline.steps_until(4);
    train(&mut pipeline, 3);
    assert!(pipeline.next_has_begun());
    let refused = pipeline.weights_hash().expect_err("step 3 has begun");
    has(&refused, &["step 3 runs already, because `steps_until` said that it follows at once: call `step`"]);
    assert!(pipeline.step_traced().is_err());
    train(&mut pipeline, 1);
    assert_eq!(pipeline.weights_hash().expect("no step has begun"), recipe.hash(2, "1f1b", 4));
    // Without a word about the steps that follow, none begins early.
    train(&mut pipeline, 2);
    assert!(!pipeline.next_has_begun());
    // A pipeline may be dropped while a step runs.
    pipeline.steps_until(9);
    train(&mut pipeline, 1);
    assert!(pipeline.next_has_begun());
}

#[test]
fn what_needs_a_barrier_is_refused_by_name() {
    let schedule = || named("1f1b", 2, 4);
    let three = NonZeroU32::new(3).expect("not 0");
    let of = |change: &dyn Fn(PipelineBuilder<Sequential>) -> PipelineBuilder<Sequential>| {
        let builder = recipe(2, false, 4).builder(schedule()).barrier(false);
        change(builder).launch().expect_err("it needs a barrier")
    };
    let served = |builder: PipelineBuilder<Sequential>| {
        builder.replicas(2).sync(SyncMode::Server { max_staleness: 0 })
    };
    let private =
        |builder: PipelineBuilder<Sequential>| builder.privacy(Privacy { clip: 1.0, noise: 0.0, seed: 0 });
    let on_gpu = |builder: PipelineBuilder<Sequential>| {
        builder.places(vec![Place { device: Device::Cuda(0), ..Place::default() }])
    };
    let restarted = move |builder: PipelineBuilder<Sequential>| builder.restarts(1, three);
    let ends = ", or leave out `.barrier(false)` (`pipeline.barrier`)";
    let without = "cannot train without a barrier: ";
    has(&of(&served), &["a parameter server ", without, "take `SyncMode::Reduce`", ends]);
    has(&of(&private), &["a private training ", without, "leave out `.privacy(...)`", ends]);
    has(&of(&on_gpu), &["ranks on cuda:0 ", without, "put all ranks on the CPU", ends]);
    has(&of(&restarted), &["ranks that are built again after a failure ", "set `train.restarts` to 0", ends]);
}

#[test]
fn a_replica_without_micro_batches_has_no_losses() {
    for (replicas, micro_batches) in [(2, 1), (3, 2)] {
        let recipe = Recipe { replicas, clip: None, ..recipe(2, false, micro_batches) };
        assert_same(&recipe, &named("1f1b", 2, micro_batches), "an idle replica");
    }
}

/// A loss of the output itself, whose weight too depends on the output.
#[derive(Clone, Debug)]
struct Steep;

impl Loss<Tensor> for Steep {
    fn check(&self, _: &Shape, _: &Shape) -> pipewright::stages::Result<()> {
        Ok(())
    }

    fn forward(&mut self, output: Tensor, _: Tensor) -> pipewright::stages::Result<(Score, Tensor)> {
        let first = output.f32()[0];
        let score = Score::new(f64::from(first).exp(), 1.0 + f64::from(first).abs().min(9.0));
        let mut grad = output;
        grad.f32_mut().iter_mut().for_each(|number| *number = number.exp());
        Ok((score, grad))
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> pipewright::stages::Result<Score> {
        Ok(self.forward(output, target)?.0)
    }
}

#[test]
fn losses_of_a_step_that_was_taken_back_are_forgotten() {
    let rows = RandomRows { rows: 2, width: 4, classes: 3 };
    // In this step inputs are so large that its gradient has to be clipped.
    let data = changed(Arc::new(rows), |data, step, micro_batch| {
        let (mut input, target) = data.micro_batch(step, micro_batch)?;
        if step == 10 {
            input.f32_mut().iter_mut().for_each(|number| *number = 30.0);
        }
        Ok((input, target))
    });
    let told = |barrier: bool| {
        let mlp = Mlp { sizes: vec![4, 4, 3], dropout: 0.0, seed: 5 };
        let model = mlp.model().expect("the sizes fit");
        let builder = Pipeline::builder()
            .schedule(named("zb-2p", 2, 3))
            .stages(model.split(2).expect("two stages"))
            .loss(Steep)
            .data(Arc::clone(&data))
            .optimizer(Sgd::default())
            .learning_rate(LearningRate::Constant(0.1))
            .clip(5.0)
            .barrier(barrier)
            .pin(false);
        let mut pipeline = builder.launch().expect("it starts");
        pipeline.steps_until(STEPS);
        let mut taken_back = 0;
        let steps: Vec<_> = (0..STEPS)
            .map(|_| {
                let report = pipeline.step().expect("the step succeeds");
                taken_back += u32::from(report.taken_back);
                [report.loss, report.grad_norm, report.weight].map(f64::to_bits)
            })
            .collect();
        (steps, pipeline.weights_hash().expect("it runs"), taken_back)
    };
    let (with, without) = (told(true), told(false));
    assert_eq!((with.0, with.1), (without.0, without.1));
    assert!(without.2 >= 1, "nothing was taken back");
}

/// Data that cannot be read in this step.
struct Unreadable(RandomTokens, u64);

impl DataSource for Unreadable {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        match step == self.1 {
            true => Err(pipewright::error::DataError::new("the disk is gone").into()),
            false => self.0.micro_batch(step, micro_batch),
        }
    }

    fn shapes(&self) -> (Shape, Shape) {
        self.0.shapes()
    }
}

#[test]
fn the_cause_of_a_failure_in_a_step_that_has_begun_is_told() {
    let run = |processes: Option<pipewright::fabric::World>| {
        let plain = recipe(4, false, 4);
        let data = Unreadable(RandomTokens { rows: 2, seq: 8, vocab: 17 }, 5);
        let recipe = Recipe { clip: None, data: Arc::new(data), ..plain };
        let builder = recipe.builder(named("zb-2p", 4, 4)).barrier(false);
        let builder = match processes {
            Some(world) => builder.world(world),
            None => builder,
        };
        let mut pipeline = builder.launch().expect("it starts");
        pipeline.steps_until(9);
        let error = (0..9).find_map(|_| pipeline.step().err()).expect("there is no data");
        assert!(!pipeline.next_has_begun());
        let later = pipeline.weights_hash().expect_err("it has stopped");
        (error.to_string(), later.to_string())
    };
    for _ in 0..10 {
        let (error, later) = run(None);
        assert!(error.contains("the disk is gone"), "{error}");
        assert!(later.contains("the disk is gone"), "{later}");
    }
    for processes in [2, 4] {
        let told = in_processes(processes, |world| run(Some(world)));
        assert!(told.iter().all(|(error, _)| error.contains("the disk is gone")), "{told:?}");
    }
}

#[test]
fn the_cause_is_told_also_if_the_others_have_only_heard_that_a_rank_has_stopped() {
    const LAST: u64 = 5;
    let told = in_processes(2, |world| {
        let process = world.process();
        // So rank 0 fails in its next step while rank 1 still ends the step before. If the machine is so slow
        // that it does not, the cause is told all the same.
        let ends_slowly = Arc::new(AtomicBool::new(false));
        let stages = gated(2, move |stage, asked| match asked {
            Asked::Backward(ctx) => ends_slowly.store(stage == 1 && ctx.step + 1 == LAST, Ordering::SeqCst),
            Asked::Parameters if ends_slowly.load(Ordering::SeqCst) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            _ => {}
        });
        let data = changed(Arc::new(Ones), move |data, step, micro_batch| match (step, process) {
            (LAST, 0) => Err(pipewright::error::DataError::new("the disk is gone").into()),
            _ => data.micro_batch(step, micro_batch),
        });
        let builder = Pipeline::builder()
            .schedule(named("gpipe", 2, 2))
            .stages(stages)
            .loss(MeanSquaredError::default())
            .data(data)
            .barrier(false)
            .pin(false)
            .world(world);
        let mut pipeline = builder.launch().expect("it starts");
        pipeline.steps_until(2 * LAST);
        (0..2 * LAST).find_map(|_| pipeline.step().err()).expect("it cannot read").to_string()
    });
    assert!(told.iter().all(|error| error.contains("the disk is gone")), "{told:?}");
}

#[test]
fn processes_that_say_other_steps_follow_each_other_are_refused() {
    let told = in_processes(2, |world| {
        let process = world.process();
        let recipe = Recipe { clip: None, ..recipe(2, false, 2) };
        let builder = recipe.builder(named("1f1b", 2, 2)).barrier(false).world(world);
        let mut pipeline = builder.launch().expect("it starts");
        pipeline.steps_until(if process == 0 { 4 } else { 0 });
        (0..4).find_map(|_| pipeline.step().err()).expect("they differ").to_string()
    });
    assert!(told.iter().any(|told| told.contains("which the next one follows at once")), "{told:?}");
}
