//! A transfer that is queued, but whose memory cannot be marked.

use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;

/// Set in the process where a call fails.
const FAILS: &str = "PIPEWRIGHT_TEST_UNMARKED";

/// Whether this process is the one where a call fails. Another one runs the test again, alone. There aborts
/// are as `aborts` says.
fn fails_here(test: &str, aborts: Option<&str>) -> bool {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return false;
    }
    if std::env::var_os(FAILS).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(FAILS, "1")
        .envs(aborts.map(|aborts| (ABORTS, aborts)))
        .output()
        .expect("a process");
    assert!(output.status.success(), "{output:?}");
    false
}

/// The other member receives, and gives up after a while if nothing comes. Its own calls wait while one of
/// the sender has to fail.
fn receives_for_a_while(stage: &mut Sequential, communicator: &Communicator, turns: &Barrier) {
    let connected = communicator.connect(&[], &[0], PATIENCE, always);
    connected.expect("connected");
    let tensor = communicator.receive(&[COUNT], DType::F32, 0).expect("queued");
    let tensor = stage.receive(tensor).expect("queued");
    turns.wait();
    turns.wait();
    let aborter = communicator.aborter();
    let alarm = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        aborter.abort();
    });
    tensor.to(Place::default()).expect("whatever it holds");
    alarm.join().expect("no panic");
}

/// A send fails because its memory cannot be marked. Then other memory is used. `turn` is called before the
/// call that fails and after it.
fn sends_unmarked(stage: &mut Sequential, communicator: &Communicator, turn: impl Fn()) {
    let connected = communicator.connect(&[1], &[], PATIENCE, always);
    connected.expect("connected");
    let mut computed = |round: usize| {
        let host = Tensor::from_vec(&[COUNT], numbers(round)).expect("it fits");
        let input = stage.load(host).expect("there is room");
        stage.forward(common::train(0), input).expect("forward").0
    };
    let output = computed(0);
    turn();
    emulator::tell("pw_fail", "cuEventRecord:1");
    let sent = communicator.send(&output, 1);
    // Before anything can panic: the other member waits for it.
    turn();
    let error = sent.expect_err("a call fails");
    assert!(error.to_string().contains("cuEventRecord"), "{error}");
    drop(output);
    // If they use that memory while it is sent, the emulator sees a race.
    for round in 1..4 {
        let host = computed(round).to(Place::default()).expect("computed");
        assert_eq!(host.f32(), numbers(round));
    }
}

#[test]
fn memory_of_a_send_that_cannot_be_marked_is_not_used_while_it_is_sent() {
    let name = "unmarked::memory_of_a_send_that_cannot_be_marked_is_not_used_while_it_is_sent";
    if !fails_here(name, None) {
        return;
    }
    let (turns, done) = (Barrier::new(2), Barrier::new(2));
    members(|number, communicator| {
        let mut stage = stage(place(number, DType::F32));
        if number == 1 {
            receives_for_a_while(&mut stage, communicator, &turns);
            done.wait();
            return;
        }
        sends_unmarked(&mut stage, communicator, || {
            turns.wait();
        });
        done.wait();
        let said = communicator.check().expect_err("it has ended").to_string();
        assert!(said.contains("have been ended"), "{said}");
    });
}

#[test]
fn a_send_that_cannot_be_marked_fails_also_if_no_abort_ends() {
    let name = "unmarked::a_send_that_cannot_be_marked_fails_also_if_no_abort_ends";
    if !fails_here(name, Some("never")) {
        return;
    }
    let (turns, has_failed) = (Barrier::new(2), AtomicBool::new(false));
    members(|number, communicator| {
        let mut stage = stage(place(number, DType::F32));
        if number == 0 {
            sends_unmarked(&mut stage, communicator, || {
                turns.wait();
            });
            return has_failed.store(true, Ordering::Release);
        }
        let connected = communicator.connect(&[], &[0], PATIENCE, always);
        connected.expect("connected");
        // Its own calls are over when one of the sender has to fail.
        turns.wait();
        turns.wait();
        let since = Instant::now();
        while !has_failed.load(Ordering::Acquire) {
            if since.elapsed() > PATIENCE {
                exit(1);
            }
            thread::sleep(Duration::from_millis(10));
        }
        // The transfer goes on, with the memory as it was.
        let tensor = communicator.receive(&[COUNT], DType::F32, 0).expect("queued");
        let tensor = stage.receive(tensor).and_then(|tensor| tensor.to(Place::default()));
        let is_same = tensor.expect("there").f32() == numbers(0);
        // This member's communicator cannot be aborted either.
        exit(i32::from(!is_same));
    });
}
