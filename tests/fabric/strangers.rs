//! Nobody gets in who does not know the secret, learns anything, or ends anything.

use super::*;
use crate::gate::{connect, *};

/// Process 0 and then process 1 join, while `meanwhile` uses process 0's port.
pub(crate) fn join_in_spite_of(meanwhile: impl FnOnce(&str)) {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 60));
        meanwhile(&address);
        let second = join(1, &address, 60).expect("it finds process 0");
        let first = first.join().expect("no panic").expect("process 1 finds it");
        assert_eq!((first.processes(), second.processes()), (2, 2));
    });
}

#[test]
fn a_stranger_that_says_nothing_hears_nothing() {
    join_in_spite_of(|address| {
        let stranger = connect(address);
        stranger.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
        stranger.peek(&mut [0]).expect_err("nothing");
    });
}

#[test]
fn a_stranger_that_speaks_another_protocol_hears_nothing() {
    join_in_spite_of(|address| {
        for said in ["GET / HTTP/1.1\r\n\r\n", "PIPEWRT2\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}0", "P\n"] {
            let mut stranger = connect(address);
            stranger.write_all(said.as_bytes()).expect("sent");
            assert_eq!(all_of(&stranger), [0; 0], "{said:?}");
        }
    });
}

#[test]
fn a_stranger_that_asks_in_every_way_hears_a_random_number_and_no() {
    join_in_spite_of(|address| {
        let mut numbers = Vec::new();
        for (process, purpose) in [(1, JOIN), (0, JOIN), (u32::MAX, SPARE)] {
            let stranger = connect(address);
            let [_, answer] = prove(&stranger, b"no key", process, purpose).expect("heard");
            assert_eq!((&answer[..8], &answer[40..]), (&MAGIC[..], &[0; 5][..]));
            numbers.push(answer[8..40].to_vec());
            assert_eq!(all_of(&stranger), [0]);
        }
        numbers.dedup();
        assert_eq!(numbers.len(), 3, "never the same number");
        // Nothing belongs to the run yet, so nobody can connect for frames, nor for what does not exist.
        for purpose in [DATA, WATCH, SPARE + 1] {
            let mut stranger = connect(address);
            stranger.write_all(&ask(1, purpose)).expect("sent");
            assert_eq!(all_of(&stranger), [0; 0]);
        }
    });
}

/// What the real process 1 says to a process 0 that the test plays: its first message, and then its proof for
/// that process 0's random number.
fn overheard(answer: &[u8]) -> [Vec<u8>; 2] {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("it has one").to_string();
    thread::scope(|scope| {
        let real = scope.spawn(|| join(1, &address, 10));
        let (mut stream, _) = port.accept().expect("process 1 comes");
        let (mut ask, mut proof) = (vec![0; ASK], vec![0; 32]);
        stream.read_exact(&mut ask).expect("it asks");
        stream.write_all(answer).expect("heard");
        stream.read_exact(&mut proof).expect("it proves");
        drop(stream);
        real.join().expect("no panic").expect_err("nobody answers");
        [ask, proof]
    })
}

#[test]
fn what_was_overheard_takes_nobodys_seat() {
    let answer = [&MAGIC[..], &[7; 32], &[0; 5]].concat();
    let [ask, proof] = overheard(&answer);
    join_in_spite_of(|address| {
        let mut thief = connect(address);
        thief.write_all(&ask).expect("sent");
        thief.read_exact(&mut [0; ANSWER]).expect("another number");
        thief.write_all(&proof).expect("sent");
        assert_eq!(all_of(&thief), [0]);
    });
}

#[test]
fn a_proof_that_is_sent_back_proves_nothing() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("it has one").to_string();
    thread::scope(|scope| {
        let real = scope.spawn(|| join(1, &address, 10));
        let (mut stream, _) = port.accept().expect("process 1 comes");
        let (mut ask, mut proof) = (vec![0; ASK], vec![0; 32]);
        stream.read_exact(&mut ask).expect("it asks");
        // Its own random number, and later its own proof.
        let answer = [&ask[..40], &[0; 5]].concat();
        stream.write_all(&answer).expect("heard");
        stream.read_exact(&mut proof).expect("it proves");
        stream.write_all(&[&[1], &proof[..]].concat()).expect("heard");
        let error = real.join().expect("no panic").expect_err("an impostor");
        assert_eq!(
            error.to_string(),
            format!(
                "what listens at {address} cannot prove that it is process 0 of this run: another run or a \
                 stranger has that port; give all processes another MASTER_PORT or launch.address"
            )
        );
    });
}

