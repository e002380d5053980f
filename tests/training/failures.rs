//! If a rank fails or panics, all ranks stop, and the caller learns where and why.

use pipewright::stages::{Error as StageError, Result as StageResult};

use super::*;

/// The fault of a [`Faulty`] stage.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    Fails,
    Panics,
    PanicsBackward,
    GivesShape(&'static [usize]),
    RefusesShape,
    FailsToBuild,
}

/// A stage that passes its input on. Its fault happens at micro-batch 2 of step 1.
struct Faulty(Fault);

impl Stage for Faulty {
    type Wire = Tensor;
    type Saved = ();
    type Pending = ();

    fn output_shape(&self, input: &Shape) -> StageResult<Shape> {
        if self.0 == Fault::RefusesShape {
            return Err(StageError::shape("f32[7]", input).at("narrow"));
        }
        Ok(*input)
    }

    fn load(&mut self, input: Tensor) -> StageResult<Tensor> {
        Ok(input)
    }

    fn forward(&mut self, ctx: ForwardContext, input: Tensor) -> StageResult<(Tensor, ())> {
        if (ctx.step, ctx.micro_batch) == (1, 2) {
            match self.0 {
                Fault::Fails => return Err(StageError::other("the disk is on fire").at("h.3")),
                Fault::Panics => panic!("a bug"),
                _ => {}
            }
        }
        Ok((input, ()))
    }

    fn backward_input(&mut self, (): (), grad: Tensor) -> StageResult<(Option<Tensor>, ())> {
        assert!(self.0 != Fault::PanicsBackward, "a bug going back");
        if let Fault::GivesShape(dims) = self.0 {
            return Ok((Some(Tensor::zeros(dims)), ()));
        }
        Ok((Some(grad), ()))
    }

    fn backward_weight(&mut self, (): ()) -> StageResult<()> {
        Ok(())
    }

    fn visit_parameters<'a>(&'a mut self, _: &mut dyn FnMut(&'a mut Parameter)) {}
}

/// A loss that is the output itself.
#[derive(Clone, Debug)]
struct Sum;

impl Loss<Tensor> for Sum {
    fn check(&self, _: &Shape, _: &Shape) -> StageResult<()> {
        Ok(())
    }

    fn forward(&mut self, output: Tensor, target: Tensor) -> StageResult<(Score, Tensor)> {
        Ok((self.score(output.clone(), target)?, output))
    }

