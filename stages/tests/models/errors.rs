//! What an error of a stage keeps: its place, its kind, and the error of the user that it came from.

use std::error::Error as _;
use std::fmt;
use std::panic::catch_unwind;

use pipewright_stages::layers::{Dropout, Embedding, Linear};
use pipewright_stages::{Error, ErrorKind, Result};

use super::*;

const AT: ForwardContext = ForwardContext { step: 0, micro_batch: 0, mode: Mode::Train };

/// An error of a user.
#[derive(Debug, PartialEq)]
struct NoExpert(usize);

impl fmt::Display for NoExpert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no expert {}", self.0)
    }
}

impl std::error::Error for NoExpert {}

impl From<NoExpert> for Error {
    fn from(error: NoExpert) -> Self {
        Self::other(error)
    }
}

#[test]
fn an_error_of_the_users_own_stays_whole() {
    fn choose() -> Result<()> {
        Err(NoExpert(9))?
    }
    let error = choose().unwrap_err().at("moe");
    assert_eq!(error.to_string(), "moe: there is no expert 9");
    let source = error.source().expect("the user's error");
    assert_eq!(source.downcast_ref(), Some(&NoExpert(9)));
    let copy = error.clone();
    assert_eq!(copy, error);
    assert!(copy.source().is_some_and(|source| source.is::<NoExpert>()));
}

#[test]
fn a_text_an_io_error_and_a_boxed_one_are_errors_too() {
    let read = || -> Result<String> { Ok(std::fs::read_to_string("/no/such/file")?) };
    let error = read().unwrap_err();
    assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));
    let boxed = || -> Result<()> { Err(Box::<dyn std::error::Error + Send + Sync>::from(NoExpert(3)))? };
    let error = boxed().unwrap_err();
    assert!(error.source().is_some_and(|source| source.is::<NoExpert>()));
    assert_eq!(Error::other("no more").to_string(), "no more");
    let error = Error::new("no more");
    assert!(matches!(&error.kind, ErrorKind::Problem(text) if &**text == "no more"));
    assert_eq!(error.to_string(), "no more");
    assert!(error.source().is_none());
}

#[test]
fn a_refusal_has_its_layer_and_its_numbers() {
    let error = Dropout::new("drop", 1.5, 0).unwrap_err();
    assert_eq!(error.place, "drop");
    assert_eq!(
        error.kind.to_string(),
        "dropout 1.5 is not a probability below 1: choose one in 0..1, such as 0.1"
    );
    let error = Linear::new("fc", [2, 3], Init::Zeros, 0)
        .with_weight(Parameter::new("table", &[3, 3], Init::Zeros, 0))
        .unwrap_err();
    assert_eq!(error.to_string(), "fc: expected a weight of [3, 2], got `table` of [3, 3]");
    let error = Tensor::from_vec(&[2], vec![1.0; 3]).unwrap_err();
    assert_eq!(error.to_string(), "3 elements do not fill f32[2], which has 2");
    let mut stage = Sequential::new(vec![Box::new(Embedding::new("embed", 5, 2, 4, 0))]);
    let input = Tensor::from_ids(&[1, 2], vec![4, 5]).unwrap();
    let error = stage.forward(AT, input).unwrap_err();
    assert_eq!(error.to_string(), "embed: token 5 is outside 0..5");
}

#[test]
fn a_parameter_that_is_not_finite_is_named_with_its_layer() {
    let mut stage = Sequential::new(vec![Box::new(Linear::new("fc", [1, 1], Init::Ones, 0))]);
    stage.parameters()[0].value[0] = f32::NAN;
    let at = ForwardContext { mode: Mode::Probe, ..AT };
    let error = stage.forward(at, Tensor::zeros(&[1, 1])).unwrap_err();
    assert_eq!(error.to_string(), "fc: parameter `fc.weight` is not finite (NaN or infinite)");
    assert!(matches!(&error.kind, ErrorKind::ParameterNotFinite(name) if &**name == "fc.weight"));
}

/// More than a process can address.
const WIDE: usize = 1 << 23;

#[test]
fn a_layer_whose_output_has_no_memory_is_named() {
    let layer = Linear::new("wide", [1, WIDE], Init::Zeros, 0).without_bias();
    let mut stage = Sequential::new(vec![Box::new(layer)]);
    let error = stage.forward(AT, Tensor::zeros(&[WIDE, 1])).unwrap_err();
    assert_eq!(error.place, "wide");
    assert!(matches!(&error.kind, ErrorKind::OutOfMemory(lack) if lack.device == Device::Cpu));
    let text = error.to_string();
    assert!(
        text.starts_with(
            "wide: out of memory on cpu: 256.00 TiB wanted; less is needed with a smaller micro-batch"
        ),
        "{text}"
    );
}

#[test]
fn a_tensor_that_has_no_memory_is_a_panic_that_says_so_and_not_the_end_of_the_process() {
    let panic = catch_unwind(|| Tensor::scratch(&[WIDE, WIDE])).unwrap_err();
    let text = panic.downcast_ref::<String>().expect("a text");
    assert!(text.starts_with("out of memory on cpu: 256.00 TiB wanted; "), "{text}");
}
