//! How a run of several processes ends early: all of them end, and say why.

use super::*;

/// Each of the other processes ends and names the one that was killed.
pub(super) fn others_name(victim: usize, others: Vec<Started>) {
    let numbers = (0..=others.len()).filter(|&process| process != victim);
    for (process, ended) in numbers.zip(others) {
        let said = ended.end().failed(1);
        let line = format!(
            "process {process}: error: process {victim} has stopped without saying why: its connections \
             were closed, so it was killed or it crashed\n"
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
fn a_process_that_is_killed_while_all_write_leaves_whole_checkpoints_only() {
    let often = ["--set", "checkpoint.every=1"];
    for victim in [0, 1, 0, 1] {
        let place = Place::new();
        let mut started = place.start_long(2, &often);
        let is_partial = |name: &String| name.ends_with(".partial");
        while !place.checkpoints("runs/small").iter().any(is_partial) {}
        started[victim].signal("-KILL");
        drop(started.remove(victim));
        others_name(victim, started);
        let verify = Command::new(cargo_bin("pipewright"))
            .args(["verify", "runs/small"])
            .current_dir(place.path("."))
            .output();
        assert!(verify.unwrap().status.success(), "all are whole");
        let steps = (place.numbers("runs/small").len() + 2).to_string();
        let last = ["--steps", &steps, "--weights-hash"];
        let resumed = all_done(place.several(2, &[&["--resume"], &last[..]].concat()));
        let whole = place.alone(&[&["--run-dir", "whole"], &last[..]].concat()).done();
        assert_eq!(resumed.hash(), whole.hash(), "process {victim} was killed");
    }
}

#[test]
fn an_interruption_of_one_process_saves_the_same_step_in_all() {
    let without = ["--set", "pipeline.barrier=false", "--set", "optimizer.clip=0.0"];
    for (signalled, signal, more) in [
        (0, "-INT", &[][..]),
        (1, "-INT", &[]),
        (1, "-TERM", &[]),
        (0, "-INT", &without),
        (1, "-INT", &without),
    ] {
        let place = Place::new();
        let started = place.start_long(2, more);
        started[signalled].signal(signal);
        let ended = end_all(started);
        for process in &ended {
            assert_eq!(process.status, Some(130), "{}{}", process.stdout, process.stderr);
        }
        assert!(ended[0].stdout.contains("\ninterrupted: "), "{}", ended[0].stdout);
        assert_eq!(place.checkpoints("runs/small").len(), 1);
        let steps = place.numbers("runs/small").len().to_string();
        let resumed = place.several(2, &[&["--resume", "--steps", &steps], more].concat());
        let first = all_done(resumed);
        has(&first.stdout, &[&format!("resumed after {steps} steps")]);
    }
}

#[test]
fn numbers_that_are_not_finite_end_all_with_the_same_words() {
    let place = Place::new();
    all_done(place.several(2, &["--steps", "2"]));
    let args = ["--resume", "--set", "optimizer.learning_rate=1e30", "--set", "train.validate_every=0"];
    let ended = place.several(2, &args);
    let said: Vec<String> = ended.into_iter().map(|process| process.failed(1)).collect();
    assert!(
        said[0]
            .contains("process 0: error: step 3: the loss of micro-batch 0 is not finite; first in stage "),
        "{}",
        said[0]
    );
    assert!(said[0].contains("the newest checkpoint is runs/small/checkpoints/step-00000002"), "{}", said[0]);
    let line = said[0].lines().last().unwrap().replace("process 0:", "process 1:");
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
    command.current_dir(place.path(".")).args(["-c", script]).arg(cargo_bin("pipewright"));
    for (name, value) in place.member(1, 2, &address, &[]).get_envs() {
        command.env(name, value.unwrap());
    }
    let second = Started::new(command);
    let (first, second) = (first.end().failed(1), second.end().failed(1));
    has(&first, &["process 0: error: process 1: cannot write "]);
    assert!(second.starts_with("process 1: error: cannot write "), "{second}");
    assert_eq!(place.checkpoints("runs/small"), ["step-00000002"]);
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

/// Passes `count` bytes on from one process to another.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).unwrap();
    to.write_all(&bytes).unwrap();
    bytes
}

/// Process 0 of three, whose process 1 has said who it is and was killed then. Process 2 has not come.
fn killed_while_others_still_come(place: &Place, address: &str, args: &[&str]) -> Started {
    let first = Started::new(place.member(0, 3, address, args));
    // The second process connects through this test, which sees when it has said who it is.
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = port.local_addr().unwrap().to_string();
    let second = Started::new(place.member(1, 3, &between, args));
    let (mut from_second, _) = port.accept().unwrap();
    let to_first = connect(address);
    // Both prove that they belong to the run. Then the second one says who it is.
    for (from, to, count) in [
        (&from_second, &to_first, 46),
        (&to_first, &from_second, 45),
        (&from_second, &to_first, 32),
        (&to_first, &from_second, 33),
    ] {
        pass_on(from, to, count);
    }
    let length = pass_on(&from_second, &to_first, 8);
    let length = u64::from_le_bytes(length.try_into().unwrap());
    pass_on(&from_second, &to_first, length as usize);
    second.signal("-KILL");
    let more = from_second.read(&mut [0]);
    assert!(matches!(more, Ok(0) | Err(_)), "it is gone");
    drop(to_first);
    first
}

#[test]
fn a_process_that_is_killed_while_others_still_come_ends_those_that_wait_at_once() {
    let (place, address) = (Place::new(), worlds::free_address());
    let args = ["--set", "pipeline.stages=3", "--set", "launch.deadline=300"];
    let first = killed_while_others_still_come(&place, &address, &args);
    has(&first.end().failed(2), &["process 1 stopped while the processes were connecting"]);
}

#[test]
fn with_restarts_a_process_that_is_killed_while_others_still_come_is_replaced() {
    let (place, address) = (Place::new(), worlds::free_address());
    let sets = ["pipeline.stages=3", "train.restarts=1", "launch.deadline=300"];
    let args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let first = killed_while_others_still_come(&place, &address, &args);
    let others = [1, 2].map(|process| Started::new(place.member(process, 3, &address, &args)));
    all_done(std::iter::once(first).chain(others).map(Started::end).collect());
}

/// Waits until a process has a handler of its own for SIGTERM.
#[cfg(target_os = "linux")]
fn await_handler(process: &Started) {
    let since = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", process.child.id())).expect("it runs");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.expect("it is listed").trim(), 16).expect("a mask");
        if (caught >> 14) & 1 == 1 {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "it has none");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_is_told_to_end_while_all_connect_tells_the_others() {
    for asked in [0, 1] {
        let (place, address) = (Place::new(), worlds::free_address());
        let args = ["--set", "pipeline.stages=3", "--set", "launch.deadline=300"];
        // Process 2 never comes.
        let started = [0, 1].map(|rank| Started::new(place.member(rank, 3, &address, &args)));
        started.iter().for_each(await_handler);
        started[asked].signal("-TERM");
        let told = format!("process {asked} was asked to end while the run waited for all its processes");
        for (process, ended) in started.into_iter().map(Started::end).enumerate() {
            let said = ended.failed(if process == asked { 130 } else { 2 });
            has(&said, &[&told]);
        }
    }
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
        has(&first, &[&format!("process 0: error: {cause}")]);
        has(&first, &["its steps since the last checkpoint are lost"]);
        has(&second, &[&format!("process 1: error: process 0: {cause}")]);
    }
}

#[test]
fn a_ctrl_c_that_is_typed_again_ends_a_process_that_waits_for_another_at_once_and_both_say_so() {
    let place = Place::new();
    let address = worlds::free_address();
    let second = Started::new(place.member(1, 2, &address, &LONG));
    // `script` gives the command a terminal, on which is typed what it reads.
    let member = place.member(0, 2, &address, &LONG);
    let words = std::iter::once(member.get_program()).chain(member.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let mut first = Command::new("script");
    // The shell gives its place to the command, since some shells end by the signal too. The program that has
    // started the tests may ignore the signal.
    let command = format!("exec env --default-signal=INT {}", words.join(" "));
    first.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    first.current_dir(place.path("."));
    first.envs(member.get_envs().filter_map(|(name, value)| Some((name, value?))));
    first.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut first = first.spawn().unwrap();
    place.await_steps();
    second.signal("-STOP");
    let (mut keys, mut shown) = (first.stdin.take().unwrap(), first.stdout.take().unwrap());
    let mut await_shown = |words: &str| {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !String::from_utf8_lossy(&said).contains(words) {
            shown.read_exact(&mut byte).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&said)));
            said.push(byte[0]);
        }
    };
    keys.write_all(b"\x03").unwrap();
    await_shown("type Ctrl-C again to stop at once");
    keys.write_all(b"\x03").unwrap();
    await_shown("process 0: error: interrupted a second time; ");
    assert_eq!(first.wait().unwrap().code(), Some(1));
    second.signal("-CONT");
    let said = second.end().failed(1);
    let cause = "process 1: error: process 0: interrupted a second time; ";
    has(&said, &[cause]);
}

#[test]
fn signals_that_programs_send_twice_end_a_run_with_its_checkpoint() {
    for [first, second] in [["-TERM", "-TERM"], ["-TERM", "-HUP"], ["-HUP", "-INT"]] {
        let place = Place::new();
        let started = place.start_long(2, &[]);
        started[0].signal(first);
        started[0].signal(second);
        started[1].signal(second);
        for process in end_all(started) {
            assert_eq!(process.status, Some(130), "{first} {second}: {}", process.stderr);
        }
        assert_eq!(place.checkpoints("runs/small").len(), 1, "{first} {second}");
    }
}

#[test]
fn a_signal_that_a_parent_ignores_stays_ignored() {
    let place = Place::new();
    let ignoring = |signal: &str| {
        let mut command = Command::new("sh");
        command.current_dir(place.path("."));
        command.args(["-c", &format!("trap '' {signal}; exec \"$@\""), "sh"]);
        command.arg(cargo_bin("pipewright")).args(["train", "my.toml"]).args(LONG);
        Started::new(command)
    };
    for signal in ["HUP", "INT"] {
        let started = ignoring(signal);
        place.await_steps();
        started.signal(&format!("-{signal}"));
        let lines = place.numbers("runs/small").len();
        place.await_steps_after(lines + 4);
        started.signal("-TERM");
        assert_eq!(started.end().status, Some(130), "{signal}");
        fs::remove_dir_all(place.path("runs")).unwrap();
    }
}

#[test]
fn a_process_that_is_stopped_does_not_keep_others_from_the_end_of_a_third() {
    let place = Place::new();
    let mut started = place.start_long(4, &["--set", "pipeline.stages=4"]);
    started[1].signal("-STOP");
    started[3].signal("-KILL");
    drop(started.remove(3));
    for process in [2, 0] {
        has(&started.remove(process).end().failed(1), &["error: process 3 has stopped without saying why"]);
    }
}
