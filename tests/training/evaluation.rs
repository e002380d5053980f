//! An evaluation of any length holds only few micro-batches at a time.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use pipewright::schedule::Placement;
use pipewright::stages::loss::{Metric, Metrics};

use super::*;

/// How many micro-batches have passed the first stage but not the last: now, and at most.
#[derive(Debug, Default)]
struct UnderWay {
    now: AtomicI64,
    most: AtomicI64,
}

/// Two stages that pass on what they get, on two ranks: the first is quick, the last one slow.
fn pair(first_rank: u32, under_way: &Arc<UnderWay>) -> Pipeline<PassOn> {
    let placement = Placement::new(vec![Rank(first_rank), Rank(1 - first_rank)]).expect("two ranks");
    let row = |stage| vec![(Pass::Forward, Cell::new(stage, 0)), (Pass::Backward, Cell::new(stage, 0))];
    let rows = vec![row(first_rank), row(1 - first_rank)];
    let schedule = Schedule::from_passes("pair", placement, 1, rows).expect("a valid order");
    let (one, other) = (Arc::clone(under_way), Arc::clone(under_way));
    let first = PassOn::calling(move |_| {
        let now = one.now.fetch_add(1, Ordering::SeqCst) + 1;
        one.most.fetch_max(now, Ordering::SeqCst);
    });
    let last = PassOn::calling(move |_| {
        std::thread::sleep(Duration::from_millis(1));
        other.now.fetch_sub(1, Ordering::SeqCst);
    });
    Pipeline::builder()
        .schedule(schedule)
        .stages(vec![first, last])
        .loss(MeanSquaredError::default())
        .data(Arc::new(Ones))
        .pin(false)
        .launch()
        .expect("it starts")
}

#[test]
fn what_cannot_be_evaluated_is_refused_and_the_pipeline_goes_on() {
    let mut pipeline = pair(0, &Arc::default());
    let error = pipeline.evaluate(Arc::new(Ones), 0).expect_err("nothing to evaluate");
    assert_eq!(error.to_string(), "an evaluation of 0 micro-batches has no loss: ask for 1 or more");
    let crooked = Fixed(Tensor::zeros(&[2]), Tensor::zeros(&[1]));
    let error = pipeline.evaluate(Arc::new(crooked), 3).expect_err("wrong shapes");
    let expected = "the loss refuses an output of f32[2] with targets of f32[1]: ";
    assert!(error.to_string().starts_with(expected), "{error}");
    pipeline.step().expect("it goes on");
    pipeline.evaluate(Arc::new(Ones), 3).expect("it goes on");
}

#[test]
fn forward_passes_alone_are_a_checked_schedule() {
    let placement = || Placement::looped(2, 1).expect("two ranks");
    let cells = |stage| vec![Cell::new(stage, 0), Cell::new(stage, 1)];
    let schedule = Schedule::from_forwards("evaluation", placement(), 2, vec![cells(0), cells(1)]);
    let schedule = schedule.expect("all cells are there");
    let texts = |rank| -> Vec<String> {
        let actions = schedule.actions(Rank(rank)).iter();
        actions.map(ToString::to_string).collect()
    };
    assert_eq!(texts(0), ["0F0", "0SEND_F0", "0F1", "0SEND_F1"]);
    assert_eq!(texts(1), ["1RECV_F0", "1F0", "1RECV_F1", "1F1"]);
    let mut short = vec![cells(0), cells(1)];
    short[1].pop();
    let error = Schedule::from_forwards("evaluation", placement(), 2, short).expect_err("one is missing");
    assert_eq!(error.to_string(), "rank 1 lacks 1F1");
}

#[test]
fn a_quick_first_stage_waits_for_a_slow_last_one() {
    for first_rank in [0, 1] {
        let under_way = Arc::default();
        let mut pipeline = pair(first_rank, &under_way);
        let result = pipeline.evaluate(Arc::new(Ones), 100).expect("it evaluates");
        assert_eq!((result.loss, result.weight), (0.0, 100.0));
        let most = under_way.most.load(Ordering::SeqCst);
        assert!(most <= 5, "at most four and the one that is counted twice, got {most}");
    }
}

#[test]
fn an_evaluation_is_told_as_its_loss_and_its_metrics() {
    const ERROR: Metric = Metric::mean("absolute_error");
    let metrics = [Metric::ACCURACY.of(1.0, 4.0), ERROR.of(1.0, 8.0)];
    let mut evaluation = pipewright::Evaluation {
        loss: 0.51234,
        metrics: Score::default().with(metrics).metrics,
        weight: 4.0,
    };
    assert_eq!(evaluation.to_string(), "loss 0.5123  accuracy 25.0 %  absolute_error 0.1250");
    evaluation.metrics = Metrics::default();
    assert_eq!(evaluation.to_string(), "loss 0.5123");
}
