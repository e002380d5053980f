//! A process is asked to end by SIGTERM, and leaves. The others go on without it: the weights are the same as
//! in an undisturbed run.

use super::throttled::{LONGER, MANY, Throttled};
use super::*;

/// A run that may go on with one process.
fn leaving(size: u32, sets: &[&str]) -> Throttled {
    Throttled::start(size, &[&["launch.fewest=1"], sets].concat())
}

impl Throttled {
    /// Asks a process to end.
    fn ask(&self, process: u32) {
        self.running[process as usize].as_ref().expect("it runs").signal("-TERM");
    }

    /// Asks a process to end, and waits until it has left and the others go on. Returns what process 0 has
    /// said.
    #[track_caller]
    pub(super) fn leaves(&mut self, process: u32) -> String {
        self.ask(process);
        let said = self.await_return();
        self.has_left(process);
        said
    }

    /// The process has left. Returns what it has said.
    #[track_caller]
    fn has_left(&mut self, process: u32) -> String {
        self.running[process as usize].take().expect("it runs").end().failed(130)
    }
}

#[test]
fn the_others_go_on_when_a_process_is_asked_to_end() {
    for (size, asked, layout) in [
        (2, 1, &["pipeline.stages=2"][..]),
        (3, 1, &["pipeline.stages=3"]),
        (3, 2, &["pipeline.stages=3", "train.snapshot_every=10000"]),
        (4, 3, &["pipeline.stages=2", "pipeline.replicas=2", "optimizer.sharded=true"]),
        (4, 2, &["pipeline.stages=2", "pipeline.shards=2"]),
    ] {
        // Nobody waits for a deadline of 300 s.
        let mut run = leaving(size, layout);
        run.await_step(8);
        run.ask(asked);
        let said = run.await_return();
        let leaves = format!("process {asked} leaves before step ");
        has(&said, &[&leaves, &format!("{} of {size} processes are there after", size - 1)]);
        has(&run.has_left(asked), &[&leaves, "it was asked to end, and the others go on"]);
        run.running.remove(asked as usize);
        has(&run.ends_as_if_nothing_had_happened(), &["kept in memory, and repeats 0 steps"]);
    }
}

