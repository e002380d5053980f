//! Metrics of a loss are wherever a run tells numbers.

use pipewright::stages::Result;
use pipewright::stages::loss::{Metric, Score};
use serde_json::Value;

use super::*;

/// The squared error, and under this name the mean distance of the output from the target.
#[derive(Clone, Debug)]
struct Distance(Metric);

impl Loss<Tensor> for Distance {
    fn check(&self, output: &Shape, target: &Shape) -> Result<()> {
        MeanSquaredError::default().check(output, target)
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> Result<(Score, Tensor)> {
        let pairs = output.f32().iter().zip(target.f32());
        let distance: f64 = pairs.map(|(a, b)| f64::from((a - b).abs())).sum();
        let (score, grad) = MeanSquaredError::default().forward(output, target)?;
        Ok((score.with([self.0.of(distance, score.weight)]), grad))
    }

    fn score(&mut self, output: Tensor, target: Tensor) -> Result<Score> {
        Ok(self.forward(output, target)?.0)
    }
}

fn lines(place: &Place) -> Vec<Value> {
    let lines = place.read("metrics.jsonl");
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_metric_of_ones_own_is_in_the_lines_for_tensorboard_and_on_the_screen() {
    const DISTANCE: Metric = Metric::mean("distance");
    let place = Place::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    let listener = Rc::clone(&told);
    let mut pipeline = pipeline_of(Times(2.0), Distance(DISTANCE));
    let run = place.run().steps(4).validate(validation(2.0).every(2));
    run.tensorboard(true)
        .on(move |event: &Event<'_>| {
            if let Event::Step(report) = event {
                listener.borrow_mut().push((report.metrics, report.to_string()));
            }
        })
        .train(&mut pipeline)
        .unwrap();
    let (lines, scalars) = (lines(&place), tensorboard::read(&place.path().join("tensorboard")));
    for (step, (metrics, shown)) in told.borrow().iter().enumerate() {
        let value = metrics.get("distance").unwrap();
        assert!(0.0 < value && value < 2.0);
        assert_eq!(lines[step]["distance"], value);
        assert_eq!(scalars["distance/training"][&(step as u64)], value as f32);
        has(&shown, &[&format!("  distance {value:.4}  grad norm ")]);
    }
    let after = pipeline.evaluate(Arc::new(Times(2.0)), 2).unwrap().metrics;
    assert_eq!(lines[3]["validation_distance"], after.get("distance").unwrap());
    assert_eq!(scalars["distance/validation"].len(), 2);
    assert!(lines[0].get("validation_distance").is_none());
}

#[test]
fn a_loss_without_metrics_shows_none_and_trains_the_same_weights() {
    let place = Place::new();
    place.train(2);
    assert!(lines(&place).iter().all(|line| line.get("accuracy").is_none()));
    let (mut plain, mut measured) = (pipeline(), pipeline_of(Times(2.0), Distance(Metric::mean("distance"))));
    let reports = [plain.step().unwrap(), measured.step().unwrap()];
    assert_eq!(reports[0].metrics.iter().count(), 0);
    assert_eq!(reports[0].loss.to_bits(), reports[1].loss.to_bits());
    assert_eq!(plain.weights_hash().unwrap(), measured.weights_hash().unwrap());
}

#[test]
fn a_metric_with_the_name_of_another_number_is_refused() {
    let place = Place::new();
    let run = place.run().steps(1).validate(validation(2.0));
    run.train(&mut pipeline_of(Times(2.0), Distance(Metric::mean("distance")))).unwrap();
    let line = &lines(&place)[0];
    let written = line.as_object().unwrap().keys().map(String::as_str);
    let sometimes = ["reducing", "shard_waiting", "loss_step", "staleness", "validation_distance"];
    for name in written.filter(|name| *name != "distance").chain(sometimes) {
        let place = Place::new();
        let loss = Distance(Metric::mean(name));
        let error = place.run().steps(1).train(&mut pipeline_of(Times(2.0), loss)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "a metric of the loss is named `{name}`, and metrics.jsonl has another number of that name: \
                 give the metric another name"
            )
        );
    }
}
