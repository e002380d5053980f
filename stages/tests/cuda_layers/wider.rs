//! Where a vocabulary is no multiple of eight, rows of scores on a GPU have room for the next multiple.

use std::sync::atomic::{AtomicUsize, Ordering};

use pipewright_stages::layers::Linear;
use pipewright_stages::loss::{CrossEntropy, Loss, MicroBatchLoss, Score, SomeRows};
use pipewright_stages::{Error, Lora, Shape};

use super::*;

const DIM: usize = 16;
const CLASSES: usize = 21;
/// More rows than a GPU has scores of at once.
const ROWS: usize = 2051;

/// Cross-entropy that takes wider rows or not, and notes the width of what it gets.
#[derive(Debug)]
struct Watched {
    loss: CrossEntropy,
    takes_wider: bool,
    width: AtomicUsize,
}

impl Loss<Tensor> for Watched {
    fn check(&self, output: &Shape, target: &Shape) -> Result<(), Error> {
        self.loss.check(output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor), Error> {
        self.loss.forward(output, target)
    }

    fn takes_rows(&self) -> bool {
        true
    }

    fn takes_wider_rows(&self) -> bool {
        self.takes_wider
    }

    fn take_rows(
        &mut self,
        rows: &SomeRows,
        output: Tensor,
        target: Tensor,
    ) -> Result<(Option<Score>, Tensor), Error> {
        self.width.store(output.shape().last(), Ordering::Relaxed);
        self.loss.take_rows(rows, output, target)
    }

    fn finish(&mut self, micro_batch: u32) -> Score {
        self.loss.finish(micro_batch)
    }

    fn runs_on_gpus(&self) -> bool {
        true
    }
}

/// A head, and whether it has an adapter.
fn head(has_adapter: bool) -> Sequential {
    let head = Linear::new("head", [DIM, CLASSES], Init::Normal(0.5), 1).without_bias();
    let mut stage = Sequential::new(chain![head]);
    if has_adapter {
        let lora = Lora { rank: 8, alpha: 4.0, dropout: 0.0, seed: 1 };
        stage.adapt(&mut |_| Some(lora)).unwrap();
        // An adapter starts as nothing.
        for parameter in stage.parameters() {
            let numbers = numbers(parameter.name(), parameter.value.len());
            parameter.value.copy_from_slice(&numbers);
        }
    }
    stage
}

/// The score, the input gradient and the gradients of the weights; and the width of the scores.
fn trained(has_adapter: bool, loss: CrossEntropy, takes_wider: bool, place: Place) -> (Vec<Vec<f32>>, usize) {
    let mut stage = head(has_adapter);
    stage.move_to(place).unwrap();
    assert!(stage.defer_head(ROWS) > 0);
    let ids: Vec<u32> = (0..ROWS as u32).map(|row| row * 7 % CLASSES as u32).collect();
    let target = Tensor::from_ids(&[ROWS], ids).unwrap();
    let mut loss = Watched { loss, takes_wider, width: AtomicUsize::new(0) };
    let mut of_one = MicroBatchLoss::new(&mut loss, 0, target, true);
    let input = stage.load(tensor("x", &[ROWS, DIM])).unwrap();
    let (input, saved) = stage.forward_before_head(train(0), input).unwrap();
    let grad = stage.head_and_loss(train(0), input, &mut of_one).unwrap().expect("a gradient");
    let told = of_one.score();
    let input_grad = stage.backward(saved, grad).unwrap().expect("somebody uses it");
    let mut all = vec![here(input_grad)];
    for parameter in stage.parameters() {
        parameter.end_group().unwrap();
        parameter.fetch(Part::Gradient).unwrap();
        all.push(parameter.grad.to_vec());
    }
    let score = told.unwrap_or_else(|| loss.finish(0));
    let right = score.metrics.iter().map(|metric| metric.value().unwrap_or_default() as f32);
    all.push([score.sum as f32 / ROWS as f32, score.weight as f32].into_iter().chain(right).collect());
    (all, loss.width.into_inner())
}

#[test]
fn rows_with_room_for_more_classes_give_the_same_gradients() {
    if emulator::start().is_none() {
        return;
    }
    let smoothed = CrossEntropy::default().smoothed(0.1).unwrap();
    let losses = [CrossEntropy::default(), smoothed, CrossEntropy::ignoring(3)];
    for dtype in [DType::F32, DType::Bf16] {
        let most = if dtype == DType::F32 { 1e-4 } else { 2e-2 };
        for has_adapter in [false, true] {
            for loss in &losses {
                let case = format!("{loss:?}, {dtype:?}, adapter {has_adapter}");
                let run = |takes_wider, place| trained(has_adapter, loss.clone(), takes_wider, place);
                let (wider, width) = run(true, gpu(dtype));
                assert_eq!(width, 24, "{case}");
                let (plain, width) = run(false, gpu(dtype));
                assert_eq!(width, CLASSES, "{case}");
                let (on_cpu, width) = run(true, Place::default());
                assert_eq!(width, CLASSES, "{case}");
                assert_near(&wider, &plain, most, &case);
                assert_near(&wider, &on_cpu, 10.0 * most, &case);
            }
        }
    }
}
