//! What a step reports, what an evaluation returns, and what happens with numbers that are not finite.

use pipewright::error::{Found, NotFinite};
use pipewright::id::StageId;

use super::*;

#[test]
fn every_rank_reports_its_time_and_memory() {
    let recipe = recipe(2, false, 4);
    let mut pipeline = recipe.pipeline(2, "1f1b");
    for step in 0..3 {
        let report = pipeline.step().expect("the step succeeds");
        assert_eq!((report.step, report.ranks.len(), report.weight), (step, 2, 64.0));
        assert!(report.loss > 1.0 && report.grad_norm > 0.0 && report.metrics.get("accuracy").is_some());
        for rank in &report.ranks {
            assert!(rank.busy > 0.0 && rank.waiting > 0.0 && rank.peak_bytes > 0);
            assert!(rank.busy + rank.waiting <= report.seconds);
            assert!((rank.bubble - (1.0 - rank.busy / report.seconds)).abs() < 1e-9);
        }
        has(&report, &[&format!("loss {:.4}", report.loss), "bubble"]);
    }
}

/// The peak activation bytes of each rank.
fn peaks(layers: usize, stages: u32, schedule: &str, micro_batches: u32) -> Vec<u64> {
    let recipe = recipe(layers, false, micro_batches);
    let report = recipe.pipeline(stages, schedule).step().expect("the step succeeds");
    report.ranks.iter().map(|rank| rank.peak_bytes).collect()
}

#[test]
fn a_rank_holds_as_many_micro_batches_as_its_schedule_says() {
    let gpipe: Vec<Vec<u64>> = (1..=8).map(|micro_batches| peaks(6, 4, "gpipe", micro_batches)).collect();
    let one_f_one_b = peaks(6, 4, "1f1b", 8);
    for rank in 0..4 {
        let each = gpipe[7][rank] - gpipe[6][rank];
        assert!(each > 0, "rank {rank}: GPipe holds every micro-batch");
        assert_eq!(gpipe[3][rank] - gpipe[2][rank], each, "rank {rank}: each is as large as the others");
        let in_flight = 4 - rank;
        assert_eq!(one_f_one_b[rank], gpipe[in_flight - 1][rank], "1F1B: rank {rank} holds {in_flight}");
    }
}

#[test]
fn micro_batches_in_flight_are_those_of_the_plan() {
    for (schedule, planned) in [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])] {
        let report = recipe(6, false, 8).pipeline(4, schedule).step().expect("the step succeeds");
        let in_flight: Vec<u32> = report.ranks.iter().map(|rank| rank.in_flight).collect();
        assert_eq!(in_flight, planned, "{schedule}");
    }
}

#[test]
fn evaluation_takes_any_number_of_micro_batches_and_changes_nothing() {
    let recipe = recipe(2, true, 3);
    let source = RandomTokens { rows: 2, seq: 8, vocab: 17 };
    let mut plain = recipe.plain();
    for stages in [1, 2, 4] {
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        let before = pipeline.weights_hash().expect("it runs");
        for count in [1, 3, 7] {
            let mut total = Score::default();
            for micro_batch in 0..count {
                let (input, target) = source.micro_batch(0, MicroBatch(micro_batch)).expect("data");
                let at = ForwardContext { step: 0, micro_batch, mode: Mode::Evaluate };
                let (output, _) = plain.stage.forward(at, input).expect("forward");
                total.add(CrossEntropy::default().score(output, target).expect("score"));
            }
            let got = pipeline.evaluate(Arc::new(source), count).expect("it evaluates");
            assert_eq!((got.loss, got.metrics, got.weight), (total.mean(), total.metrics, total.weight));
        }
        assert_eq!(pipeline.weights_hash().expect("it runs"), before);
    }
}

#[test]
fn evaluation_between_steps_leaves_training_as_it_was() {
    let recipe = recipe(2, false, 3);
    let mut pipeline = recipe.pipeline(3, "1f1b");
    for _ in 0..3 {
        pipeline.step().expect("the step succeeds");
        pipeline.evaluate(Arc::clone(&recipe.data), 2).expect("it evaluates");
    }
    assert_eq!(pipeline.weights_hash().expect("it runs"), recipe.plain_hash(3));
}

