//! What processes say to each other before they are connected, as a stranger or a damaged process would say
//! it: byte by byte, and not by the code of the engine.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use pipewright::checksum::Checksum;
use pipewright::fabric::{Membership, Secret, World};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The secret of the runs in these tests.
pub(crate) const SECRET: &str = "a secret of these tests";

/// The text of these processes' config.
pub(crate) const PROGRAM: &str = "name = \"a line of the config\"";

/// What a connection is for.
pub(crate) const JOIN: u8 = 0;
pub(crate) const SPARE: u8 = 3;
pub(crate) const DATA: u8 = 1;
pub(crate) const WATCH: u8 = 2;

pub(crate) const MAGIC: &[u8; 8] = b"PIPEWRT4";
pub(crate) const ASK: usize = 46;
pub(crate) const ANSWER: usize = 45;

/// A process of a run of two, with the secret.
pub(crate) fn join(process: u32, address: &str, deadline: u64) -> pipewright::Result<World> {
    World::join(&member(process, address, deadline), PROGRAM)
}

pub(crate) fn member(process: u32, address: &str, deadline: u64) -> Membership {
    Membership {
        process,
        processes: 2,
        address: address.to_owned(),
        deadline: Duration::from_secs(deadline),
        silence: Membership::SILENCE,
        secret: Some(secret(SECRET)),
        tls: false,
        replaces: false,
        fewest: 2,
    }
}

pub(crate) fn secret(text: &str) -> Secret {
    Secret::new(text).expect("long enough")
}

/// Connects to a process, which may not listen yet.
pub(crate) fn connect(address: &str) -> TcpStream {
    let since = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_nodelay(true).expect("it is open");
                stream.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
                return stream;
            }
            Err(error) => assert!(since.elapsed() < Duration::from_secs(30), "{error}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// What the other end sends until it closes the connection.
pub(crate) fn all_of(mut from: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    // A connection that is reset has also ended.
    let _ = from.read_to_end(&mut all);
    all
}

/// HMAC-SHA256.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// The key of those who know this secret.
pub(crate) fn key(secret: &str) -> [u8; 32] {
    hmac(b"pipewright secret", &[secret.as_bytes()])
}

/// The key of a run.
pub(crate) fn key_of_run(key: &[u8], run: &[u8]) -> [u8; 32] {
    hmac(key, &[b"run\0", run])
}

/// The first message of a process that connects.
pub(crate) fn ask(process: u32, purpose: u8) -> Vec<u8> {
    ask_with(process, purpose, false)
}

fn ask_with(process: u32, purpose: u8, tls: bool) -> Vec<u8> {
    let number = Sha256::digest(format!("{:?} {process} {purpose}", Instant::now()));
    [&MAGIC[..], &number, &process.to_le_bytes(), &[purpose, tls.into()]].concat()
}

/// The proof of the side that connects, or of the one that listens.
pub(crate) fn proof(key: &[u8], side: &str, ask: &[u8], answer: &[u8]) -> [u8; 32] {
    hmac(key, &[side.as_bytes(), &[0], ask, answer])
}

/// The first three messages. Returns the first two.
pub(crate) fn prove(to: &TcpStream, key: &[u8], process: u32, purpose: u8) -> io::Result<[Vec<u8>; 2]> {
    prove_with(to, key, process, purpose, false)
}

/// The same, of a process that encrypts or does not.
pub(crate) fn prove_with(
    mut to: &TcpStream,
    key: &[u8],
    process: u32,
    purpose: u8,
    tls: bool,
) -> io::Result<[Vec<u8>; 2]> {
    let (ask, mut answer) = (ask_with(process, purpose, tls), vec![0; ANSWER]);
    to.write_all(&ask)?;
    to.read_exact(&mut answer)?;
    to.write_all(&proof(key, "connects", &ask, &answer))?;
    Ok([ask, answer])
}

/// A connection for this purpose, as a process of the run makes it.
pub(crate) fn let_in(address: &str, key: &[u8], process: u32, purpose: u8) -> TcpStream {
    let stream = connect(address);
    let [ask, answer] = prove(&stream, key, process, purpose).expect("heard");
    let mut verdict = [0; 33];
    (&stream).read_exact(&mut verdict).expect("let in");
    let theirs = proof(key, "listens", &ask, &answer);
    assert_eq!((verdict[0], &verdict[1..]), (1, &theirs[..]), "it proves the same");
    stream
}

/// A message of those who have proved who they are.
pub(crate) fn message(value: &Value) -> Vec<u8> {
    let text = value.to_string();
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

pub(crate) fn say(mut to: &TcpStream, value: &Value) {
    to.write_all(&message(value)).expect("heard");
}

pub(crate) fn hear(mut from: &TcpStream) -> Value {
    let mut length = [0; 8];
    from.read_exact(&mut length).expect("an answer");
    let mut text = vec![0; u64::from_le_bytes(length) as usize];
    from.read_exact(&mut text).expect("all of it");
    serde_json::from_slice(&text).expect("a message")
}

/// What process 1 of 2 says of itself, if it runs this program.
pub(crate) fn hello() -> Value {
    static BINARY: OnceLock<[u8; 16]> = OnceLock::new();
    let binary = BINARY.get_or_init(|| {
        let program = std::fs::read(std::env::current_exe().expect("known")).expect("readable");
        Checksum::of(&program).bytes()
    });
    json!({ "Hello": {
        "processes": 2, "address": "127.0.0.1:9",
        "alike": { "version": env!("CARGO_PKG_VERSION"), "binary": binary, "program": PROGRAM }
    } })
}

/// The connections of process 1, played by a test, to process 0.
pub(crate) struct Played {
    pub(crate) data: TcpStream,
    pub(crate) _others: [TcpStream; 2],
}

/// Joins a run of two as process 1, up to the connection for frames.
pub(crate) fn play(address: &str) -> Played {
    let played = play_until_ready(address);
    if cfg!(target_os = "linux") {
        // It offers a place inside of this machine. No.
        (&played.data).read_exact(&mut [0; 32]).expect("a place");
        (&played.data).write_all(&[0]).expect("heard");
    }
    played
}

/// The same, until all processes are connected: the way to the other process may still become shorter.
pub(crate) fn play_until_ready(address: &str) -> Played {
    let key = key(SECRET);
    let first = let_in(address, &key, 1, JOIN);
    say(&first, &hello());
    let welcome = hear(&first);
    let run: Vec<u8> = serde_json::from_value(welcome["Welcome"]["run"].clone()).expect("32 bytes");
    let key = key_of_run(&key, &run);
    let [data, watch] = [DATA, WATCH].map(|purpose| let_in(address, &key, 1, purpose));
    say(&first, &json!("Connected"));
    assert_eq!(hear(&first), json!("Ready"));
    Played { data, _others: [first, watch] }
}
