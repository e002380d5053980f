//! A process that has gone is replaced, and the run goes on with the same bits.

use pipewright::Error;
use pipewright::run::Losses;

use super::*;

/// A run of so many processes that goes on when it loses some.
struct Replaced {
    place: Place,
    address: String,
    args: Vec<String>,
    /// By process.
    started: Vec<Option<Started>>,
}

const STEPS: &str = "100";

impl Replaced {
    fn start(processes: u32, more: &[&str]) -> Self {
        let sets = [
            "train.restarts=2",
            "train.validate_every=0",
            "checkpoint.every=20",
        ];
        let sets = sets.iter().chain(more).flat_map(|set| ["--set", set]);
        let args = ["--steps", STEPS, "--weights-hash"].into_iter().chain(sets);
        let mut run = Self {
            place: Place::new(),
            address: worlds::free_address(),
            args: args.map(str::to_owned).collect(),
            started: (0..processes).map(|_| None).collect(),
        };
        (0..processes).for_each(|process| run.begin(process, &[]));
        run
    }

    /// Starts a process, for the first time or in the place of another one.
    fn begin(&mut self, process: u32, more: &[&str]) {
        let args = self.args.iter().map(String::as_str);
        let args: Vec<&str> = args.chain(more.iter().copied()).collect();
        let processes = self.started.len() as u32;
        let member = self.place.member(process, processes, &self.address, &args);
        self.started[process as usize] = Some(Started::new(member));
    }

    /// Waits until the run has done so many steps.
    fn await_steps(&self, steps: usize) {
        let since = Instant::now();
        let done = || fs::read_to_string(self.place.path("runs/small/metrics.jsonl"));
        while !done().is_ok_and(|text| text.lines().count() >= steps) {
            assert!(since.elapsed() < PATIENCE, "it does not train");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&mut self, process: u32) {
        drop(self.started[process as usize].take());
    }

    fn take(&mut self, process: usize) -> Started {
        self.started[process].take().expect("started")
    }

    /// Waits until all have ended, with the weights and the numbers of a run of one process.
    fn end(self) -> Vec<Ended> {
        let ended = end_all(self.started.into_iter().flatten().collect());
        let whole = ["--steps", STEPS, "--weights-hash", "--run-dir", "whole"];
        let whole = [&whole[..], &["--set", "train.validate_every=0"]].concat();
        let whole = self.place.alone(&whole).done();
        let ended: Vec<Ended> = ended.into_iter().map(Ended::done).collect();
        assert_eq!(ended[0].hash(), whole.hash());
        assert_eq!(self.place.numbers("runs/small"), self.place.numbers("whole"));
        for other in &ended[1..] {
            assert_eq!(other.stdout, "", "only process 0 speaks");
        }
        ended
    }
}

#[test]
fn a_process_that_is_killed_is_replaced_by_one_with_its_number() {
    for (processes, victim) in [(2, 1), (3, 2)] {
        let stages = format!("pipeline.stages={processes}");
        let mut run = Replaced::start(processes, &[&stages]);
        run.await_steps(30);
        run.kill(victim);
        run.begin(victim, &[]);
        let said = &run.end()[0].stderr;
        let lost = format!(
            "process 0: warning: process {victim} has stopped without saying why: it was killed, or its \
             machine or the network failed; the run goes on when another one has come with its RANK, \
             within 60 s (loss 1 of 2 that are allowed without a new step)\n"
        );
        assert!(said.contains(&lost), "{said}");
    }
}

#[test]
fn two_that_go_at_once_are_replaced() {
    let mut run = Replaced::start(4, &["pipeline.stages=2", "pipeline.replicas=2"]);
    run.await_steps(30);
    run.kill(3);
    run.kill(1);
    run.begin(1, &[]);
    run.begin(3, &[]);
    run.end();
}

#[test]
fn one_that_goes_while_the_others_wait_for_another_is_replaced_too() {
    let mut run = Replaced::start(3, &["pipeline.stages=3"]);
    run.await_steps(30);
    run.kill(1);
    let first = run.started[0].as_mut().expect("started");
    first.await_said("has come with its RANK");
    run.kill(2);
    run.begin(2, &[]);
    run.begin(1, &[]);
    run.end();
}

#[test]
fn process_0_is_replaced_by_one_that_resumes() {
    let mut run = Replaced::start(3, &["pipeline.stages=3"]);
    run.await_steps(30);
    run.kill(0);
    run.begin(0, &["--resume"]);
    let others = run.end();
    for (process, other) in [1, 2].into_iter().zip(&others[1..]) {
        let lost = format!(
            "process {process}: warning: process 0 has stopped without saying why: it was killed, or its \
             machine or the network failed; the run goes on when it has been started again with \
             --resume, within 60 s"
        );
        assert!(other.stderr.contains(&lost), "{}", other.stderr);
    }
}

#[test]
fn any_number_may_go_if_each_time_there_is_a_new_step() {
    let mut run = Replaced::start(2, &["pipeline.stages=2", "train.restarts=1"]);
    for steps in [25, 45, 65] {
        run.await_steps(steps);
        run.kill(1);
        run.begin(1, &[]);
    }
    run.end();
}

#[test]
fn one_that_goes_each_time_ends_the_run() {
    let mut losses = Losses::new(2);
    assert_eq!(losses.after(Error::ProcessGone(1), 20).expect("the first"), 1);
    assert_eq!(losses.after(Error::ProcessGone(1), 20).expect("the second"), 2);
    let error = losses.after(Error::ProcessGone(1), 0).expect_err("one too many");
    let expected = "process 1 has stopped without saying why: it was killed, or its machine or the network \
                    failed; processes were replaced 2 times, and the run did no new step with them";
    assert_eq!(error.to_string(), expected);
    let cause = "the disk is full".to_owned();
    let other = Error::Process { process: 1, cause };
    let error = Losses::new(2).after(other, 20).expect_err("it says why");
    assert_eq!(error.to_string(), "process 1: the disk is full");
}

#[test]
fn a_run_in_which_nobody_comes_ends_and_names_who_is_missing() {
    let mut run = Replaced::start(2, &["pipeline.stages=2", "launch.deadline=2"]);
    run.await_steps(30);
    run.kill(1);
    let said = run.take(0).end().failed(1);
    let missing = format!(
        "process 0: error: process 1 of 2 did not come to {} within 2 s: start it, or give more time \
         (launch.deadline)\n",
        run.address
    );
    assert!(said.ends_with(&missing), "{said}");
    assert!(
        said.contains("checkpoints/step-00000020: the run goes on from it\n"),
        "{said}"
    );
}
