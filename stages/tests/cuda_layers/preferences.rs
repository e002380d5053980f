//! Losses over pairs of answers on a GPU: near the CPU, whole and some rows at a time.

use pipewright_stages::layers::{Layout, Linear};
use pipewright_stages::loss::{Loss, MicroBatchLoss, PairwiseReward, Preference, Score};

use pipewright_stages::{ForwardContext, Mode};

use super::*;

const DIM: usize = 16;
const CLASSES: usize = 21;

/// Answers that begin at different places.
fn target(rows: usize, time: usize) -> Tensor {
    let mut all = Vec::new();
    for row in 0..rows {
        let start = (row * 5) % time;
        all.extend((0..time).map(|at| match at < start {
            true => u32::MAX,
            false => ((row * 7 + at * 3) % CLASSES) as u32,
        }));
        all.extend(Preference::reference(-3.0 * (time - start) as f64));
    }
    Tensor::from_ids(&[rows, time + 2], all).unwrap()
}

fn told(score: Score) -> Vec<f32> {
    let metrics = score.metrics.iter().map(|metric| metric.value().unwrap_or_default() as f32);
    [score.mean() as f32, score.weight as f32].into_iter().chain(metrics).collect()
}

/// What a head and a loss give: the gradients and the score of training, and the score alone.
fn trained(mut loss: impl Loss<Tensor>, [rows, time, classes]: [usize; 3], place: Place) -> Vec<Vec<f32>> {
    let head = Linear::new("head", [DIM, classes], Init::Uniform(0.5), 1).with_layout(Layout::OutIn);
    let mut stage = Sequential::new(vec![Box::new(head)]);
    stage.move_to(place).unwrap();
    let is_deferred = stage.defer_head(rows * time) > 0;
    let input = stage.load(tensor("x", &[rows, time, DIM])).unwrap();
    let mut all = Vec::new();
    for is_trained in [true, false] {
        let ctx = if is_trained { train(0) } else { ForwardContext { mode: Mode::Evaluate, ..train(0) } };
        let mut of_one = MicroBatchLoss::new(&mut loss, 0, target(rows, time), is_trained);
        let (saved, grad) = match is_deferred {
            true => {
                let (input, saved) = stage.forward_before_head(ctx, input.clone()).unwrap();
                (saved, stage.head_and_loss(ctx, input, &mut of_one).unwrap())
            }
            false => {
                let (output, saved) = stage.forward(ctx, input.clone()).unwrap();
                (saved, of_one.take(output).unwrap())
            }
        };
        let score = of_one.score();
        if let Some(grad) = grad {
            all.push(here(stage.backward(saved, grad).unwrap().expect("somebody uses it")));
            for parameter in stage.parameters() {
                parameter.end_group().unwrap();
                parameter.fetch(Part::Gradient).unwrap();
                all.push(parameter.grad.to_vec());
            }
        }
        all.push(told(score.unwrap_or_else(|| loss.finish(0))));
    }
    all
}

#[test]
fn preferences_are_near_the_cpus() {
    if emulator::start().is_none() {
        return;
    }
    let dpo = || Preference::dpo(0.1).unwrap().smoothed(0.1).unwrap();
    let losses = [Preference::dpo(0.5).unwrap(), dpo(), Preference::ipo(0.2).unwrap()];
    // One token, some, and more than are in memory at once, on the CPU and on a GPU.
    for [rows, time] in [[2, 1], [4, 9], [6, 201], [6, 401]] {
        for dtype in [DType::F32, DType::Bf16] {
            let most = if dtype == DType::F32 { 2e-4 } else { 5e-2 };
            for loss in &losses {
                let run = |place| trained(loss.clone(), [rows, time, CLASSES], place);
                let case = format!("{loss:?}, {rows} x {time}, {dtype:?}");
                assert_near(&run(gpu(dtype)), &run(Place::default()), most, &case);
            }
        }
    }
}

/// Of a margin of 20 and of 60 the loss is about `exp(-20)` and `exp(-60)`, not 0.
#[test]
fn the_loss_of_a_pair_that_is_far_apart_keeps_its_digits() {
    if emulator::start().is_none() {
        return;
    }
    for margin in [0.5, 7.0, 20.0, 60.0] {
        let loss = |place| {
            let rewards = Tensor::from_vec(&[2, 1, 1], vec![margin, 0.0]).unwrap().to(place).unwrap();
            let target = Tensor::from_ids(&[2, 3], vec![1, 0, 0, 1, 0, 0]).unwrap();
            PairwiseReward::default().forward(rewards, target).unwrap().0.sum
        };
        let (on_gpu, on_cpu) = (loss(gpu(DType::F32)), loss(Place::default()));
        assert!((on_gpu / on_cpu - 1.0).abs() < 1e-5, "{margin}: {on_gpu}, not {on_cpu}");
    }
}

#[test]
fn rewards_are_near_the_cpus() {
    if emulator::start().is_none() {
        return;
    }
    for [rows, time] in [[2, 1], [4, 9], [6, 301]] {
        for dtype in [DType::F32, DType::Bf16] {
            let most = if dtype == DType::F32 { 1e-4 } else { 5e-2 };
            let run = |place| trained(PairwiseReward::default(), [rows, time, 1], place);
            assert_near(
                &run(gpu(dtype)),
                &run(Place::default()),
                most,
                &format!("{rows} x {time}, {dtype:?}"),
            );
        }
    }
}
