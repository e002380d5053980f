//! The scores of a micro-batch with many rows are never in memory as a whole, in any cut of a model.

use std::sync::atomic::AtomicUsize;

use pipewright::stages::loss::SomeRows;
use pipewright::stages::models::{Gpt, Rules};
use pipewright::stages::{Lora, Result as StageResult, Training};

use super::*;

/// A GPT of one block whose head is deferred: a micro-batch has more than 512 rows, and a row has more scores
/// than inputs.
fn wide(tied: bool, groups: u32) -> Recipe {
    let gpt = Gpt { vocab: 53, dim: 20, layers: 1, heads: 5, context: 9, dropout: 0.1, tied, seed: 3 };
    Recipe { shard_groups: groups, ..gpt_recipe(gpt, 60, 4) }
}

const HALF: Place = Place { device: Device::Cpu, dtype: DType::Bf16 };

#[test]
fn every_schedule_and_way_to_recompute_has_the_bits_of_all_scores_at_once() {
    let recipe = wide(true, 1);
    let plain = recipe.plain_hash(2);
    recipe.assert_everywhere(&plain);
}

#[test]
fn replicas_shards_and_both_number_formats_have_the_bits_of_all_scores_at_once() {
    for (tied, place) in [(true, Place::default()), (false, Place::default()), (false, HALF)] {
        let mut recipe = Recipe { place, ..wide(tied, 4) };
        let plain = recipe.plain_hash(2);
        for (replicas, shards, sharded) in [(1, 2, false), (2, 1, true), (2, 4, true)] {
            (recipe.replicas, recipe.shards, recipe.sharded) = (replicas, shards, sharded);
            let hash = recipe.hash(2, "1f1b", 2);
            assert_eq!(hash, plain, "{replicas} replicas, {shards} shards, {}", place.dtype);
        }
    }
}

#[test]
fn an_adapted_head_has_the_bits_of_all_scores_at_once() {
    for groups in [1, 2] {
        let lora = Lora { rank: 3, alpha: 6.0, dropout: 0.2, seed: 9 };
        let rules = Rules::default()
            .with_lora(move |name| (name == "lm_head").then_some(lora))
            .with_training(|name| Training { frozen: !Lora::is_adapter(name), ..Training::default() });
        let model = wide(false, groups).model;
        let model = Box::new(move || model().with_rules(rules.clone()));
        let mut recipe = Recipe { model, ..wide(false, groups) };
        let plain = recipe.plain_hash(3);
        for shards in (1..=groups).filter(|shards| groups % shards == 0) {
            recipe.shards = shards;
            assert_eq!(recipe.hash(2, "1f1b", 3), plain, "{groups} groups, {shards} shards");
        }
    }
}

/// Evaluations have some scores at a time too.
#[test]
fn an_evaluation_has_the_loss_of_all_scores_at_once() {
    let recipe = wide(true, 2);
    let (mut stage, mut loss) = (recipe.model().whole().expect("it can be made"), recipe.loss());
    let mut expected = Score::default();
    for micro_batch in 0..3 {
        let (input, target) = recipe.data.micro_batch(0, MicroBatch(micro_batch)).expect("data");
        let at = ForwardContext { step: 0, micro_batch, mode: Mode::Evaluate };
        let (output, _) = stage.forward(at, input).expect("forward");
        expected.add(loss.score(output, target).expect("the loss"));
    }
    for (stages, shards) in [(1, 1), (3, 1), (2, 2)] {
        let recipe = Recipe { shards, ..wide(true, 2) };
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        let report = pipeline.evaluate(Arc::clone(&recipe.data), 3).expect("it evaluates");
        assert_eq!(report.loss, expected.mean(), "{stages} stages, {shards} shards");
        assert_eq!(report.metrics, expected.metrics, "{stages} stages, {shards} shards");
    }
}

/// A cross-entropy that tells the most scores that it has been given at once.
#[derive(Clone)]
struct Watched(CrossEntropy, Arc<AtomicUsize>);

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Watched {
    fn see(&self, output: &Tensor) {
        self.1.fetch_max(output.shape().rows(), Ordering::Relaxed);
    }
}

impl Loss<Tensor> for Watched {
    fn check(&self, output: &Shape, target: &Shape) -> StageResult<()> {
        self.0.check(output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> StageResult<(Score, Tensor)> {
        self.see(&output);
        self.0.forward(output, target)
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn take_rows(
        &mut self,
        rows: &SomeRows,
        output: Tensor,
        target: Tensor,
    ) -> StageResult<(Option<Score>, Tensor)> {
        self.see(&output);
        self.0.take_rows(rows, output, target)
    }
}

/// The most scores that a loss has had at once, in training and in an evaluation.
fn most(recipe: &Recipe, schedule: Schedule) -> [usize; 2] {
    let most = Arc::new(AtomicUsize::new(0));
    let loss = Watched(recipe.loss(), Arc::clone(&most));
    let mut pipeline = recipe.builder(schedule).loss(loss).launch().expect("it starts");
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(2));
    let in_training = most.swap(0, Ordering::Relaxed);
    pipeline.evaluate(Arc::clone(&recipe.data), 1).expect("it evaluates");
    [in_training, most.load(Ordering::Relaxed)]
}

#[test]
fn a_loss_is_given_512_rows_at_most_where_the_backward_follows_at_once() {
    for name in Schedule::names() {
        let schedule = named(name, 2, 4);
        let at_once = schedule.goes_back_at_once(schedule.last_stage());
        assert_eq!(at_once, ["1f1b", "interleaved-1f1b"].contains(&name), "{name}");
        let expected = if at_once { [512, 512] } else { [540, 540] };
        assert_eq!(most(&wide(true, 1), schedule), expected, "{name}");
    }
    let few = Recipe { data: Arc::new(RandomTokens { rows: 56, seq: 9, vocab: 53 }), ..wide(true, 1) };
    assert_eq!(most(&few, named("1f1b", 2, 4)), [504, 504]);
}

/// Gradients are added in the order of the micro-batches. So a head whose backwards have another order has
/// all scores.
#[test]
fn a_schedule_of_ones_own_with_backwards_in_another_order_has_all_scores_at_once() {
    let cell = |micro_batch| Cell::new(0, micro_batch);
    let forwards = (0..4).map(|micro_batch| (Pass::Forward, cell(micro_batch)));
    let backwards = [2, 0, 1, 3].map(|micro_batch| (Pass::BackwardInput, cell(micro_batch)));
    let weights = (0..4).map(|micro_batch| (Pass::BackwardWeight, cell(micro_batch)));
    let row = forwards.chain(backwards).chain(weights).collect();
    let placement = named("gpipe", 1, 4).placement().clone();
    let schedule = Schedule::from_passes("own", placement, 4, vec![row]).expect("it can run");
    assert!(!schedule.goes_back_at_once(schedule.last_stage()));
    assert_eq!(most(&wide(false, 1), schedule), [540, 540]);
}
