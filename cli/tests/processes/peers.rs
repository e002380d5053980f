//! What processes do together, over a mesh of sockets.

use pipewright::error::ProcessLoss;
use pipewright::fabric::{self, End, Peers, Tag, Transport};
use pipewright::id::WorldRank;
use pipewright::mesh::Mesh;
use pipewright::run::Interrupt;

use super::*;

/// What each process gets from a call that all of them make.
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
        peers.share("a test", mine).expect_err("one has failed").to_string()
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
        peers.share("a test", Ok(Vec::new())).expect_err("it has left").to_string()
    });
    assert_eq!(all[1], "process 0: the disk is full");
    let all = all_call(2, |peers| match peers.process() {
        0 => String::new(),
        _ => peers.share("a test", Ok(Vec::new())).expect_err("it has left").to_string(),
    });
    assert_eq!(all[1], "process 0: it has ended");
}

/// The one that hears it may not have noticed the loss itself. It has to know of it to join the run again.
#[test]
fn a_process_that_leaves_because_another_was_lost_says_which() {
    let all = all_call(3, |peers| {
        if peers.process() == 2 {
            let (process, loss) = (1, ProcessLoss::Closed);
            peers.fail(&Error::ProcessGone { process, loss });
            return None;
        }
        match peers.share("a test", Ok(Vec::new())) {
            Err(Error::ProcessGone { process, .. }) => Some(process),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(all, [Some(1), Some(1), None]);
}

#[test]
fn processes_that_are_not_at_the_same_call_are_told() {
    let all = all_call(2, |peers| {
        let what = ["saving", "training"][peers.process() as usize];
        peers.share(what, Ok(Vec::new())).expect_err("another call").to_string()
    });
    assert_eq!(
        all[0],
        "process 1 is at `training`, process 0 at `saving`: all processes must make the same calls"
    );
}

/// By how much the clock of each process is later than the clock of the process before it.
const APART: Duration = Duration::from_secs(1000);

#[test]
fn clocks_of_processes_are_compared_to_within_the_time_that_it_takes() {
    let now = Instant::now();
    let all = in_processes(3, |world| {
        let (process, mesh) = (world.process(), Mesh::new([1, 3, 1], 3, &[]).expect("a rank each"));
        let (_ends, peers) = fabric::ends::<Tensor>(world, &mesh, 1, 100).expect("connected");
        let offset = peers.offset(now - process * APART).expect("compared");
        (offset, now.elapsed().as_secs_f64())
    });
    // A question and its answer both lie within the time that process 0 has taken.
    let [(first, took), others @ ..] = &all[..] else { panic!("three processes") };
    assert_eq!(*first, 0.0);
    for ((offset, _), process) in others.iter().zip(1u32..) {
        let expected = -(process * APART).as_secs_f64();
        assert!((offset - expected).abs() <= *took, "{offset}, not {expected}");
    }
}

/// The end of the only rank of each of two processes, and its peers.
fn two_processes<T: Send>(call: impl Fn(u32, End<Tensor>, Peers) -> T + Sync) -> Vec<T> {
    in_processes(2, |world| {
        let (process, mesh) = (world.process(), Mesh::new([1, 2, 1], 2, &[]).expect("a rank each"));
        let (mut ends, peers) = fabric::ends::<Tensor>(world, &mesh, 2, 100).expect("connected");
        call(process, ends.pop().expect("one rank"), peers)
    })
}

const DIFFERENT: [&str; 2] = [
    "process 1 is at `step(3)`, process 0 at `save(here)`: all processes must make the same calls",
    "process 0 is at `save(here)`, process 1 at `step(3)`: all processes must make the same calls",
];

#[test]
fn another_call_in_one_process_is_an_error_in_both_before_any_rank_has_to_answer() {
    let all = two_processes(|process, _end, peers| {
        let announced = match process {
            0 => peers.announce(format_args!("save({})", "here")),
            _ => peers.announce(format_args!("step({})", 3)),
        };
        // The first process to wait learns it there.
        let told = announced.and_then(|_| peers.share("the end of the call", Ok(Vec::new())));
        told.expect_err("two calls").to_string()
    });
    assert_eq!(all, DIFFERENT);
}

#[test]
fn another_call_in_one_process_ends_the_waits_of_ranks_in_their_transport() {
    let all = two_processes(|process, mut end, peers| {
        if process == 0 {
            // Process 1 has started its call.
            end.recv_bytes(WorldRank(1), Tag(0)).expect("told");
            let announced = peers.announce(format_args!("save(here)"));
            let told = announced.and_then(|_| end.wait(WorldRank(1), Tag(0)));
            let told = told.expect_err("two calls").to_string();
            peers.share("the end of the test", Ok(Vec::new())).expect_err("still");
            return told;
        }
        peers.announce(format_args!("step({})", 3)).expect("the first");
        end.send_bytes(WorldRank(0), Tag(0), Vec::new()).expect("sent");
        end.wait(WorldRank(0), Tag(0)).expect_err("two calls").to_string()
    });
    assert_eq!(all, DIFFERENT);
}

#[test]
fn equal_calls_have_equal_numbers_in_all_processes() {
    let all = two_processes(|_, _end, peers| {
        let calls = [(); 3].map(|()| peers.announce(format_args!("step()")).expect("the same").number);
        peers.share("the end of the test", Ok(Vec::new())).expect("all");
        calls
    });
    assert_eq!(all, [[1, 2, 3]; 2]);
    assert_eq!(Peers::none().announce(format_args!("step()")).expect("alone").number, 1);
}

#[test]
fn processes_that_are_not_alike_are_told_the_first_part_that_differs() {
    let all = two_processes(|process, _end, peers| {
        let parts = |numbers: [u32; 3]| {
            let names = ["the cut", "the data", "the seed"];
            let parts = names.iter().zip(numbers);
            Ok(parts.map(|(name, value)| ((*name).to_owned(), value.to_string())).collect())
        };
        peers.compare("comparing", parts([1, 2, 3])).expect("alike");
        let others = [[1, 2, 3], [1, 5, 6]][process as usize];
        peers.compare("comparing again", parts(others)).expect_err("not alike").to_string()
    });
    let told = "process 1 differs from process 0 in the data: it has 5, process 0 has 2";
    assert_eq!(all, [told, told]);
}

#[test]
fn a_part_that_cannot_be_read_is_named_with_its_process_and_its_call() {
    let all = two_processes(|process, _end, peers| match process {
        // A list of 3, without them.
        0 => peers.share("comparing", Ok(vec![3])).expect("shared").len().to_string(),
        _ => peers.compare("comparing", Ok(Vec::new())).expect_err("3 are missing").to_string(),
    });
    let start = "process 0's part in `comparing` cannot be read: ";
    assert!(all[0] == "2" && all[1].starts_with(start), "{all:?}");
}

/// What `ask` gives process 0 of three, when process 1 says nothing for as long and process 2 does `other`.
fn beside_a_silent_one(ask: fn(&Peers) -> Error, other: fn(Peers)) -> String {
    let (told, silent) = crossbeam_channel::bounded::<()>(0);
    let mut all = in_processes(3, |world| {
        let process = world.process();
        let mesh = Mesh::new([1, 3, 1], 3, &[]).expect("a rank each");
        let (_ends, peers) = fabric::ends::<Tensor>(world, &mesh, 1, 100).expect("connected");
        match process {
            0 => {
                let error = ask(&peers).to_string();
                told.send(()).expect("the second one waits");
                error
            }
            1 => {
                silent.recv().expect("told");
                String::new()
            }
            _ => {
                other(peers);
                String::new()
            }
        }
    });
    all.swap_remove(0)
}

/// The error of a call that all have to make.
fn share(peers: &Peers) -> Error {
    peers.share("a test", Ok(Vec::new())).expect_err("one has left")
}

#[test]
fn a_process_that_says_nothing_does_not_hide_the_end_of_another() {
    assert_eq!(beside_a_silent_one(share, drop), "process 2: it has ended");
}

#[test]
fn a_process_that_says_nothing_does_not_hide_that_another_failed_after_its_part() {
    let fail_after_its_part = |mut peers: Peers| {
        // It ends its call right after it has told its part.
        let interrupt = Interrupt::new();
        interrupt.request_now();
        peers.heed(interrupt);
        peers.fail(&share(&peers));
    };
    let told = beside_a_silent_one(share, fail_after_its_part);
    assert!(told.starts_with("process 2: interrupted"), "{told}");
}

#[test]
fn what_another_process_says_has_no_characters_that_a_terminal_obeys() {
    let all = all_call(2, |peers| {
        if peers.process() == 0 {
            peers.fail(&Error::Panicked("\u{1b}[2Jgone\r\nand over".to_owned()));
            return String::new();
        }
        let error = peers.share("a test", Ok(Vec::new())).expect_err("it has left");
        error.to_string()
    });
    assert_eq!(all[1], "process 0: panicked: \\u{1b}[2Jgone\\r\nand over");
}

#[test]
fn clocks_are_not_waited_for_when_another_process_has_failed() {
    let clocks = |peers: &Peers| peers.offset(Instant::now()).expect_err("one has left");
    let fail = |peers: Peers| peers.fail(&Error::Panicked("over".to_owned()));
    assert_eq!(beside_a_silent_one(clocks, fail), "process 2: panicked: over");
}
