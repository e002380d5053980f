//! Runs of several processes through the library: their settings are compared when they begin.

use pipewright::run::{Forecast, Resume, Validation};

use super::*;

fn pipeline(world: World) -> Pipeline<Sequential> {
    let builder = recipe(3, true, 4).builder(named("1f1b", 2, 4));
    builder.world(world).launch().expect("it starts")
}

/// Micro-batches of `rows` rows.
fn validation(rows: usize) -> Validation {
    let (seq, vocab) = (8, 17);
    Validation::new(Arc::new(RandomTokens { rows, seq, vocab })).micro_batches(2).every(2)
}

fn run(folder: &Path) -> Run {
    Run::new(folder.join("run")).steps(3).validate(validation(2))
}

/// Refuses a run in which process 1 changes something.
#[track_caller]
fn refused(part: &str, change: fn(Run) -> Run) {
    let folder = TempDir::new().expect("a folder");
    let said = in_processes(2, |world| {
        let mut run = run(folder.path());
        if world.process() == 1 {
            run = change(run);
        }
        let mut pipeline = pipeline(world);
        let error = run.begin(&mut pipeline).map(drop).expect_err("they differ");
        assert!(matches!(error, Error::Fabric(_)), "{error:?}");
        error.to_string()
    });
    let expected = format!("process 1 differs from process 0 in {part}: it has ");
    for said in said {
        assert!(said.starts_with(&expected), "{said}");
    }
    assert!(!folder.path().join("run").exists(), "nothing was made");
}

#[test]
fn processes_whose_runs_differ_are_refused_before_the_first_step() {
    refused("the steps of the run", |run| run.steps(4));
    refused("the steps between checkpoints", |run| run.save_every(1));
    refused("how many checkpoints are kept", |run| run.keep(1));
    refused("what to do with a run that is there", |run| run.resume(Resume::IfThere));
    refused("whether other data is allowed", |run| run.allow_other_data(true));
    refused("the micro-batches of a validation", |run| run.validate(validation(2).micro_batches(3)));
    refused("the steps between validations", |run| run.validate(validation(2).every(3)));
    refused("the data of the validation", |run| run.validate(validation(3)));
    refused("the steps to trace", |run| run.trace(1));
    refused("the forecast", |run| run.forecast(Forecast::by_passes()));
}

#[test]
fn all_processes_claim_alike_and_the_first_one_does_it() {
    let folder = TempDir::new().expect("a folder");
    for trained in [3, 0] {
        let outcomes = in_processes(2, |world| {
            let run = run(folder.path()).resume(Resume::IfThere);
            let run = run.claim(Some(&world)).expect("nobody trains there");
            let outcome = run.train(&mut pipeline(world)).expect("it trains");
            (outcome.trained, outcome.validation.map(|validation| validation.to_string()))
        });
        assert_eq!(outcomes[0], outcomes[1]);
        assert_eq!(outcomes[0].0, trained);
    }
}
