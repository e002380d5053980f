//! How a run of several processes ends early: all of them end, and say why.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;

/// Each of the other processes ends and names the one that was killed.
pub(super) fn others_name(victim: usize, others: Vec<Started>) {
    let numbers = (0..=others.len()).filter(|&process| process != victim);
    for (process, ended) in numbers.zip(others) {
        let said = ended.end().failed(1);
        let line = format!(
            "process {process}: error: process {victim} has stopped without saying why: it was killed, or \
             its machine or the network failed\n"
        );
        assert!(said.ends_with(&line), "{said}");
    }
}

#[test]
fn a_process_that_is_killed_ends_all_and_is_named() {
    for victim in [0, 2] {
        let place = Place::new();
        let mut started = place.start_long(4, &["--set", "pipeline.stages=4"]);
        started[victim].signal("-KILL");
        drop(started.remove(victim));
        others_name(victim, started);
    }
}

#[test]
fn an_interruption_of_one_process_saves_the_same_step_in_all() {
    for (signalled, signal) in [(0, "-INT"), (1, "-INT"), (1, "-TERM")] {
        let place = Place::new();
        let started = place.start_long(2, &[]);
        started[signalled].signal(signal);
        let ended = end_all(started);
        for process in &ended {
            assert_eq!(process.status, Some(130), "{}{}", process.stdout, process.stderr);
        }
        assert!(ended[0].stdout.contains("\ninterrupted: "), "{}", ended[0].stdout);
        assert_eq!(checkpoints(&place.path("runs/small")).len(), 1);
        let steps = place.numbers("runs/small").len().to_string();
        let resumed = place.several(2, &["--resume", "--steps", &steps]);
        let first = all_done(resumed);
        assert!(
            first.stdout.contains(&format!("resumed after {steps} steps")),
            "{}",
            first.stdout
        );
    }
}

#[test]
fn numbers_that_are_not_finite_end_all_with_the_same_words() {
    let place = Place::new();
    all_done(place.several(2, &["--steps", "2"]));
    let args = [
        "--resume",
        "--set",
        "optimizer.learning_rate=1e30",
        "--set",
        "train.validate_every=0",
    ];
    let ended = place.several(2, &args);
    let said: Vec<String> = ended.into_iter().map(|process| process.failed(1)).collect();
    assert!(
        said[0]
            .contains("process 0: error: step 3: the loss of micro-batch 0 is not finite; first in stage "),
        "{}",
        said[0]
    );
    assert!(
        said[0].contains("the newest checkpoint is runs/small/checkpoints/step-00000002"),
        "{}",
        said[0]
    );
    let line = said[0]
        .lines()
        .last()
        .unwrap()
        .replace("process 0:", "process 1:");
    assert_eq!(said[1].trim_end(), line);
}

#[test]
fn a_process_that_cannot_write_tells_the_others() {
    let place = Place::new();
    all_done(place.several(2, &["--steps", "2"]));
    // A limit on the size of files stands in for a full disk, in process 1 only.
    let address = worlds::free_address();
    let first = Started::new(place.member(0, 2, &address, &["--resume"]));
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" train my.toml --resume";
    let mut command = Command::new("sh");
    command
        .current_dir(place.path("."))
        .args(["-c", script])
        .arg(cargo_bin("pipewright"));
    for (name, value) in place.member(1, 2, &address, &[]).get_envs() {
        command.env(name, value.unwrap());
    }
    let second = Started::new(command);
    let (first, second) = (first.end().failed(1), second.end().failed(1));
    assert!(
        first.contains("process 0: error: process 1: cannot write "),
        "{first}"
    );
    assert!(second.starts_with("process 1: error: cannot write "), "{second}");
    assert_eq!(checkpoints(&place.path("runs/small")), ["step-00000002"]);
}

/// Connects to process 0 once it listens.
fn connect(address: &str) -> TcpStream {
    let since = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(since.elapsed() < PATIENCE, "it does not listen: {error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Passes one message of processes that connect on from one to the other.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream) {
    let mut head = [0; 16];
    from.read_exact(&mut head).unwrap();
    let length = u64::from_le_bytes(head[8..].try_into().unwrap());
    let mut text = vec![0; length as usize];
    from.read_exact(&mut text).unwrap();
    to.write_all(&[&head[..], &text].concat()).unwrap();
}

#[test]
fn a_process_that_is_killed_while_others_still_come_ends_those_that_wait_at_once() {
    let place = Place::new();
    let address = worlds::free_address();
    let args = ["--set", "pipeline.stages=3", "--set", "launch.deadline=300"];
    let first = Started::new(place.member(0, 3, &address, &args));
    // The second process connects through this test, which sees when it has said who it is.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = port.local_addr().unwrap().to_string();
    let second = Started::new(place.member(1, 3, &between, &args));
    let (mut from_second, _) = port.accept().unwrap();
    let to_first = connect(&address);
    pass_on(&to_first, &from_second);
    pass_on(&from_second, &to_first);
    second.signal("-KILL");
    let more = from_second.read(&mut [0]);
    assert!(matches!(more, Ok(0) | Err(_)), "it is gone");
    drop(to_first);
    let said = first.end().failed(2);
    assert!(
        said.contains("process 1 stopped while the processes were connecting"),
        "{said}"
    );
}

/// The end of a process that was told to end while process 1 is stopped, which then goes on.
fn end_beside_a_stopped_one(tell: impl Fn(&mut Started)) -> [String; 2] {
    let place = Place::new();
    let mut started = place.start_long(2, &[]);
    started[1].signal("-STOP");
    tell(&mut started[0]);
    let [first, second] = started.try_into().ok().expect("two");
    let first = first.end().failed(1);
    second.signal("-CONT");
    [first, second.end().failed(1)]
}

#[test]
fn a_process_that_is_told_to_end_does_not_wait_for_one_that_is_stopped() {
    for signal in ["-TERM", "-INT"] {
        let [first, second] = end_beside_a_stopped_one(|first| first.signal(signal));
        let cause = "interrupted, and process 1 does not answer: it is stopped, ";
        assert!(first.contains(&format!("process 0: error: {cause}")), "{first}");
        assert!(
            first.contains("its steps since the last checkpoint are lost"),
            "{first}"
        );
        assert!(
            second.contains(&format!("process 1: error: process 0: {cause}")),
            "{second}"
        );
    }
}

#[test]
fn a_second_signal_ends_a_process_that_waits_for_another_at_once_and_both_say_so() {
    let [first, second] = end_beside_a_stopped_one(|first| {
        first.signal("-INT");
        first.await_said("Ctrl-C again to stop at once");
        first.signal("-INT");
    });
    let cause = "interrupted a second time; ";
    assert!(first.contains(&format!("process 0: error: {cause}")), "{first}");
    let waits = [
        "waits for rank 1",
        "waits for the other ranks",
        "process 1 is waited for",
    ];
    assert!(waits.iter().any(|words| first.contains(words)), "{first}");
    assert!(
        second.contains(&format!("process 1: error: process 0: {cause}")),
        "{second}"
    );
}

#[test]
fn a_process_that_is_stopped_does_not_keep_others_from_the_end_of_a_third() {
    let place = Place::new();
    let mut started = place.start_long(4, &["--set", "pipeline.stages=4"]);
    started[1].signal("-STOP");
    started[3].signal("-KILL");
    drop(started.remove(3));
    for process in [2, 0] {
        let said = started.remove(process).end().failed(1);
        assert!(
            said.contains("error: process 3 has stopped without saying why"),
            "{said}"
        );
    }
}
