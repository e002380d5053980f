//! The tests again, with functions of CUDA that err as its documentation allows.

use std::env;
use std::process::Command;

use emulator::Cuda;

/// How functions of the emulator err.
const ERRORS: &str = "PIPEWRIGHT_EMULATOR_ERRORS";

/// The quick ones of kernels that call such functions. With the variable set by hand, all are run.
const TESTS: [&str; 4] =
    ["gates_over_their_range", "gelu_and_sigmoid_over_their_range", "attention::huge_scores", "loss"];

#[test]
fn bounds_hold_where_functions_err_as_far_as_is_documented() {
    if env::var_os(ERRORS).is_some() || !matches!(emulator::start(), Cuda::Emulated(_)) {
        return;
    }
    for errors in ["up", "down", "7"] {
        let output = Command::new(env::current_exe().expect("this program"))
            .args(TESTS)
            .env(ERRORS, errors)
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "errors {errors}: {text}");
    }
}