#[test]
fn a_process_with_another_secret_is_told_so_and_named_when_nobody_else_comes() {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 2));
        let other = Membership { secret: Some(secret("another secret of tests")), ..member(1, &address, 10) };
        let error = World::join(&other, PROGRAM).expect_err("another secret");
        assert_eq!(
            error.to_string(),
            format!(
                "process 0 at {address} does not let this process in: it has another secret, or none; give \
                 all processes the same one (PIPEWRIGHT_TOKEN or launch.token_file)"
            )
        );
        let without = Membership { secret: None, ..member(1, &address, 10) };
        let error = World::join(&without, PROGRAM).expect_err("no secret");
        assert_eq!(
            error.to_string(),
            format!(
                "process 0 at {address} does not let this process in: it runs another build of the program, \
                 or it has a secret and this process has none; start the same file everywhere, and give all \
                 the same secret (PIPEWRIGHT_TOKEN or launch.token_file)"
            )
        );
        let error = first.join().expect("no panic").expect_err("nobody else comes");
        assert_eq!(
            error.to_string(),
            format!(
                "process 1 of 2 did not come to {address} within 2 s: start it, or give more time \
                 (launch.deadline); a process came that calls itself 1 and does not know the secret"
            )
        );
    });
}

#[test]
fn without_a_secret_only_addresses_of_this_machine_alone_are_used() {
    let needed = |address: &str| {
        format!(
            "{address} can be reached from other hosts, and the run has no secret: make one by \
             `openssl rand -hex 32`, and give it to all processes, as PIPEWRIGHT_TOKEN or in a file that \
             launch.token_file names; without one, all processes have to be on one host, at an address such \
             as 127.0.0.1:29500"
        )
    };
    for (process, address) in
        [(0, "0.0.0.0:0"), (0, "[::]:0"), (0, "192.0.2.1:29500"), (1, "192.0.2.1:29500")]
    {
        let open = Membership { secret: None, ..member(process, address, 30) };
        let error = World::join(&open, PROGRAM).expect_err("no secret");
        assert_eq!(error.to_string(), needed(address));
    }
}

#[test]
fn a_connection_for_frames_is_proved_for_this_run() {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 30).map(drop));
        let key = key(SECRET);
        let joined = let_in(&address, &key, 1, JOIN);
        say(&joined, &hello());
        let welcome = hear(&joined);
        let run: Vec<u8> = serde_json::from_value(welcome["Welcome"]["run"].clone()).expect("bytes");
        let another = key_of_run(&key, &[0; 32]);
        for (key, process, purpose) in [(key, 1, DATA), (another, 1, DATA), (another, 1, WATCH)] {
            let stranger = connect(&address);
            prove(&stranger, &key, process, purpose).expect("heard");
            assert_eq!(all_of(&stranger), [0], "not with that key");
        }
        let key = key_of_run(&key, &run);
        let _lines = [DATA, WATCH].map(|purpose| let_in(&address, &key, 1, purpose));
        say(&joined, &json!("Connected"));
        assert_eq!(hear(&joined), json!("Ready"));
        drop(_lines);
        first.join().expect("no panic").expect_err("it has gone before it was all set up");
    });
}

/// More than process 0 keeps.
const MANY: usize = 200;

#[test]
fn strangers_that_say_nothing_leave_room_for_those_who_come() {
    join_in_spite_of(|address| {
        let silent: Vec<TcpStream> = (0..MANY).map(|_| connect(address)).collect();
        join_in_time(address);
        drop(silent);
    });
}

/// A process that knows the secret is let in, long before strangers lose their places by time.
fn join_in_time(address: &str) {
    let since = std::time::Instant::now();
    drop(let_in(address, &key(SECRET), 1, JOIN));
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}

#[test]
fn strangers_that_speak_slowly_leave_room_for_those_who_come() {
    join_in_spite_of(|address| {
        let strangers: Vec<TcpStream> = (0..MANY).map(|_| connect(address)).collect();
        let mut said = 0;
        for byte in &ask(1, JOIN)[..8] {
            for mut stranger in &strangers {
                said += usize::from(stranger.write_all(&[*byte]).is_ok());
            }
        }
        assert!(said > 0, "some were heard");
        join_in_time(address);
    });
}

