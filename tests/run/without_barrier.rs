//! Runs whose steps have no barrier: the same lines, checkpoints and weights as with one.

use super::*;

const STEPS: u64 = 23;

fn without_barrier() -> Pipeline<Sequential> {
    builder().barrier(false).launch().expect("the parts fit")
}

/// What a run tells, and its checkpoints.
fn told(mut pipeline: Pipeline<Sequential>) -> (Vec<String>, Vec<(PathBuf, Vec<u8>)>) {
    let place = Place::new();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&heard);
    let run = place.run().steps(STEPS).save_every(5).keep(9).validate(validation(2.0).every(7));
    let run = run.on(move |event| {
        note.borrow_mut().push(match event {
            // That depends on how fast the disk is.
            Event::Waits { .. } => return,
            Event::Step(report) => format!("step {} {} {}", report.step, report.loss, report.grad_norm),
            Event::Validation { step, evaluation, best, .. } => {
                format!("validation {step} {} {best}", evaluation.loss)
            }
            Event::Checkpoint { step, .. } => format!("checkpoint {step}"),
            Event::End(outcome) => format!("end {} {:?}", outcome.steps, outcome.warnings),
            other => format!("{other:?}"),
        });
    });
    run.train(&mut pipeline).expect("it trains");
    let checkpoints = contents(&place.path().join("checkpoints")).into_iter();
    let name = |path: PathBuf| path.strip_prefix(place.path()).expect("inside").to_owned();
    (heard.take(), checkpoints.map(|(path, bytes)| (name(path), bytes)).collect())
}

#[test]
fn a_run_is_told_and_saved_as_with_a_barrier() {
    let (with, without) = (told(pipeline()), told(without_barrier()));
    // A checkpoint on its way is told when it is on the disk, which is later or earlier.
    let [steps, same] = [&with, &without].map(|(told, _)| {
        let mut told = told.clone();
        told.sort_unstable();
        told
    });
    assert_eq!(steps, same);
    assert_eq!(with.1.len(), 3 * 8, "checkpoints after 5, 7, 10, 14, 15, 20, 21 and 23 steps");
    assert!(with.1 == without.1);
}

#[test]
fn a_run_that_is_stopped_while_the_next_step_runs_ends_after_it_and_can_be_resumed() {
    let whole = told(pipeline()).1;
    let place = Place::new();
    let run = place.run().steps(STEPS).save_every(0).on(|event| match event {
        Event::Step(report) if report.step == 9 => Next::Stop,
        _ => Next::Continue,
    });
    let outcome = run.train(&mut without_barrier()).expect("it trains");
    assert_eq!(outcome.ended, Ended::Stopped);
    assert!((11..=13).contains(&outcome.steps), "{} steps", outcome.steps);
    assert_eq!(place.checkpoints(), [outcome.steps]);
    let run = place.run().steps(STEPS).save_every(0).resume(Resume::IfThere);
    run.train(&mut without_barrier()).expect("it trains");
    let last = |all: &[(PathBuf, Vec<u8>)]| {
        let of_last = all.iter().filter(|(path, _)| path.to_string_lossy().contains("step-00000023"));
        let weights = of_last.filter(|(path, _)| path.ends_with("model.safetensors"));
        weights.map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>()
    };
    let resumed = contents(&place.path().join("checkpoints"));
    assert_eq!(last(&whole).len(), 1);
    assert!(last(&resumed) == last(&whole));
}

#[test]
fn a_loss_that_is_not_finite_ends_a_run_at_its_step() {
    let place = Place::new();
    let data = |factor: f32| {
        let mut builder = builder();
        builder = builder.data(Arc::new(Spoilt(factor))).barrier(false);
        builder.launch().expect("the parts fit")
    };
    let error = place.run().steps(STEPS).save_every(4).train(&mut data(2.0)).expect_err("a loss is infinite");
    assert!(matches!(error, Error::NotFinite { step: 6, .. }), "{error}");
    assert_eq!(place.checkpoints(), [4]);
}

/// Data with an infinite target in step 6.
struct Spoilt(f32);

impl DataSource for Spoilt {
    fn micro_batch(&self, step: u64, micro_batch: MicroBatch) -> Result<(Tensor, Tensor)> {
        let factor = if step == 6 { f32::INFINITY } else { self.0 };
        Times(factor).micro_batch(step, micro_batch)
    }

    fn shapes(&self) -> (Shape, Shape) {
        Times(self.0).shapes()
    }
}
