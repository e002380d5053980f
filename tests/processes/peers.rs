//! What processes do together, over a mesh of sockets.

use std::thread;
use std::time::{Duration, Instant};

use pipewright::Error;
use pipewright::fabric::{self, Peers};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::stages::Tensor;

use crate::worlds::in_processes;

/// What each process gets from a call that all make.
fn all_call<T: Send>(processes: u32, call: fn(Peers) -> T) -> Vec<T> {
    in_processes(processes, |world| {
        let mesh = Mesh::new([1, processes, 1], processes, &[]).expect("a rank each");
        call(fabric::ends::<Tensor>(world, &mesh, 1, 100).expect("connected").1)
    })
}

#[test]
fn processes_share_blocks_in_process_order() {
    let all = all_call(3, |peers| {
        let mine = vec![peers.process() as u8; peers.process() as usize];
        peers.share("a test", Ok(mine)).expect("shared")
    });
    assert!(all.iter().all(|blocks| *blocks == [vec![], vec![1], vec![2, 2]]));
}

#[test]
fn a_failure_in_one_process_reaches_all_and_an_echo_does_not_hide_it() {
    let all = all_call(3, |peers| {
        let mine = match peers.process() {
            0 => Err(Error::PeerGone(WorldRank(2))),
            1 => Ok(Vec::new()),
            _ => Err(pipewright::error::DataError::other("`words.txt` is gone").into()),
        };
        peers
            .share("a test", mine)
            .expect_err("one has failed")
            .to_string()
    });
    let told = "process 2: `words.txt` is gone";
    assert_eq!(all, [told, told, "`words.txt` is gone"]);
}

#[test]
fn a_process_that_leaves_says_why() {
    let all = all_call(2, |peers| {
        if peers.process() == 0 {
            peers.fail(&pipewright::error::DataError::other("the disk is full").into());
            return String::new();
        }
        peers
            .share("a test", Ok(Vec::new()))
            .expect_err("it has left")
            .to_string()
    });
    assert_eq!(all[1], "process 0: the disk is full");
    let all = all_call(2, |peers| match peers.process() {
        0 => String::new(),
        _ => peers
            .share("a test", Ok(Vec::new()))
            .expect_err("it has left")
            .to_string(),
    });
    assert_eq!(all[1], "process 0: it has ended");
}

#[test]
fn processes_that_are_not_at_the_same_call_are_told() {
    let all = all_call(2, |peers| {
        let what = ["saving", "training"][peers.process() as usize];
        peers
            .share(what, Ok(Vec::new()))
            .expect_err("another call")
            .to_string()
    });
    assert_eq!(
        all[0],
        "process 1 is at `training`, process 0 at `saving`: all have to make the same calls"
    );
}

#[test]
fn clocks_of_processes_are_compared() {
    let all = all_call(3, |peers| {
        thread::sleep(Duration::from_millis(300 * u64::from(peers.process())));
        let origin = Instant::now();
        (origin, peers.offset(origin).expect("compared"))
    });
    for &(origin, offset) in &all {
        let later = origin.duration_since(all[0].0).as_secs_f64();
        assert!((later - offset).abs() < 0.1, "{later} and {offset}");
    }
}