#[test]
fn a_message_that_is_too_long_is_not_read() {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 60));
        let mut member = let_in(&address, &key(SECRET), 1, JOIN);
        member.write_all(&(1_u64 << 40).to_le_bytes()).expect("sent");
        assert_eq!(all_of(&member), [0; 0]);
        join(1, &address, 60).expect("process 0 waits on");
        first.join().expect("no panic").expect("it is there");
    });
}

/// Plays a process 0 that sends these bytes one by one, with a pause after each.
fn slowly(mut stream: TcpStream, bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_process_0_that_answers_a_byte_at_a_time_does_not_outlast_the_deadline() {
    // It does so at once, or only once it has proved who it is.
    for is_proved in [false, true] {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = port.local_addr().expect("it has one").to_string();
        let answering = thread::spawn(move || {
            let (mut stream, _) = port.accept().expect("process 1 comes");
            let answer = [&MAGIC[..], &[7; 32], &[0; 5]].concat();
            if !is_proved {
                return slowly(stream, &answer);
            }
            let (key, mut ask) = (key(SECRET), vec![0; ASK]);
            stream.read_exact(&mut ask).expect("it asks");
            stream.write_all(&answer).expect("heard");
            stream.read_exact(&mut [0; 32]).expect("it proves");
            let proof = proof(&key, "listens", &ask, &answer);
            stream.write_all(&[&[1], &proof[..]].concat()).expect("heard");
            let endless = [&(1_u64 << 19).to_le_bytes()[..], &[b' '; 100]].concat();
            slowly(stream, &endless);
        });
        let since = std::time::Instant::now();
        let error = join(1, &address, 1).expect_err("no process 0");
        // The deadline, and two seconds for process 0 to say that it is over.
        assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
        assert_eq!(
            error.to_string(),
            format!("what listens at {address} has said nothing for 1 s: is it process 0 of this run?")
        );
        answering.join().expect("no panic");
    }
}

#[test]
fn a_process_that_says_hello_a_byte_at_a_time_does_not_outlast_the_deadline() {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let since = std::time::Instant::now();
            (join(0, &address, 1).expect_err("nobody comes"), since.elapsed())
        });
        let member = let_in(&address, &key(SECRET), 1, JOIN);
        slowly(member, &message(&hello())[..30]);
        let (error, took) = first.join().expect("no panic");
        assert!(took < Duration::from_secs(3), "{took:?}: {error}");
    });
}

#[test]
fn damaged_first_messages_are_refused_and_end_nothing() {
    join_in_spite_of(|address| {
        let key = key(SECRET);
        for number in 0..300 {
            let draw = |index, below: usize| rng::philox([5, 15], [number, index, 0, 0])[0] as usize % below;
            let stream = connect(address);
            let mut ask = ask(1, JOIN);
            let damage = |bytes: &mut Vec<u8>, index| match draw(index, 3) {
                0 => bytes.truncate(draw(index + 1, bytes.len())),
                1 => bytes.iter_mut().take(8).for_each(|byte| *byte = draw(index + 1, 256) as u8),
                _ => {
                    let at = draw(index + 1, bytes.len());
                    bytes[at] ^= 1 << draw(index + 2, 8);
                }
            };
            if number % 2 == 0 {
                damage(&mut ask, 0);
            }
            let mut both = &stream;
            both.write_all(&ask).expect("sent");
            let mut answer = vec![0; ANSWER];
            if number % 2 == 1 && both.read_exact(&mut answer).is_ok() {
                let mut proof = proof(&key, "connects", &ask, &answer).to_vec();
                damage(&mut proof, 0);
                both.write_all(&proof).expect("sent");
            }
            stream.shutdown(std::net::Shutdown::Write).expect("it is open");
            let answered = all_of(&stream);
            assert!(answered.len() <= ANSWER && !answered.starts_with(&[1]), "{number}: {answered:?}");
        }
    });
}

#[test]
fn a_secret_is_not_shown() {
    assert_eq!(format!("{:?}", member(0, "127.0.0.1:1", 1).secret), "Some(Secret)");
    assert_eq!(
        Secret::new("short").expect_err("too short").to_string(),
        "the secret has 5 bytes, and a secret has 16 to 4096: make one by `openssl rand -hex 32`, and give \
         it to all processes"
    );
}
