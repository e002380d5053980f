//! Processes that `mpirun` starts, and that MPI connects.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pipewright::Error;
use pipewright::error::DataError;
use pipewright::fabric::{self, End, Peers, Tag, Transport, WireFrame, World};
use pipewright::id::WorldRank;
use pipewright::stages::Tensor;
use pipewright_mpi::MpiMembership;

use crate::given::{Number, ROOM, mesh};

/// The variable that tells a process of these tests where the test listens.
pub(crate) const TEST: &str = "PIPEWRIGHT_TEST_MPI";

/// How long another process may be silent.
const SILENCE: Duration = Duration::from_secs(60);

/// This test program in `processes` processes, each with this test alone.
pub(crate) fn mpirun(processes: u32, test: &str) -> Command {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    // Two at once may both make the folder that all share otherwise, and one fails.
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("pw-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = Command::new("mpirun");
    command
        .env("OMPI_MCA_orte_tmpdir_base", folder)
        .args(["--allow-run-as-root", "--oversubscribe", "-n"])
        .arg(processes.to_string())
        .arg(std::env::current_exe().expect("the program knows itself"))
        .args([test, "--exact", "--nocapture", "--include-ignored"]);
    command
}

/// The place of a process that `mpirun` has started. `None` in the test's own process.
fn membership() -> Option<MpiMembership> {
    std::env::var(TEST).ok()?;
    let number = |name| std::env::var(name).ok()?.parse().ok();
    Some(MpiMembership {
        process: number("OMPI_COMM_WORLD_RANK")?,
        processes: number("OMPI_COMM_WORLD_SIZE")?,
        deadline: SILENCE,
        silence: SILENCE,
    })
}

pub(crate) fn world() -> Option<World> {
    membership().map(|membership| membership.join("the same").expect("all come"))
}

/// This process's end and the connection to the others.
pub(crate) fn end<W: WireFrame>(world: World) -> (End<W>, Peers) {
    let processes = world.processes();
    let made = fabric::ends(world, &mesh(processes, processes), 2, ROOM);
    let (mut ends, peers) = made.expect("the thread waits");
    (ends.pop().expect("one rank"), peers)
}

/// Runs `check` in each of `processes` processes, in the test of this name.
fn in_processes(processes: u32, test: &str, check: impl FnOnce(MpiMembership)) {
    in_processes_of(mpirun, processes, test, check);
}

/// The same in processes that this starts.
fn in_processes_of(
    start: impl FnOnce(u32, &str) -> Command,
    processes: u32,
    test: &str,
    check: impl FnOnce(MpiMembership),
) {
    if let Some(membership) = membership() {
        return check(membership);
    }
    let mut command = start(processes, &format!("joined::{test}"));
    let output = command.env(TEST, "alone").stdin(Stdio::null()).output();
    let output = output.expect("mpirun is there: these tests need it");
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    let passed = said[0].matches("1 passed").count();
    assert!(output.status.success() && passed == processes as usize, "{}{}", said[0], said[1]);
}

/// The same in processes that have joined.
fn in_worlds(processes: u32, test: &str, check: impl FnOnce(World)) {
    in_processes(processes, test, |membership| {
        check(membership.join("the same").expect("all come"));
    });
}

#[test]
fn wires_and_blocks_of_any_size_arrive_whole() {
    in_worlds(2, "wires_and_blocks_of_any_size_arrive_whole", |world| {
        let (mut end, peers) = end::<Tensor>(world);
        let peer = WorldRank(1 - end.rank().0);
        let sizes = [0, 1, 1000, 20_000, 100_000, 3_000_000, 3_000_000, 5];
        let numbers = |size: usize, of: u32| (0..size).map(|n| (n as u32 + of) as f32).collect::<Vec<_>>();
        let wire = |size, of| Tensor::from_vec(&[size], numbers(size, of)).expect("it fits");
        for round in 0..2 {
            let tags = || (100 * round..).map(Tag).zip(sizes);
            for (tag, size) in tags() {
                end.send(peer, tag, wire(size, end.rank().0)).expect("sent");
                end.send_bytes(peer, Tag(0), vec![7; size]).expect("sent");
            }
            for (tag, size) in tags() {
                let got = end.wait(peer, tag).expect("arrives");
                assert_eq!(got.f32(), numbers(size, peer.0));
                assert_eq!(end.recv_bytes(peer, Tag(0)).expect("arrives"), vec![7; size]);
            }
        }
        peers.share("the end", Ok(Vec::new())).expect("all come");
    });
}

#[test]
fn an_error_of_one_process_reaches_all() {
    in_worlds(3, "an_error_of_one_process_reaches_all", |world| {
        let (mut end, peers) = end::<Number>(world);
        let process = peers.process();
        let mine = match process {
            1 => Err(DataError::other("a bad disk").into()),
            _ => Ok(Vec::new()),
        };
        let error = peers.share("a test", mine).expect_err("process 1 has failed");
        let expected = match process {
            1 => "a bad disk",
            _ => "process 1: a bad disk",
        };
        assert!(error.to_string().starts_with(expected), "{error}");
        peers.fail(&error);
        let next = WorldRank((process + 1) % 3);
        let error = end.recv_bytes(next, Tag(0)).expect_err("it has left");
        assert!(matches!(error, Error::PeerGone(_)), "{error}");
    });
}

#[test]
fn processes_that_make_different_calls_all_learn_it() {
    let test = "processes_that_make_different_calls_all_learn_it";
    in_worlds(2, test, |world| {
        let (_end, peers) = end::<Number>(world);
        let call = ["step(3)", "evaluate(5)"][peers.process() as usize];
        let told = peers.announce(format_args!("{call}"));
        let told = told.and_then(|_| peers.share("a part", Ok(Vec::new())));
        let error = told.expect_err("they differ").to_string();
        assert!(error.contains("step(3)") && error.contains("evaluate(5)"), "{error}");
    });
}

#[test]
fn a_process_that_leaves_before_the_run_begins_is_missed_by_all() {
    let test = "a_process_that_leaves_before_the_run_begins_is_missed_by_all";
    in_worlds(2, test, |world| {
        if world.process() == 0 {
            return world.fail(&DataError::other("a bad disk").into());
        }
        let (_end, peers) = end::<Number>(world);
        let error = peers.share("a test", Ok(Vec::new())).expect_err("it has left");
        assert!(error.to_string().starts_with("process 0: a bad disk"), "{error}");
    });
}

#[test]
fn processes_of_one_machine_know_each_other() {
    in_worlds(3, "processes_of_one_machine_know_each_other", |world| {
        assert_eq!(world.local(), [0, 1, 2]);
        assert_eq!(world.local_rank(), world.process() as usize);
    });
}

#[test]
fn mpi_starts_once_a_process() {
    in_processes(2, "mpi_starts_once_a_process", |membership| {
        drop(membership.join("the same").expect("all come"));
        let error = membership.join("the same").expect_err("it was started");
        let expected = "MPI was started in this process before";
        assert!(error.to_string().starts_with(expected), "{error}");
    });
}

#[test]
fn all_processes_say_which_one_has_another_config() {
    let test = "all_processes_say_which_one_has_another_config";
    in_processes(3, test, |membership| {
        let program = ["[model]\ndim = 8", "[model]\ndim = 16"];
        let program = program[usize::from(membership.process == 2)];
        let error = membership.join(program).expect_err("they differ");
        assert_eq!(
            error.to_string(),
            "process 2 was started with another config: it has `[model] dim = 16`, process 0 \
             `[model] dim = 8`; start all with the same config and options"
        );
    });
}

#[test]
fn an_environment_of_another_launcher_is_refused_by_all() {
    let test = "an_environment_of_another_launcher_is_refused_by_all";
    in_processes(2, test, |membership| {
        let membership = MpiMembership { processes: 4, ..membership };
        let error = membership.join("the same").expect_err("MPI knows better");
        let expected = "two answers to where a process is: its environment says process 0 of 4, MPI says \
                        process 0 of 2";
        assert!(error.to_string().starts_with(expected), "{error}");
    });
}

/// Sends a signal to a process.
fn signal(name: &str, process: &str) {
    let sent = Command::new("kill").args([name, process]).status();
    assert!(sent.expect("the system has it").success());
}

/// Whether a process is stopped.
fn is_stopped(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// As [`mpirun`]. Open MPI does not read from the memory of a process that is stopped.
fn mpirun_by_copies(processes: u32, test: &str) -> Command {
    let mut command = mpirun(processes, test);
    command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    command
}

#[test]
fn a_frame_that_does_not_come_holds_up_no_frame_of_others() {
    let test = "a_frame_that_does_not_come_holds_up_no_frame_of_others";
    in_processes_of(mpirun_by_copies, 3, test, |membership| {
        let world = membership.join("the same").expect("all come");
        let (mut end, peers) = end::<Number>(world);
        let [first, second, third] = [0, 1, 2].map(WorldRank);
        let own = std::process::id().to_string();
        let all = peers.share("numbers", Ok(own.clone().into_bytes())).expect("all come");
        let half_sent = String::from_utf8(all[0].clone()).expect("a number");
        match end.rank() {
            WorldRank(0) => {
                end.send_bytes(third, Tag(0), vec![7; 1 << 27]).expect("sent");
                signal("-STOP", &own);
            }
            WorldRank(1) => {
                while !is_stopped(&half_sent) {
                    std::thread::yield_now();
                }
                end.send_bytes(third, Tag(1), vec![1]).expect("sent");
                assert_eq!(end.recv_bytes(third, Tag(1)).expect("arrives"), [2]);
                signal("-CONT", &half_sent);
            }
            _ => {
                assert_eq!(end.recv_bytes(second, Tag(1)).expect("arrives"), [1]);
                end.send_bytes(second, Tag(1), vec![2]).expect("sent");
                assert!(end.recv_bytes(first, Tag(0)).expect("arrives") == vec![7; 1 << 27]);
            }
        }
        peers.share("the end", Ok(Vec::new())).expect("all come");
    });
}