#[test]
fn processes_leave_one_after_the_other_until_one_is_left() {
    let mut run = leaving(4, &["pipeline.stages=4", MANY]);
    for (step, asked, left) in [(8, 2, 3), (16, 1, 2), (24, 3, 1)] {
        run.await_step(step);
        has(&run.leaves(asked), &[&format!("{left} of 4 processes are there after")]);
    }
    run.running.truncate(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn neighbours_leave_at_the_same_time() {
    let mut run = leaving(4, &["pipeline.stages=4", MANY]);
    run.await_step(8);
    [1, 2].iter().for_each(|asked| run.ask(*asked));
    run.await_return();
    run.await_return();
    [1, 2].iter().for_each(|asked| drop(run.has_left(*asked)));
    run.running.drain(1..3);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_process_that_has_left_comes_back() {
    let mut run = leaving(3, &["pipeline.stages=3", LONGER]);
    run.await_step(8);
    run.leaves(1);
    run.begin(1);
    run.await_noted("all processes are there after");
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn one_that_waits_at_the_door_takes_the_place_at_once() {
    let mut run = leaving(3, &["pipeline.stages=3", LONGER]);
    run.await_step(8);
    let newcomer = Started::new(run.place.member(1, 3, &run.address, &run.args()));
    std::thread::sleep(Duration::from_millis(500));
    run.ask(1);
    run.await_noted("all processes are there after");
    run.has_left(1);
    run.running[1] = Some(newcomer);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn one_that_waits_at_the_door_and_is_asked_to_end_disturbs_nobody() {
    let mut run = leaving(3, &["pipeline.stages=3", "launch.deadline=3", MANY]);
    run.await_step(8);
    let double = Started::new(run.place.member(1, 3, &run.address, &run.args()));
    std::thread::sleep(Duration::from_millis(500));
    double.signal("-TERM");
    double.end().failed(130);
    has(&run.leaves(2), &["2 of 3 processes are there after"]);
    run.running.truncate(2);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_double_does_not_take_the_place_of_a_process_that_is_there() {
    let mut run = leaving(3, &["pipeline.stages=3", MANY]);
    run.await_step(8);
    let double = Started::new(run.place.member(1, 3, &run.address, &run.args()));
    std::thread::sleep(Duration::from_millis(500));
    has(&run.leaves(2), &["2 of 3 processes are there after"]);
    run.running.truncate(2);
    run.ends_as_if_nothing_had_happened();
    has(&double.end().failed(2), &["the run has ended before it took this process in"]);
}

#[test]
fn a_spare_takes_the_place_of_a_process_that_has_left() {
    let mut run = leaving(3, &["pipeline.stages=3", LONGER]);
    let spare = run.spare();
    run.await_step(8);
    run.leaves(2);
    run.await_noted("all processes are there after");
    run.running[2] = Some(spare);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn a_process_leaves_after_the_model_was_cut_elsewhere() {
    let mut run = leaving(2, &[LONGER]);
    run.await_step(8);
    let dir = pipewright::run::RunDir::at(run.place.path("runs/small"));
    dir.ask_for_cut(pipewright::run::Change::layers(vec![1, 7])).unwrap();
    run.await_noted("cut anew after ");
    run.ask(1);
    run.await_noted("1 of 2 processes are there after");
    run.has_left(1);
    run.running.truncate(1);
    let history = fs::read_to_string(dir.history()).unwrap();
    assert!(!history.contains("with the cut at launch"), "{history}");
    run.ends_as_if_nothing_had_happened();
}

/// For the others it is another process that was lost. With four, what it had is in another one's memory.
#[test]
fn one_that_is_asked_to_end_while_the_run_waits_ends_alone() {
    for (size, killed, asked, from) in
        [(3, 1, 2, "from runs/small/checkpoints/step-"), (4, 1, 3, "from what the processes kept in memory")]
    {
        let stages = format!("pipeline.stages={size}");
        let mut run = leaving(size, &[&stages, "launch.deadline=4", "checkpoint.every=4", MANY]);
        run.await_step(8);
        run.kill(killed);
        run.await_noted("the run waits 4 s at most");
        run.ask(asked);
        let said = run.has_left(asked);
        has(&said, &[&format!("process {asked} was asked to end while the run waits: the others may go on")]);
        let there = format!("{} of {size} processes are there after", size - 2);
        has(&run.await_return(), &[&there]);
        run.running.retain(Option::is_some);
        has(&run.ends_as_if_nothing_had_happened(), &[from]);
    }
}

/// Where all are needed, and in process 0, it ends the run for all.
#[test]
fn who_is_needed_ends_the_run_for_all_while_it_waits() {
    for (sets, asked) in [(&["launch.fewest=3"][..], 2), (&["launch.fewest=1"], 0)] {
        let sets = [sets, &["pipeline.stages=3", "launch.deadline=60", "checkpoint.every=4", MANY]].concat();
        let mut run = Throttled::start(3, &sets);
        run.await_step(8);
        run.kill(1);
        run.await_noted("the run waits 60 s at most");
        run.ask(asked);
        run.running.remove(1);
        let (_, ended) = run.end();
        for one in ended {
            has(&one.failed(1), &["was asked to end while the run waited for all its processes"]);
        }
    }
}

#[test]
fn checkpoints_are_those_of_an_undisturbed_run() {
    let sets =
        ["pipeline.stages=3", "checkpoint.every=7", "checkpoint.keep=2", "train.validate_every=7", MANY];
    let mut run = leaving(3, &sets);
    run.await_step(8);
    run.leaves(1);
    run.running.remove(1);
    let args = run.args.clone();
    let (place, ended) = run.end();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let whole = place.alone(&[&args[..], &["--run-dir", "whole"]].concat()).done();
    let first = ended.into_iter().map(Ended::done).next().unwrap();
    assert_eq!(first.hash(), whole.hash());
    assert_eq!(place.numbers("runs/small"), place.numbers("whole"));
    let checkpoints = |run: &str| {
        let folders = fs::read_dir(place.path(&format!("{run}/checkpoints"))).unwrap();
        folders.map(|folder| folder.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(checkpoints("runs/small"), checkpoints("whole"));
}

#[test]
fn a_process_that_dies_while_it_leaves_is_a_lost_one() {
    let mut run = leaving(3, &["launch.deadline=3", "pipeline.stages=3", MANY]);
    run.await_step(8);
    let signal =
        |run: &Throttled, process: usize, signal| run.running[process].as_ref().unwrap().signal(signal);
    // The next process is stopped, so nobody has the leaver's weights yet.
    signal(&run, 2, "-STOP");
    run.ask(1);
    std::thread::sleep(Duration::from_millis(200));
    run.kill(1);
    signal(&run, 2, "-CONT");
    has(&run.await_return(), &["2 of 3 processes are there after"]);
    run.running.remove(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn where_process_0_or_too_many_are_asked_or_by_ctrl_c_the_run_ends_for_all() {
    for (size, fewest, asked, signal) in [
        (3, "launch.fewest=1", &[0][..], "-TERM"),
        (3, "launch.fewest=1", &[2], "-INT"),
        (3, "launch.fewest=1", &[2, 0], "-TERM"),
        (2, "launch.fewest=2", &[1], "-TERM"),
    ] {
        let stages = format!("pipeline.stages={size}");
        let run = Throttled::start(size, &[fewest, &stages, LONGER]);
        run.await_step(8);
        for process in asked {
            run.running[*process].as_ref().expect("it runs").signal(signal);
        }
        let (place, ended) = run.end();
        for ended in ended {
            ended.failed(130);
        }
        assert!(place.path("runs/small/checkpoints").read_dir().unwrap().next().is_some());
    }
}