#[test]
fn a_loss_that_is_not_finite_stops_before_the_update_and_says_where_it_began() {
    for stages in [1, 2, 4] {
        let mut recipe = recipe(3, false, 2);
        recipe.learning_rate = LearningRate::Constant(1e30);
        recipe.clip = None;
        let mut pipeline = recipe.pipeline(stages, "1f1b");
        let error = loop {
            if let Err(error) = pipeline.step() {
                break error;
            }
        };
        let Error::NotFinite { step, what } = &error else { panic!("{error}") };
        let NotFinite::Loss { micro_batch: MicroBatch(0), found: Some(found) } = what.as_ref() else {
            panic!("{error}")
        };
        assert!(*step >= 1 && found.stage.0 < stages, "{error}");
        let text = error.to_string();
        let layer = found.layer.as_ref().expect("a stage of layers names the layer");
        let what = match &found.what {
            Found::Parameter { name } => format!("parameter `{name}`"),
            Found::Output => "its output".to_owned(),
            other => panic!("{other}"),
        };
        let start = format!(
            "step {step}: the loss of micro-batch 0 is not finite; first in stage {}, {layer}: {what} is not \
             finite",
            found.stage
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(
            text.ends_with("from before this step; a lower learning rate or clipped gradients often help"),
            "{text}"
        );
        assert_eq!(pipeline.next_step(), *step, "the step does not count");
        pipeline.weights_hash().expect("the pipeline still runs");
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_named_by_its_parameter() {
    // The product of these inputs with a gradient is infinite.
    let huge = |number| Tensor::from_vec(&[1, 1], vec![number]).expect("one number");
    let build: StageBuilder<Sequential> = Box::new(|| {
        let layer = Linear::new("fc", [1, 1], Init::Zeros, 0);
        Ok(Sequential::new(vec![Box::new(layer)]))
    });
    let mut pipeline = Pipeline::builder()
        .schedule(Schedule::gpipe(1, 1).expect("the sizes fit"))
        .stages(vec![build])
        .loss(MeanSquaredError::default())
        .data(Arc::new(Fixed(huge(f32::MAX), huge(2.0))))
        .pin(false)
        .launch()
        .expect("it starts");
    let error = pipeline.step().expect_err("the gradient is infinite");
    assert_eq!(
        error.to_string(),
        "step 0: the gradient is not finite, first at `fc.weight` (stage 0); the weights are those from \
         before this step; a lower learning rate or clipped gradients often help"
    );
    let Error::NotFinite { what, .. } = error else { panic!("{error}") };
    let (parameter, stage) = ("fc.weight".to_owned(), StageId(0));
    assert_eq!(*what, NotFinite::Gradient { parameter, stage });
}

#[test]
fn a_token_outside_the_vocabulary_is_named_with_rank_and_action() {
    let mut recipe = recipe(2, false, 2);
    recipe.data = Arc::new(RandomTokens { rows: 2, seq: 8, vocab: 400 });
    let error = recipe.pipeline(2, "gpipe").step().expect_err("17 tokens are known");
    let text = error.to_string();
    assert!(
        text.starts_with("rank 0, action 0 (0F0): embed: token ") && text.ends_with("is outside 0..17"),
        "{text}"
    );
}

#[test]
fn a_schedule_that_takes_micro_batches_out_of_order_gives_the_same_bits() {
    let recipe = recipe(2, true, 3);
    let rows = "0F0,0F2,0F1,0I1,0I2,0B0,0W2,0W1\n1F2,1F0,1F1,1B1,1I2,1B0,1W2";
    let mine = Schedule::from_csv("mine", rows, None, LinkKind::Ordered).expect("a valid order").schedule;
    let mut pipeline = recipe.launch(mine).expect("it starts");
    assert_eq!(trained(&mut pipeline, 2), recipe.plain_hash(2));
}