    fn score(&mut self, output: Tensor, _: Tensor) -> StageResult<Score> {
        Ok(Score::new(f64::from(output.f32()[0]), 1.0))
    }
}

fn ones() -> Arc<dyn DataSource> {
    Arc::new(Fixed(repeated(1.0, 3), repeated(1.0, 3)))
}

fn launch(ranks: u32, faulty: u32, fault: Fault) -> pipewright::Result<Pipeline<Faulty>> {
    launch_on(ones(), ranks, faulty, fault)
}

fn launch_on(
    data: Arc<dyn DataSource>,
    ranks: u32,
    faulty: u32,
    fault: Fault,
) -> pipewright::Result<Pipeline<Faulty>> {
    let stage = |index| -> StageBuilder<Faulty> {
        let fault = if index == faulty { fault } else { Fault::Nothing };
        Box::new(move || match fault {
            Fault::FailsToBuild => Err(StageError::other("no weights here")),
            fault => Ok(Faulty(fault)),
        })
    };
    Pipeline::builder()
        .schedule(Schedule::one_f_one_b(ranks, 4)?)
        .stages((0..ranks).map(stage).collect())
        .loss(Sum)
        .data(data)
        .pin(false)
        .launch()
}

/// Runs until a step fails. Where a rank waited for one that has failed, it would never return.
fn failure(pipeline: &mut Pipeline<Faulty>) -> Error {
    loop {
        if let Err(error) = pipeline.step() {
            return error;
        }
    }
}

#[test]
fn a_failing_stage_is_told_with_rank_action_and_cause() {
    for rank in 0..4 {
        let mut pipeline = launch(4, rank, Fault::Fails).expect("it starts");
        let error = failure(&mut pipeline);
        let Error::Action { at, index, action, .. } = &error else { panic!("no place: {error}") };
        assert_eq!((at.rank, action.as_str()), (Rank(rank), format!("{rank}F2").as_str()));
        assert_eq!(pipeline.schedule().actions(Rank(rank))[*index].to_string(), *action);
        let text = error.to_string();
        assert!(text.starts_with(&format!("rank {rank}, action ")), "{text}");
        assert!(text.ends_with(&format!("({rank}F2): h.3: the disk is on fire")), "{text}");
    }
}

#[test]
fn a_panicking_stage_is_told_with_rank_action_and_cause() {
    for (fault, action, cause) in [
        (Fault::Panics, "1F2", "panicked: a bug"),
        (Fault::PanicsBackward, "1B0", "panicked: a bug going back"),
    ] {
        let mut pipeline = launch(3, 1, fault).expect("it starts");
        has(&failure(&mut pipeline), &[&format!("({action}): {cause}")]);
    }
}

#[test]
fn a_gradient_of_another_shape_than_the_input_is_told_with_the_stage() {
    for dims in [&[1, 3][..], &[4], &[3, 1]] {
        let mut pipeline = launch(3, 1, Fault::GivesShape(dims)).expect("it starts");
        let error = failure(&mut pipeline);
        let got = Shape::f32(dims);
        let expected = format!("(1B0): stage 1 gave a gradient of {got} for an input of f32[3]: ");
        has(&error, &[&expected]);
    }
}

#[test]
fn data_that_fails_or_panics_is_told_with_rank_action_and_cause() {
    for (panics, cause) in
        [(false, "`words.txt` is gone"), (true, "the data source panicked: a bug in the data")]
    {
        let data = changed(ones(), move |data, step, at| {
            assert!(step == 0 || !panics, "a bug in the data");
            if step > 0 {
                return Err(pipewright::error::DataError::other("`words.txt` is gone").into());
            }
            data.micro_batch(step, at)
        });
        let mut pipeline = launch_on(data, 2, 0, Fault::Nothing).expect("it starts");
        let error = failure(&mut pipeline);
        assert_eq!(error.to_string(), format!("rank 0, action 0 (0F0): {cause}"));
    }
}

#[test]
fn a_pipeline_that_has_failed_says_why_ever_after() {
    let mut pipeline = launch(2, 0, Fault::Fails).expect("it starts");
    let first = failure(&mut pipeline);
    for error in [
        pipeline.step().expect_err("stopped"),
        pipeline.save("nowhere").expect_err("stopped"),
        pipeline.weights_hash().expect_err("stopped"),
        pipeline.evaluate(ones(), 1).expect_err("stopped"),
    ] {
        assert_eq!(error.to_string(), format!("the pipeline has stopped after a failure: {first}"));
        assert!(
            matches!(error, Error::Stopped { cause: Some(cause) } if cause == first.to_string()),
            "the cause is in a field"
        );
    }
    pipeline.stop();
}

#[test]
fn a_stage_that_refuses_a_shape_is_named_before_the_first_step() {
    let error = launch(3, 1, Fault::RefusesShape).expect_err("it refuses");
    assert!(matches!(error, Error::Launch(_)));
    assert_eq!(
        error.to_string(),
        "stage 1 (rank 1) refuses what stage 0 gives, f32[3]: narrow: expected an input of f32[7], got f32[3]"
    );
}

#[test]
fn a_stage_that_cannot_be_built_is_named_with_its_rank() {
    let error = launch(3, 2, Fault::FailsToBuild).expect_err("it cannot");
    assert!(matches!(error, Error::Launch(_)));
    assert_eq!(error.to_string(), "stage 2 (rank 2) cannot be built: no weights here");
}

#[test]
fn what_the_builder_lacks_is_named() {
    let error = Pipeline::<Faulty>::builder().launch().expect_err("nothing was given");
    assert_eq!(error.to_string(), "the pipeline has no schedule: call `.schedule(...)` before `.launch()`");
    let schedule = Schedule::gpipe(2, 2).expect("sizes");
    let error = Pipeline::<Faulty>::builder()
        .schedule(schedule)
        .data(Arc::new(Ones))
        .loss(Sum)
        .launch()
        .expect_err("no stages were given");
    has(&error, &["has 2 stages, the pipeline was given 0"]);
}
