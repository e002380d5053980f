//! Losses over pairs of answers.

use common::tensor;
use pipewright_stages::Shape;
use pipewright_stages::layers::Linear;
use pipewright_stages::loss::{MicroBatchLoss, PairwiseReward, Preference, SomeRows};

use super::*;

const NONE: u32 = u32::MAX;

/// A target of `rows` answers of `time` tokens, from a seed: some tokens are of no answer.
fn target(rows: usize, time: usize, classes: u32, seed: u32) -> Tensor {
    let mut state = seed;
    let mut draw = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let mut all = Vec::new();
    for _ in 0..rows {
        let start = draw(time as u32) as usize;
        all.extend((0..time).map(|at| if at < start { NONE } else { draw(classes) }));
        all.extend(Preference::reference(-f64::from(draw(4000)) / 100.0));
    }
    Tensor::from_ids(&[rows, time + 2], all).unwrap()
}

/// What a loss has to give for logits: the loss and the metrics, and the gradient, in double precision.
struct Expected {
    loss: f64,
    margin: f64,
    right: f64,
    given: [f64; 2],
    grad: Vec<f64>,
}

/// DPO by its formula, or, with `squares`, IPO.
fn by_formula(logits: &Tensor, target: &Tensor, squares: bool, beta: f64, smoothing: f64) -> Expected {
    let &[rows, time, classes] = logits.dims() else { panic!("three dimensions") };
    let mut all = Expected { loss: 0.0, margin: 0.0, right: 0.0, given: [0.0; 2], grad: Vec::new() };
    let mut answers = Vec::new();
    for row in 0..rows {
        let labels = &target.ids()[row * (time + 2)..][..time + 2];
        let bits = u64::from(labels[time]) | u64::from(labels[time + 1]) << 32;
        let (mut given, mut tokens, mut grad) = (0.0, 0.0, vec![0.0; time * classes]);
        for at in (0..time).filter(|&at| labels[at] != NONE) {
            let logits = &logits.f32()[(row * time + at) * classes..][..classes];
            let powers: Vec<f64> = logits.iter().map(|logit| f64::from(*logit).exp()).collect();
            let total: f64 = powers.iter().sum();
            let label = labels[at] as usize;
            given += (powers[label] / total).ln();
            tokens += 1.0;
            for (class, power) in powers.iter().enumerate() {
                grad[at * classes + class] = f64::from(u8::from(class == label)) - power / total;
            }
        }
        answers.push((given, f64::from_bits(bits), tokens, grad));
    }
    for pair in answers.chunks(2) {
        let share = |tokens: f64| if squares { 1.0 / f64::max(tokens, 1.0) } else { 1.0 };
        let ahead = |of: usize| (pair[of].0 - pair[of].1) * share(pair[of].2);
        let apart = ahead(0) - ahead(1);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let x = beta * apart;
        let (loss, slope) = match squares {
            true => ((apart - 0.5 / beta).powi(2), 2.0 * (apart - 0.5 / beta)),
            false => (
                -(1.0 - smoothing) * sigmoid(x).ln() - smoothing * sigmoid(-x).ln(),
                beta * (smoothing * sigmoid(x) - (1.0 - smoothing) * sigmoid(-x)),
            ),
        };
        all.loss += loss;
        all.margin += x;
        all.right += f64::from(u8::from(x > 0.0));
        for (of, sign) in [(0, 1.0), (1, -1.0)] {
            all.given[of] += pair[of].0;
            all.grad.extend(pair[of].3.iter().map(|grad| sign * slope * share(pair[of].2) * grad));
        }
    }
    all
}

fn near(got: f64, expected: f64, what: &str) {
    assert!((got - expected).abs() <= 2e-5 * expected.abs().max(1.0), "{what}: {got}, not {expected}");
}

