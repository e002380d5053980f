//! An error of a user's stage stays whole on its way to the caller, and `?` takes errors of stages and of the
//! engine to each other.

use std::error::Error as _;
use std::fmt;
use std::iter::successors;

use pipewright::error::{CallError, FabricError, LaunchError};
use pipewright::id::WorldRank;
use pipewright::stages::layers::Relu;
use pipewright::stages::{self, Kept, Layer};

use super::*;

/// An error of a user.
#[derive(Debug, PartialEq)]
struct OnFire(&'static str);

impl fmt::Display for OnFire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} is on fire", self.0)
    }
}

impl std::error::Error for OnFire {}

impl From<OnFire> for stages::Error {
    fn from(error: OnFire) -> Self {
        Self::other(error)
    }
}

/// A layer of a user that fails with an error of the user.
#[derive(Debug)]
struct Burns;

impl Layer for Burns {
    fn name(&self) -> &str {
        "burns"
    }

    fn output_shape(&self, input: &Shape) -> stages::Result<Shape> {
        Ok(*input)
    }

    fn forward(&mut self, _: ForwardContext, _: Tensor) -> stages::Result<(Tensor, Kept)> {
        Err(OnFire("disk"))?
    }

    fn backward_input(&mut self, _: Kept, _: Tensor) -> stages::Result<(Option<Tensor>, Kept)> {
        unreachable!("forward fails")
    }
}

fn launch(build: impl Fn() -> stages::Result<Sequential> + Send + 'static) -> Result<Pipeline<Sequential>> {
    let builder: StageBuilder<Sequential> = Box::new(build);
    Pipeline::builder()
        .schedule(Schedule::gpipe(1, 1)?)
        .stages(vec![builder])
        .loss(MeanSquaredError::default())
        .data(Arc::new(Fixed(repeated(1.0, 2), repeated(1.0, 2))))
        .pin(false)
        .launch()
}

#[test]
fn the_error_of_a_users_layer_is_among_the_causes_of_what_a_step_gives() {
    let mut pipeline = launch(|| Ok(Sequential::new(vec![Box::new(Burns)]))).unwrap();
    let error = pipeline.step().unwrap_err();
    assert_eq!(error.to_string(), "rank 0, action 0 (0F0): burns: the disk is on fire");
    let found = successors(error.source(), |&error| error.source()).find_map(|error| error.downcast_ref());
    assert_eq!(found, Some(&OnFire("disk")));
}

/// A `main` that returns an error prints what `Debug` writes.
#[test]
fn debug_writes_the_message() {
    let relu = Relu::new("relu");
    let input = Tensor::from_vec(&[2], vec![0.0; 2]).unwrap();
    let checked = stages::testing::check_gradients(Burns, &input).unwrap_err();
    assert_eq!(format!("{checked:?}"), "burns: the disk is on fire");
    let shape = relu.output_shape(&Shape::ids(&[2])).unwrap_err();
    assert_eq!(format!("{shape:?}"), "expected an input of f32 numbers, got ids[2]");
    let engine = Error::from(shape.at("relu"));
    assert_eq!(format!("{engine:?}"), "relu: expected an input of f32 numbers, got ids[2]");
    let boxed: Box<dyn std::error::Error> = engine.into();
    assert_eq!(format!("{boxed:?}"), boxed.to_string());
}

#[test]
fn a_stage_builder_may_call_the_engine() {
    let build = || -> stages::Result<Sequential> {
        let mut stage = Sequential::new(vec![Box::new(Relu::new("relu"))]);
        Checkpoint::open(Path::new("no/such/checkpoint"))?.read_weights(stage.parameters())?;
        Ok(stage)
    };
    let direct = Checkpoint::open(Path::new("no/such/checkpoint")).unwrap_err().to_string();
    let error = launch(build).unwrap_err();
    assert_eq!(error.to_string(), format!("stage 0 (rank 0) cannot be built: {direct}"));
    let Error::Launch(error) = error else {
        panic!("{error:?}");
    };
    let LaunchError::Unbuildable { source, .. } = *error else {
        panic!("{error:?}");
    };
    assert!(source.source().is_some_and(|cause| cause.is::<Error>()));
}

#[test]
fn an_error_of_a_stage_goes_through_the_engines_and_back_as_it_was() {
    let error = stages::Error::shape("f32[3]", &Shape::f32(&[4])).at("fc");
    let there = Error::from(error.clone());
    assert_eq!(there.to_string(), error.to_string());
    assert_eq!(stages::Error::from(there), error);
}

#[test]
fn an_error_is_small_since_each_action_gives_a_result_of_it() {
    assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
    assert!(size_of::<stages::Error>() <= 48, "{}", size_of::<stages::Error>());
}

#[test]
fn what_keeps_ranks_from_starting_or_answering_is_said_without_a_pipeline_that_has_stopped() {
    let no_room = || std::io::Error::other("no room");

    let errors: [(Error, &str); 6] = [
        (
            LaunchError::no_threads(4, no_room()).into(),
            "cannot start the threads of 4 ranks: no room; start more processes, with fewer ranks each, or \
             raise the limits of threads and of open files (`ulimit -u`, `ulimit -n`)",
        ),
        (
            FabricError::no_thread(1, no_room()).into(),
            "cannot start a thread for the connection to process 1: no room",
        ),
        (
            FabricError::cannot_set_up(1, no_room()).into(),
            "cannot set up the connection to process 1: no room",
        ),
        (
            FabricError::nccl_differs(&[0, 2]).into(),
            "the processes do not agree which ranks NCCL connects: its id comes from processes 0, 2, where \
             one process gives it; start all with the same devices and the same schedule",
        ),
        (CallError::no_answer(WorldRank(3)).into(), "rank 3 does not answer: its thread has ended"),
        (Error::Stopped { cause: None }, "the pipeline has stopped"),
    ];
    for (error, said) in errors {
        assert_eq!(error.to_string(), said);
    }
}
