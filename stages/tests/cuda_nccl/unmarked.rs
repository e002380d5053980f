//! A transfer that is queued, but whose memory cannot be marked.

use std::process::Command;

use super::*;

/// Set in the process where a call fails.
const FAILS: &str = "PIPEWRIGHT_TEST_UNMARKED";

/// Whether this process is the one where a call fails. Another one runs the test again, alone.
fn fails_here(test: &str) -> bool {
    if !matches!(emulator::start(), emulator::Cuda::Emulated(_)) {
        return false;
    }
    if std::env::var_os(FAILS).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(FAILS, "1")
        .output()
        .expect("a process");
    assert!(output.status.success(), "{output:?}");
    false
}

/// The other member receives, and gives up after a while if nothing comes.
fn receives_for_a_while(stage: &mut Sequential, communicator: &Communicator) {
    let connected = communicator.connect(&[], &[0], PATIENCE, always);
    connected.expect("connected");
    let tensor = communicator.receive(&[COUNT], DType::F32, 0).expect("queued");
    let aborter = communicator.aborter();
    let alarm = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        aborter.abort();
    });
    let tensor = stage.receive(tensor).expect("queued");
    tensor.to(Place::default()).expect("whatever it holds");
    alarm.join().expect("no panic");
}

#[test]
fn memory_of_a_send_that_cannot_be_marked_is_not_used_while_it_is_sent() {
    if !fails_here("unmarked::memory_of_a_send_that_cannot_be_marked_is_not_used_while_it_is_sent") {
        return;
    }
    let done = Barrier::new(2);
    members(|number, communicator| {
        let mut stage = stage(place(number, DType::F32));
        if number == 1 {
            receives_for_a_while(&mut stage, communicator);
            done.wait();
            return;
        }
        let connected = communicator.connect(&[1], &[], PATIENCE, always);
        connected.expect("connected");
        let mut computed = |round: usize| {
            let host = Tensor::from_vec(&[COUNT], numbers(round)).expect("it fits");
            let input = stage.load(host).expect("there is room");
            stage.forward(common::train(0), input).expect("forward").0
        };
        let output = computed(0);
        emulator::tell("pw_fail", "cuEventRecord:1");
        let error = communicator.send(&output, 1).expect_err("a call fails");
        assert!(error.to_string().contains("cuEventRecord"), "{error}");
        drop(output);
        // They use that memory, which the emulator would see as a race.
        for round in 1..4 {
            let host = computed(round).to(Place::default()).expect("computed");
            assert_eq!(host.f32(), numbers(round));
        }
        done.wait();
        let said = communicator.check().expect_err("it has ended").to_string();
        assert!(said.contains("have been ended"), "{said}");
    });
}