#[test]
fn preferences_are_as_their_formula_says() {
    for (rows, time, classes) in [(2, 1, 2), (2, 5, 3), (4, 3, 11), (6, 7, 40)] {
        for (squares, smoothing) in [(false, 0.0), (false, 0.2), (true, 0.0)] {
            for beta in [0.05, 1.0] {
                let case = format!("{rows} x {time} x {classes}, {squares}, {smoothing}, {beta}");
                let loss = if squares { Preference::ipo(beta) } else { Preference::dpo(beta) };
                let mut loss = loss.unwrap().smoothed(smoothing).unwrap();
                let logits = tensor(&case, &[rows, time, classes]);
                let target = target(rows, time, classes as u32, rows as u32);
                let expected = by_formula(&logits, &target, squares, beta.into(), smoothing.into());
                let scored = loss.score(logits.clone(), target.clone()).unwrap();
                let (score, grad) = loss.forward(logits, target).unwrap();
                assert_eq!(score, scored, "{case}");
                let pairs = rows as f64 / 2.0;
                assert_eq!(score.weight, pairs, "{case}");
                near(score.sum, expected.loss, &case);
                let metrics = [
                    ("accuracy", expected.right),
                    ("margin", expected.margin),
                    ("chosen", expected.given[0]),
                    ("rejected", expected.given[1]),
                ];
                for (name, sum) in metrics {
                    near(score.metrics.get(name).unwrap() * pairs, sum, &format!("{name} of {case}"));
                }
                for (got, expected) in grad.f32().iter().zip(expected.grad) {
                    near(f64::from(*got), expected, &case);
                }
            }
        }
    }
}

#[test]
fn where_the_model_is_the_reference_the_loss_is_a_half_in_nats() {
    let logits = tensor("logits", &[2, 6, 9]);
    let labels: Vec<u32> = (0..12).map(|at| at % 9).collect();
    let of = |references: [f64; 2]| {
        let rows = labels.chunks(6).zip(references);
        let ids = rows.flat_map(|(row, of)| [row.to_vec(), Preference::reference(of).to_vec()].concat());
        let target = Tensor::from_ids(&[2, 8], ids.collect()).unwrap();
        Preference::dpo(0.1).unwrap().score(logits.clone(), target).unwrap()
    };
    let given = of([0.0; 2]).metrics;
    let score = of(["chosen", "rejected"].map(|name| given.get(name).unwrap()));
    assert_eq!(score.sum, 2.0_f64.ln(), "to the last bit");
    assert_eq!(score.metrics.get("margin"), Some(0.0));
    assert_eq!(score.metrics.get("accuracy"), Some(0.0), "nothing is ahead");
}

#[test]
fn a_pair_without_labels_does_not_count() {
    let full = target(2, 4, 5, 3);
    let empty = [[NONE; 4].to_vec(), vec![0, 0]].concat();
    let ids = [full.ids(), &empty, &empty].concat();
    let target = Tensor::from_ids(&[4, 6], ids).unwrap();
    let logits = tensor("logits", &[4, 4, 5]);
    let mut loss = Preference::dpo(0.1).unwrap();
    let (score, grad) = loss.forward(logits.clone(), target.clone()).unwrap();
    assert_eq!(score.weight, 1.0);
    assert!(grad.f32()[40..].iter().all(|grad| *grad == 0.0));
    let rewards = tensor("rewards", &[4, 4, 1]);
    let (score, grad) = PairwiseReward::default().forward(rewards, target).unwrap();
    assert_eq!(score.weight, 1.0);
    assert!(grad.f32()[8..].iter().all(|grad| *grad == 0.0));
}

