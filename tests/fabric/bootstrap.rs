//! Processes find each other.

use super::*;
use crate::gate::{JOIN, hear, hello, key, let_in, say};

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
            secret: None,
            tls: false,
            replaces: false,
            fewest: 2,
        };
        World::join(&membership, PROGRAM).map(drop)
    };
    thread::scope(|scope| {
        for joined in [0, 1].map(|process| scope.spawn(move || join(process))) {
            joined.join().expect("no panic").expect("they come");
        }
    });
}

#[test]
fn another_build_that_knows_the_secret_is_named_in_both_processes() {
    let address = free_address();
    let version = env!("CARGO_PKG_VERSION");
    for (theirs, expected) in [
        (version, "process 1 runs another build of the program: start the same file everywhere".to_owned()),
        (
            "0.0.1",
            format!(
                "process 1 runs version 0.0.1 of the program, process 0 version {version}: start the same \
                 file everywhere"
            ),
        ),
    ] {
        thread::scope(|scope| {
            let first = scope.spawn(|| join(0, &address, 30));
            let other = let_in(&address, &key(SECRET), 1, JOIN);
            let mut hello = hello();
            hello["Hello"]["alike"]["binary"] = json!(vec![0; 16]);
            hello["Hello"]["alike"]["version"] = json!(theirs);
            say(&other, &hello);
            assert_eq!(hear(&other), json!({ "Refused": expected }));
            let error = first.join().expect("no panic").expect_err("another build");
            assert_eq!(error.to_string(), expected);
        });
    }
}

#[test]
fn a_process_that_encrypts_does_not_join_one_that_does_not() {
    let address = free_address();
    thread::scope(|scope| {
        let first = scope.spawn(|| join(0, &address, 30));
        let stream = crate::gate::connect(&address);
        let said = crate::gate::prove_with(&stream, &key(SECRET), 1, JOIN, true).expect("heard");
        drop(said);
        let error = first.join().expect("no panic").expect_err("they differ");
        let expected =
            "process 1 was started with launch.tls = true, process 0 with false: give all the same";
        assert_eq!(error.to_string(), expected);
    });
}
