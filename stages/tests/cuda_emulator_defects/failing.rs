//! Calls that fail because a test wants it.

use cudarc::driver::result;
use cudarc::driver::sys::CUresult;

use crate::machine::{Machine, event, stream};
use emulator::{answer, tell};

#[test]
fn the_nth_call_of_a_function_fails_and_says_so() {
    let Some(_machine) = Machine::alone() else { return };
    let stream = stream();
    // SAFETY: the stream is alive.
    let allocate = || unsafe { result::malloc_async(stream, 4) };
    for (setting, code) in [
        ("cuMemAllocAsync:3", CUresult::CUDA_ERROR_UNKNOWN),
        ("cuMemAllocAsync:3:2", CUresult::CUDA_ERROR_OUT_OF_MEMORY),
    ] {
        tell("pw_fail", setting);
        let calls = [allocate(), allocate(), allocate(), allocate()];
        assert_eq!(calls.map(|call| call.is_ok()), [true, true, false, true]);
        assert_eq!(answer("pw_failed"), "cuMemAllocAsync");
        tell("pw_fail", setting);
        let failed = (0..3).find_map(|_| allocate().err()).expect("the third");
        assert_eq!(failed.0, code);
    }
    let text = result_text(CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(text, "the emulator was told to let cuMemAllocAsync fail");
    tell("pw_fail", "");
}

fn result_text(code: CUresult) -> String {
    let error = result::DriverError(code);
    let text = error.error_string().expect("a text");
    text.to_string_lossy().into_owned()
}

#[test]
fn the_nth_call_of_any_function_fails() {
    let Some(_machine) = Machine::alone() else { return };
    let stream = stream();
    let mut failed = Vec::new();
    for n in 1..=3 {
        tell("pw_fail", &format!("any:{n}"));
        // SAFETY: the stream is alive.
        let _ = unsafe { result::malloc_async(stream, 4) };
        let _ = result::mem_get_info();
        failed.push(answer("pw_failed"));
    }
    tell("pw_fail", "");
    assert_eq!(failed, ["cuMemAllocAsync", "cuMemGetInfo_v2", ""]);
}

#[test]
fn what_is_left_is_told() {
    let Some(_machine) = Machine::alone() else { return };
    let before = answer("pw_left");
    let event = event();
    let with = answer("pw_left");
    assert_ne!(before, with);
    assert!(with.contains(" events"), "{with:?}");
    // SAFETY: nobody uses it.
    unsafe { result::event::destroy(event) }.expect("an event");
    assert_eq!(answer("pw_left"), before);
}