/// A head, deferred or not, before a loss: the score, the input gradient and the weight gradient.
fn through_head(loss: &Preference, by_rows: bool, train: bool) -> (Score, Vec<Vec<u32>>) {
    // More rows than are in memory at once, and answers across their borders.
    let (rows, time, dim, classes) = (6, 201, 4, 9);
    let head = Linear::new("head", [dim, classes], Init::Uniform(0.5), 3);
    let mut stage = Sequential::new(vec![Box::new(head)]);
    let mut loss = loss.clone();
    let target = target(rows, time, classes as u32, 9);
    let mode = if train { Mode::Train } else { Mode::Evaluate };
    let ctx = ForwardContext { step: 0, micro_batch: 0, mode };
    let input = stage.load(tensor("x", &[rows, time, dim])).unwrap();
    let mut of_one = MicroBatchLoss::new(&mut loss, 0, target, train);
    let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
    if by_rows {
        assert!(stage.defer_head(rows * time) > 0);
        let (input, saved) = stage.forward_before_head(ctx, input).unwrap();
        let grad = stage.head_and_loss(ctx, input, &mut of_one).unwrap();
        let score = of_one.score().expect("the CPU gives it at once");
        let Some(grad) = grad else { return (score, Vec::new()) };
        let input_grad = stage.backward(saved, grad).unwrap().unwrap();
        let mut all = vec![bits(input_grad.f32())];
        stage.visit_gradients(&mut |parameter| all.push(bits(&parameter.grad)));
        return (score, all);
    }
    let (output, saved) = stage.forward(ctx, input).unwrap();
    let grad = of_one.take(output).unwrap();
    let score = of_one.score().expect("the CPU gives it at once");
    let Some(grad) = grad else { return (score, Vec::new()) };
    let input_grad = stage.backward(saved, grad).unwrap().unwrap();
    let mut all = vec![bits(input_grad.f32())];
    stage.visit_gradients(&mut |parameter| all.push(bits(&parameter.grad)));
    (score, all)
}

#[test]
fn rows_that_come_some_at_a_time_give_the_same_bits() {
    for loss in [Preference::dpo(0.1).unwrap().smoothed(0.1).unwrap(), Preference::ipo(0.2).unwrap()] {
        for train in [true, false] {
            let whole = through_head(&loss, false, train);
            assert_eq!(whole, through_head(&loss, true, train), "{loss:?}, training {train}");
            assert_eq!(whole.1.is_empty(), !train);
        }
    }
}

#[test]
fn a_reward_is_at_the_last_token_of_an_answer() {
    // The label of a token is the one after it. The second row is full: its last token is not there.
    let (a, b) = (7, 8);
    let target = vec![NONE, a, b, NONE, 0, 0, a, a, a, b, 0, 0];
    let target = Tensor::from_ids(&[2, 6], target).unwrap();
    let rewards = Tensor::from_vec(&[2, 4, 1], vec![9.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0, 0.25]).unwrap();
    let (score, grad) = PairwiseReward::default().forward(rewards, target).unwrap();
    let slope = (1.0 / (1.0 + 0.75_f64.exp())) as f32;
    near(score.sum, (1.0 + (-0.75_f64).exp()).ln(), "the loss");
    assert_eq!(score.metrics.get("margin"), Some(0.75));
    assert_eq!(score.metrics.get("chosen"), Some(1.0));
    assert_eq!(score.metrics.get("rejected"), Some(0.25));
    for (at, grad) in grad.f32().iter().enumerate() {
        let expected = [(3, -slope), (7, slope)].into_iter().find(|(place, _)| *place == at);
        near(f64::from(*grad), f64::from(expected.map_or(0.0, |(_, slope)| slope)), "a gradient");
    }
}

/// TRL: `logsigmoid` of the differences, and its gradients.
#[test]
fn rewards_are_learnt_as_in_trl() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden/preferences/losses.json");
    let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let golden = &golden["rewards"];
    let numbers = |key: &str| -> Vec<f64> {
        let pairs = golden[key].as_array().unwrap().iter();
        pairs.flat_map(|pair| pair.as_array().unwrap()).map(|number| number.as_f64().unwrap()).collect()
    };
    let rewards: Vec<f32> = numbers("rewards").iter().map(|reward| *reward as f32).collect();
    let rows = rewards.len();
    let target = Tensor::from_ids(&[rows, 3], [1, 0, 0].repeat(rows)).unwrap();
    let rewards = Tensor::from_vec(&[rows, 1, 1], rewards).unwrap();
    let (score, grad) = PairwiseReward::default().forward(rewards, target).unwrap();
    near(score.mean(), golden["loss"].as_f64().unwrap(), "the loss");
    for (got, expected) in grad.f32().iter().zip(numbers("grad")) {
        near(f64::from(*got) / score.weight, expected, "a gradient");
    }
}

