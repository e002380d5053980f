//! The last layer of a model goes through the loss some rows at a time, with the bits of all rows at once.

use pipewright_stages::layers::{Layout, Linear, Recomputed, RmsNorm};
use pipewright_stages::loss::{CrossEntropy, Loss, MicroBatchLoss, Score};
use pipewright_stages::{DType, Device, Lora, Place, Sequential, Stage, Training};

use super::common::{bits, ids, numbers};
use super::*;

const DIM: usize = 10;
const CLASSES: usize = 23;

/// A micro-batch of this many rows.
fn batch(micro_batch: u32, rows: usize, place: Place) -> (Tensor, Tensor) {
    let input = tensor(&format!("input {micro_batch}"), &[1, rows, DIM]);
    let target = ids(&format!("target {micro_batch}"), &[1, rows], CLASSES as u32);
    (input.to(place).expect("the CPU can"), target)
}

/// What two micro-batches give: their scores, input gradients and weight gradients, as bits.
type Trained = (Vec<Score>, Vec<Vec<u32>>, Vec<Vec<u32>>);

fn trained(
    make: impl Fn() -> Sequential,
    loss: &CrossEntropy,
    (rows, place): (usize, Place),
    pass: impl Fn(&mut Sequential, &mut CrossEntropy, u32, (Tensor, Tensor)) -> (Score, Option<Tensor>),
) -> Trained {
    let (mut stage, mut loss) = (make(), loss.clone());
    stage.move_to(place).expect("the CPU can");
    let (mut scores, mut input_grads) = (Vec::new(), Vec::new());
    for micro_batch in 0..2 {
        let (score, grad) = pass(&mut stage, &mut loss, micro_batch, batch(micro_batch, rows, place));
        let grad = grad.map_or(Vec::new(), |grad| grad.to(Place::default()).expect("it can").f32().to_vec());
        scores.push(score);
        input_grads.push(bits(&grad));
    }
    let grads = stage.parameters().into_iter().map(|parameter| {
        parameter.end_group().expect("the CPU can");
        bits(&parameter.grad)
    });
    (scores, input_grads, grads.collect())
}

/// All rows at once.
fn at_once(
    stage: &mut Sequential,
    loss: &mut CrossEntropy,
    micro_batch: u32,
    (input, target): (Tensor, Tensor),
) -> (Score, Option<Tensor>) {
    let (output, saved) = stage.forward(train(micro_batch), input).expect("forward");
    assert_eq!(output.dims().last(), Some(&CLASSES));
    let (score, grad) = loss.forward(output, target).expect("the loss");
    let (grad, pending) = stage.backward_input(saved, grad).expect("backward-input");
    stage.backward_weight(pending).expect("backward-weight");
    (score, grad)
}

/// Some rows at a time, where there are more than 512. The second micro-batch goes back in two halves, from
/// what forward keeps when it runs again.
fn by_rows(
    stage: &mut Sequential,
    loss: &mut CrossEntropy,
    micro_batch: u32,
    (input, target): (Tensor, Tensor),
) -> (Score, Option<Tensor>) {
    let (rows, at) = (target.dims()[1], train(micro_batch));
    if micro_batch == 0 {
        assert_eq!(stage.defer_head(rows) > 0, rows > 512);
    }
    if rows <= 512 {
        return at_once(stage, loss, micro_batch, (input, target));
    }
    let mut loss = MicroBatchLoss::new(loss, micro_batch, target, true);
    let (before_head, saved) = stage.forward_before_head(at, input.clone()).expect("forward");
    assert_eq!(before_head.dims(), [1, rows, DIM]);
    let grad = stage.head_and_loss(at, before_head, &mut loss).expect("the head");
    let grad = grad.expect("training has a gradient");
    let score = loss.score().expect("the CPU has it at once");
    if micro_batch == 0 {
        return (score, stage.backward(saved, grad).expect("backward"));
    }
    let again = stage.forward_again(at, input).expect("forward again");
    assert_eq!(again.bytes(), saved.bytes());
    let (input_grad, pending) = stage.backward_input(again, grad).expect("backward-input");
    stage.backward_weight(pending).expect("backward-weight");
    (score, input_grad)
}

type MakeStage = fn() -> Sequential;

