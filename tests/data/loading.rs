use std::sync::Mutex;

use pipewright::data::Loader;

use super::*;

/// Notes which steps it is asked for. The contents of each micro-batch are its step's number.
struct Steps {
    asked: Mutex<BTreeSet<u64>>,
    endless: bool,
}

impl DataSource for Steps {
    fn micro_batch(&self, step: u64, _: MicroBatch) -> pipewright::Result<(Tensor, Tensor)> {
        self.asked.lock().unwrap().insert(step);
        let number = || Tensor::from_ids(&[1], vec![step as u32]);
        Ok((number()?, number()?))
    }

    fn shapes(&self) -> (Shape, Shape) {
        (Shape::ids(&[1]), Shape::ids(&[1]))
    }

    fn is_endless(&self) -> bool {
        self.endless
    }
}

/// The steps that a source is asked for when steps 0 to 2 are trained. `known` is the number of steps that
/// the loader is told of.
fn asked(endless: bool, known: u64) -> Vec<u64> {
    let source = Arc::new(Steps { asked: Mutex::default(), endless });
    let (loader, mut inputs, mut targets) = Loader::start(source.clone(), 0..2).unwrap();
    for step in 0..3 {
        loader.begin(step, step + 1 < known);
        for micro_batch in (0..2).map(MicroBatch) {
            assert_eq!(inputs.take(step, micro_batch).unwrap().ids(), [step as u32]);
            assert_eq!(targets.take(step, micro_batch).unwrap().ids(), [step as u32]);
        }
    }
    drop(loader);
    let asked = source.asked.lock().unwrap().clone();
    asked.into_iter().collect()
}

#[test]
fn a_source_is_never_asked_for_a_step_that_has_not_begun() {
    assert_eq!(asked(false, 0), [0, 1, 2]);
    assert_eq!(asked(false, 3), [0, 1, 2]);
}

#[test]
fn a_source_is_read_a_step_ahead_where_another_step_is_known_to_come() {
    let source = Arc::new(Steps { asked: Mutex::default(), endless: false });
    let (loader, mut inputs, _targets) = Loader::start(source.clone(), 0..1).unwrap();
    loader.begin(0, true);
    inputs.take(0, MicroBatch(0)).unwrap();
    // It waits for nobody to begin step 1: ending the loader lets it finish what it was told.
    drop(loader);
    assert_eq!(source.asked.lock().unwrap().iter().copied().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn an_endless_source_is_read_a_step_ahead() {
    assert_eq!(asked(true, 3), [0, 1, 2, 3]);
}

#[test]
fn a_loader_that_has_ended_is_named_with_what_it_did_not_give() {
    let source = Arc::new(Steps { asked: Mutex::default(), endless: false });
    let (loader, mut inputs, _targets) = Loader::start(source, 0..1).unwrap();
    drop(loader);
    let error = inputs.take(3, MicroBatch(0)).unwrap_err();
    assert_eq!(error.to_string(), "the data loader has ended before it gave micro-batch 0 of step 3");
}
