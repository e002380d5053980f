//! Settings that cannot be are refused when a run begins, and cost no step when they show later.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Refuses a run, and shows that nothing has changed.
fn refused(place: &Place, run: Run) -> Error {
    let mut pipeline = pipeline();
    let error = run.train(&mut pipeline).expect_err("it cannot be");
    assert!(!place.path().exists(), "nothing was made");
    pipeline.step().expect("the pipeline goes on");
    error
}

#[test]
fn a_run_that_keeps_no_checkpoint_is_refused() {
    let place = Place::new();
    let error = refused(&place, place.run().steps(4).save_every(1).keep(0));
    assert!(matches!(error, Error::Run(_)));
    assert_eq!(
        error.to_string(),
        "a run that keeps 0 checkpoints leaves nothing to resume from: keep 1 or more"
    );
}

#[test]
fn a_validation_without_a_source_is_refused() {
    let place = Place::new();
    let error = refused(&place, place.run().steps(4).validate(Validation::on_each(Vec::new())));
    assert_eq!(error.to_string(), "a validation has no data: give it a source");
}

/// Rows that grow wider once `good` evaluations have asked for their shapes.
struct Widening {
    asked: AtomicUsize,
    good: usize,
}

impl Widening {
    fn after(good: usize) -> Validation {
        let asked = AtomicUsize::new(0);
        Validation::new(Arc::new(Self { asked, good })).every(2)
    }
}

impl DataSource for Widening {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        Times(2.0).micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        let wide = self.asked.fetch_add(1, Ordering::SeqCst) >= self.good;
        let shape = Shape::f32(&[4, if wide { 7 } else { 1 }]);
        (shape, shape)
    }
}

#[test]
fn a_validation_that_cannot_be_is_refused_before_the_first_step() {
    let place = Place::new();
    let none = Validation::new(Arc::new(Times(2.0))).micro_batches(0);
    let error = refused(&place, place.run().validate(none.every(50)));
    assert!(matches!(error, Error::Call(_)));
    assert_eq!(error.to_string(), "an evaluation of 0 micro-batches has no loss: ask for 1 or more");
    let error = refused(&place, place.run().validate(Widening::after(0).every(50)));
    assert!(matches!(error, Error::Launch(_)));
    assert!(error.to_string().starts_with("stage 0 (rank 0) refuses what the data gives, "), "{error:?}");
}

#[test]
fn a_validation_that_is_refused_on_the_way_costs_no_steps() {
    let place = Place::new();
    let heard = Rc::new(RefCell::new(None));
    let note = Rc::clone(&heard);
    let run = place.run().steps(9).validate(Widening::after(1));
    let listen = move |event: &Event<'_>| {
        if let Event::Failed(failed) = event {
            *note.borrow_mut() = failed.last.clone();
        }
    };
    let error = run.on(listen).train(&mut pipeline()).expect_err("it is refused");
    assert!(matches!(error, Error::Launch(_)), "{error:?}");
    assert_eq!(place.checkpoints(), [2]);
    assert_eq!(*heard.borrow(), Some(place.dir().checkpoint(2)));
    assert_eq!(place.read("metrics.jsonl").lines().count(), 2);
}