#[test]
fn what_is_no_pair_is_refused() {
    let mut dpo = Preference::dpo(0.1).unwrap();
    let check = |output: Shape, target: Shape| {
        Preference::dpo(0.1).unwrap().check(&output, &target).map_err(|error| error.to_string())
    };
    assert_eq!(check(Shape::f32(&[4, 8, 10]), Shape::ids(&[4, 10])), Ok(()));
    let expected = |rows: usize, target: &str| {
        Err(format!(
            "loss: expected ids[{rows}, 10] as the target, with an even number of rows, got {target}: an \
             answer that is preferred and one that is rejected follow each other, and two ids with a \
             reference follow the labels of each"
        ))
    };
    assert_eq!(check(Shape::f32(&[3, 8, 10]), Shape::ids(&[3, 10])), expected(3, "ids[3, 10]"));
    assert_eq!(check(Shape::f32(&[4, 8, 10]), Shape::ids(&[4, 8])), expected(4, "ids[4, 8]"));
    assert_eq!(check(Shape::f32(&[4, 8, 10]), Shape::f32(&[4, 10])), expected(4, "f32[4, 10]"));
    assert_eq!(
        check(Shape::f32(&[4, 10]), Shape::ids(&[4, 10])),
        Err("loss: expected f32[rows, time, classes] as the output, got f32[4, 10]".to_owned())
    );
    let error = PairwiseReward::default().check(&Shape::f32(&[4, 8, 2]), &Shape::ids(&[4, 10])).unwrap_err();
    assert_eq!(error.to_string(), "loss: expected f32[rows, time, 1] as the output, got f32[4, 8, 2]");
    let of = |target: Vec<u32>| Tensor::from_ids(&[2, 3], target).unwrap();
    let error = dpo.score(tensor("logits", &[2, 1, 4]), of(vec![1, 0, 0, 4, 0, 0])).unwrap_err();
    assert_eq!(error.to_string(), "loss: class 4 is outside 0..4");
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    for beta in [0.0, -0.1, f32::NAN, f32::INFINITY] {
        for made in [Preference::dpo(beta), Preference::ipo(beta)] {
            let error = made.unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "beta is {beta}: it must be a number above 0, such as 0.1; a larger one keeps the model \
                     nearer to its reference"
                )
            );
        }
    }
    let error = Preference::dpo(0.1).unwrap().smoothed(0.5).unwrap_err().to_string();
    assert_eq!(error, "label smoothing 0.5 is no share of wrong pairs: choose one in 0..0.5, such as 0.1");
    let error = Preference::ipo(0.1).unwrap().smoothed(0.1).unwrap_err().to_string();
    assert_eq!(error, "IPO has no label smoothing: leave it out, or take DPO");
}

/// A loss that compares rows, and cannot take some of them.
#[derive(Clone, Copy, Debug)]
struct Compares;

impl Loss<Tensor> for Compares {
    fn check(&self, _: &Shape, _: &Shape) -> Result<(), pipewright_stages::Error> {
        Ok(())
    }

    fn forward(&mut self, output: Tensor, _: Tensor) -> Result<(Score, Tensor), pipewright_stages::Error> {
        Ok((Score::default(), output))
    }

    fn compares_rows(&self) -> bool {
        true
    }
}

#[test]
fn a_loss_that_compares_rows_has_to_look_at_them() {
    let some = SomeRows { micro_batch: 0, rows: 0..1, all: 1, columns: 1, gradient: true };
    let target = Tensor::from_ids(&[1], vec![0]).unwrap();
    let error = Compares.look_at(&some, Tensor::zeros(&[1, 1]), target).unwrap_err().to_string();
    assert_eq!(error, "loss: it compares rows, and cannot look at some of them: it lacks `Loss::look_at`");
}