/// Heads: plain, with a bias, in the other layout, after a norm, with adapters, frozen.
fn heads() -> Vec<(&'static str, MakeStage)> {
    fn linear() -> Linear {
        Linear::new("head", [DIM, CLASSES], Init::Normal(0.3), 1).without_bias()
    }
    fn adapted(dropout: f32) -> Sequential {
        let mut stage = Sequential::new(vec![Box::new(linear())]);
        let lora = Lora { rank: 3, alpha: 6.0, dropout, seed: 4 };
        stage.adapt(&mut |_| Some(lora)).expect("there can be one");
        for parameter in stage.parameters() {
            let draws = numbers(parameter.name(), parameter.value.len());
            parameter.value.copy_from_slice(&draws);
        }
        stage
    }
    vec![
        ("plain", || Sequential::new(vec![Box::new(linear())])),
        ("bias", || Sequential::new(vec![Box::new(linear().with_bias(Init::Normal(0.2)))])),
        ("layout", || Sequential::new(vec![Box::new(linear().with_layout(Layout::InOut))])),
        ("norm", || {
            Sequential::new(vec![Box::new(Recomputed::new(RmsNorm::new("norm", DIM, 1e-5), linear()))])
        }),
        ("adapters", || adapted(0.0)),
        ("adapters, dropout", || adapted(0.3)),
        ("frozen", || {
            let mut stage = Sequential::new(vec![
                Box::new(RmsNorm::new("norm", DIM, 1e-5)),
                Box::new(Linear::new("before", [DIM, DIM], Init::Normal(0.3), 2)),
                Box::new(linear()),
            ]);
            let frozen = Training { frozen: true, ..Training::default() };
            stage.parameters().into_iter().filter(|one| one.name() == "head.weight").for_each(|head| {
                head.train_by(frozen);
            });
            stage
        }),
    ]
}

#[test]
fn a_head_that_goes_by_rows_has_the_bits_of_one_that_does_not() {
    let bf16 = Place { device: Device::Cpu, dtype: DType::Bf16 };
    let losses = [
        CrossEntropy::default(),
        CrossEntropy::ignoring(3).of_tokens(),
        CrossEntropy::default().smoothed(0.1).expect("a share"),
    ];
    for (name, make) in heads() {
        for place in [Place::default(), bf16] {
            // Up to 512 rows are in memory at once.
            for rows in [1, 512, 513, 1024, 1300] {
                for loss in &losses {
                    let expected = trained(make, loss, (rows, place), at_once);
                    let got = trained(make, loss, (rows, place), by_rows);
                    assert_eq!(got, expected, "{name}, {rows} rows, {place:?}, {loss:?}");
                }
            }
        }
    }
}

#[test]
fn a_deferred_head_keeps_nothing() {
    let mut stage = Sequential::new(vec![Box::new(Linear::new("head", [DIM, CLASSES], Init::Zeros, 1))]);
    assert_eq!(stage.defer_head(600), 2, "weights and bias");
    let (input, target) = batch(0, 600, Place::default());
    let mut loss = CrossEntropy::default();
    let mut loss = MicroBatchLoss::new(&mut loss, 0, target, true);
    let (before_head, saved) = stage.forward_before_head(train(0), input).expect("forward");
    assert_eq!(saved.bytes(), 0);
    let grad = stage.head_and_loss(train(0), before_head, &mut loss).expect("the head");
    let (_, pending) = stage.backward_input(saved, grad.expect("a gradient")).expect("backward");
    assert_eq!(pending.bytes(), 0);
}

/// A head with fewer outputs than inputs gains nothing, and neither does one with few rows.
#[test]
fn small_scores_are_not_deferred() {
    let deferred = |sizes, rows| Linear::new("head", sizes, Init::Zeros, 1).defer_head(rows) > 0;
    assert!(deferred([4, 5], 513) && !deferred([4, 5], 512) && !deferred([4, 4], 513));
    let mut layer = Linear::new("head", [4, 5], Init::Zeros, 1);
    let error = layer.forward_before_head(train(0), tensor("x", &[1, 3])).expect_err("wrong width");
    assert_eq!(error.to_string(), "expected an input of f32[.., 4], got f32[1, 3]");
}
