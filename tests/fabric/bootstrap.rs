//! Processes find each other even if others connect to their port.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use pipewright::fabric::{Membership, World};
use pipewright::{Error, Result};
use serde_json::{Value, json};

use crate::worlds::free_address;

/// The text of these processes' config.
const PROGRAM: &str = "name = \"a secret of the config\"";

fn join(process: u32, address: &str, deadline: u64) -> Result<World> {
    let membership = Membership {
        process,
        processes: 2,
        address: address.to_owned(),
        deadline: Duration::from_secs(deadline),
        silence: Membership::SILENCE,
    };
    World::join(&membership, PROGRAM)
}

/// Process 0 and then process 1 join, while `meanwhile` uses process 0's port.
fn join_in_spite_of(meanwhile: impl FnOnce(&str)) {
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
fn the_longest_deadline_and_silence_are_possible() {
    let address = free_address();
    let join = |process| {
        let membership = Membership {
            process,
            processes: 2,
            address: address.clone(),
            deadline: Duration::MAX,
            silence: Duration::MAX,
        };
        World::join(&membership, PROGRAM).map(drop)
    };
    thread::scope(|scope| {
        for joined in [0, 1].map(|process| scope.spawn(move || join(process))) {
            joined.join().expect("no panic").expect("they come");
        }
    });
}

fn connect(address: &str) -> TcpStream {
    let since = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(30), "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn frame(length: u64, text: &[u8]) -> Vec<u8> {
    [&b"PIPEWRT2"[..], &length.to_le_bytes(), text].concat()
}

fn say(mut to: &TcpStream, message: &Value) {
    let text = message.to_string();
    to.write_all(&frame(text.len() as u64, text.as_bytes()))
        .expect("heard");
}

fn hear(mut from: &TcpStream) -> Value {
    let mut head = [0; 16];
    from.read_exact(&mut head).expect("an answer");
    let length = u64::from_le_bytes(head[8..].try_into().expect("8 bytes"));
    let mut text = vec![0; length as usize];
    from.read_exact(&mut text).expect("all of it");
    serde_json::from_slice(&text).expect("a message")
}

/// A hello without proof.
fn hello(version: &str) -> Value {
    json!({ "Hello": {
        "process": 1, "processes": 2, "address": "127.0.0.1:9", "version": version, "program": "",
        "proof": vec![0; 32]
    } })
}

#[test]
fn a_stranger_is_turned_away_and_reads_no_line_of_the_config() {
    for version in ["0.0.1", env!("CARGO_PKG_VERSION")] {
        join_in_spite_of(|address| {
            let stranger = connect(address);
            hear(&stranger);
            say(&stranger, &hello(version));
            let answer = hear(&stranger).to_string();
            assert!(answer.contains("start the same file everywhere"), "{answer}");
            assert!(!answer.contains("secret"), "{answer}");
        });
    }
}

#[test]
fn a_hello_that_was_overheard_takes_nobodys_seat() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("it has one").to_string();
    let overheard = thread::scope(|scope| {
        let real = scope.spawn(|| join(1, &address, 10));
        let (stream, _) = port.accept().expect("process 1 comes");
        say(&stream, &json!({ "Challenge": 7 }));
        let overheard = hear(&stream);
        drop(stream);
        real.join().expect("no panic").expect_err("nobody answers");
        overheard
    });
    join_in_spite_of(|address| {
        let thief = connect(address);
        hear(&thief);
        say(&thief, &overheard);
        let answer = hear(&thief).to_string();
        assert!(answer.contains("Refused"), "{answer}");
    });
}

/// How many connections process 0 keeps open that have not said anything yet.
const SILENT: usize = 64;

#[test]
fn connections_that_say_nothing_take_few_places_and_leave_room_for_those_who_come() {
    join_in_spite_of(|address| {
        let mut silent: Vec<TcpStream> = (0..SILENT).map(|_| connect(address)).collect();
        for stream in &silent {
            hear(stream);
        }
        let next = connect(address);
        next.set_read_timeout(Some(Duration::from_millis(50)))
            .expect("not zero");
        next.peek(&mut [0]).expect_err("there is no place for it");
        next.set_read_timeout(None).expect("it was set before");
        silent.pop();
        hear(&next);
    });
}

#[test]
fn a_message_that_is_too_long_is_not_read() {
    join_in_spite_of(|address| {
        let mut stranger = connect(address);
        hear(&stranger);
        stranger.write_all(&frame(1 << 40, b"{")).expect("sent");
        // More than the buffers of sockets hold.
        let megabyte = vec![b' '; 1 << 20];
        let sent = (0..64).try_for_each(|_| stranger.write_all(&megabyte));
        sent.expect_err("the connection is closed");
    });
}

#[test]
fn a_process_0_that_answers_a_byte_at_a_time_does_not_outlast_the_deadline() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("it has one").to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = port.accept().expect("process 1 comes");
        for byte in frame(1 << 19, &vec![b' '; 1 << 19]) {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let error = join(1, &address, 1).expect_err("no process 0");
    assert_eq!(
        error.to_string(),
        format!("what listens at {address} has said nothing for 1 s: is it process 0 of this run?")
    );
    answering.join().expect("no panic");
}

#[test]
fn a_process_that_was_turned_away_is_named_when_nobody_else_comes() {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 2));
        let stranger = connect(&address);
        hear(&stranger);
        say(&stranger, &hello("0.0.1"));
        let error: Error = first.join().expect("no panic").expect_err("nobody else comes");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            error.to_string(),
            format!(
                "process 1 of 2 did not come to {address} within 2 s: start it, or give more time \
                 (launch.deadline); process 1 runs version 0.0.1 of the program, process 0 version \
                 {version}: start the same file everywhere"
            )
        );
    });
}
