//! What comes from other processes, and from strangers: frames, and what is said before there are any.

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};

use pipewright::fabric::{self, Membership, Tag, Transport, World};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::stages::Tensor;

use super::*;
use crate::frame::{head, wire};
use crate::gate::{
    self, ANSWER, ASK, DATA, JOIN, MAGIC, PROGRAM, SECRET, WATCH, all_of, ask, connect, hear, join, key,
    play, play_until_ready, prove,
};
use crate::worlds::free_address;

/// A frame of each kind. Those with a text have one.
fn frames() -> Vec<Vec<u8>> {
    let texts = (1..10).map(|kind| [head(kind, 3, 4, 0), b"text".to_vec()].concat());
    let several = [wire(), head(2, 3, 4, 0), vec![9; 4], wire()].concat();
    texts.chain([wire(), several]).collect()
}

/// What process 0's rank gets when process 1 sends this on one of its connections, and goes.
fn after(input: &[u8], on: usize) -> Result<(), String> {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let world = join(0, &address, 30).expect("process 1 comes");
            let mesh = Mesh::new([1, 2, 1], 2, &[]).expect("an even share");
            let (mut ends, peers) = fabric::ends::<Tensor>(world, &mesh, 2, 16).expect("connected");
            let mut end = ends.pop().expect("one rank");
            let wire = end.wait(WorldRank(1), Tag(0));
            drop(end);
            drop(peers);
            wire
        });
        let played = play(&address);
        let to = [&played.data, &played._others[0], &played._others[1]][on];
        let _ = (&*to).write_all(input);
        drop(played);
        told(first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).map(|_| ())
    })
}

fn on_a_connection(name: &'static str, on: usize) {
    Target { name, seeds: frames(), words: "text", inputs: 100, bytes: 64 * MIB, blocks: 100_000 }
        .fuzz(|input| after(input, on));
}

#[test]
fn frames_of_ranks() {
    let _alone = alone();
    on_a_connection("frames_of_ranks", 0);
}

#[test]
fn frames_that_say_who_is_alive() {
    let _alone = alone();
    on_a_connection("frames_that_say_who_is_alive", 2);
}

/// What strangers say to a process that listens. It lets the real one in all the same.
#[test]
fn strangers() {
    let _alone = alone();
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 36_000));
        let proved = |purpose| [ask(1, purpose), vec![7; 32], gate::message(&json!("Connected"))].concat();
        drop(connect(&address));
        Target {
            name: "strangers",
            seeds: [JOIN, DATA, WATCH, 3].map(proved).into(),
            words: "PIPEWRT3, GET / HTTP/1.1\r\n\r\n",
            inputs: 1000,
            bytes: 16 * MIB,
            blocks: 100_000,
        }
        .fuzz(|input| {
            let stranger = connect(&address);
            let _ = (&stranger).write_all(input);
            let _ = stranger.shutdown(Shutdown::Write);
            // What it hears is at most a random number and a no.
            let heard = all_of(&stranger).len();
            assert!(heard <= ANSWER + 1, "{heard} bytes");
            if heard > 0 { Ok(()) } else { Err("not heard".to_owned()) }
        });
        join(1, &address, 60).expect("it finds process 0");
        first.join().expect("no panic").expect("process 1 finds it");
    });
}

/// What somebody says who knows the secret.
#[test]
fn hellos() {
    let _alone = alone();
    let key = key(SECRET);
    Target {
        name: "hellos",
        seeds: vec![
            [gate::message(&gate::hello()), gate::message(&json!("Connected"))].concat(),
            gate::message(&json!({"Failed": "no"})),
        ],
        words: "Hello, Welcome, Connected, Failed, Ready, Refused, Interrupted, Spare, processes, absent, \
                127.0.0.1:9",
        inputs: 40,
        bytes: 64 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        let address = free_address();
        let member = impatient(0, &address);
        thread::scope(|scope| {
            let first = scope.spawn(|| World::join(&member, PROGRAM));
            // On a slow machine its time may be over before it is found.
            let stream = loop {
                match TcpStream::connect(&address) {
                    Ok(stream) => break Some(stream),
                    Err(_) if first.is_finished() => break None,
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            };
            if let Some(mut stream) = stream {
                let _ = prove(&stream, &key, 1, JOIN).and_then(|_| stream.write_all(input));
                let _ = stream.shutdown(Shutdown::Write);
                all_of(&stream);
            }
            told(first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).map(|_| ())
        })
    });
}

/// What process 0 of a run says to one that joins.
#[test]
fn welcomes() {
    let _alone = alone();
    let key = key(SECRET);
    let run = vec![7; 32];
    let addresses = ["127.0.0.1:9", "127.0.0.1:9"];
    let welcome = json!({"addresses": addresses, "numbers": [0, 1], "run": run, "first": run});
    let welcome = json!({"Welcome": welcome});
    Target {
        name: "welcomes",
        seeds: vec![
            [gate::message(&welcome), gate::message(&json!("Ready"))].concat(),
            gate::message(&json!({"Refused": "no"})),
        ],
        words: "Hello, Welcome, Connected, Failed, Ready, Refused, Known, Heir, Take, Over, addresses, \
                numbers, 127.0.0.1:9",
        // Some are waited for as long as a process 0 that is late: two seconds.
        inputs: 30,
        bytes: 64 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = port.local_addr().expect("it has one").to_string();
        port.set_nonblocking(true).expect("a socket");
        let member = impatient(1, &address);
        thread::scope(|scope| {
            let joins = scope.spawn(|| World::join(&member, PROGRAM));
            // On a slow machine its time may be over before it comes.
            let stream = loop {
                match port.accept() {
                    Ok((stream, _)) => break Some(stream),
                    Err(_) if joins.is_finished() => break None,
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            };
            if let Some(stream) = stream {
                stream.set_nonblocking(false).expect("a socket");
                let _ = welcomed(&stream, &key, input);
            }
            drop(port);
            told(joins.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).map(|_| ())
        })
    });
}

/// What a process says first when all are connected: whether it comes to the place inside of this machine.
/// With another first byte than 0 it says that it is there, and is not.
#[test]
fn first_words() {
    let _alone = alone();
    Target {
        name: "first_words",
        seeds: vec![vec![0], vec![1], [vec![0], head(8, 0, 0, 0)].concat()],
        words: "",
        inputs: 40,
        bytes: 64 * MIB,
        blocks: 100_000,
    }
    .fuzz(|input| {
        let address = free_address();
        thread::scope(|scope| {
            let first = scope.spawn(|| join(0, &address, 30));
            let mut played = play_until_ready(&address);
            let _ = played.data.write_all(input);
            drop(played);
            told(first.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).map(|_| ())
        })
    });
}

/// A process that soon gives up: many inputs leave it without an answer.
fn impatient(process: u32, address: &str) -> Membership {
    Membership { deadline: Duration::from_millis(100), ..gate::member(process, address, 1) }
}

/// Lets a process in as process 0 does, and says this.
fn welcomed(mut stream: &TcpStream, key: &[u8], said: &[u8]) -> std::io::Result<()> {
    let (mut ask, mut proof) = (vec![0; ASK], [0; 32]);
    stream.read_exact(&mut ask)?;
    let answer = [&MAGIC[..], &[7; 32], &[0; 5]].concat();
    stream.write_all(&answer)?;
    stream.read_exact(&mut proof)?;
    let ours = gate::proof(key, "listens", &ask, &answer);
    stream.write_all(&[&[1], &ours[..]].concat())?;
    hear(stream);
    stream.write_all(said)
}
