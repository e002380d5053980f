//! Processes that are lost and replaced while the others go on: the weights are those of an undisturbed run.

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::thread::JoinHandle;

use super::*;

/// A run with restarts. Process 0 cannot do all of its steps before [`Throttled::free`].
struct Throttled {
    place: Place,
    address: String,
    size: u32,
    args: Vec<String>,
    /// By process.
    running: Vec<Option<Started>>,
    screen: Screen,
}

/// What process 0 prints.
enum Screen {
    /// Nobody reads it, and there is room for few lines.
    Full(PipeReader),
    Read(JoinHandle<String>),
}

/// The steps of these runs.
const STEPS: &str = "150";

/// So many bytes are in a full pipe, less the room for some steps.
const FILLED: usize = (1 << 16) - (1 << 12);

impl Throttled {
    fn start(size: u32, sets: &[&str]) -> Self {
        let mut args: Vec<String> = ["--weights-hash".to_owned()].into();
        let usual = [
            "train.restarts=3",
            "train.snapshot_every=5",
            "train.validate_every=0",
            "checkpoint.every=0",
            "launch.deadline=300",
        ];
        let steps = format!("train.steps={STEPS}");
        for set in usual.iter().chain([&steps.as_str()]).chain(sets) {
            args.extend(["--set".to_owned(), (*set).to_owned()]);
        }
        let (reader, writer) = pipe().unwrap();
        let mut run = Self {
            place: Place::new(),
            address: worlds::free_address(),
            size,
            args,
            running: (0..size).map(|_| None).collect(),
            screen: Screen::Full(reader),
        };
        run.running[0] = Some(run.first(writer));
        (1..size).for_each(|process| run.begin(process));
        run
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    fn first(&self, mut writer: PipeWriter) -> Started {
        writer.write_all(&vec![b'\n'; FILLED]).unwrap();
        let mut command = self.place.member(0, self.size, &self.address, &self.args());
        Started(command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Starts a process, or another one in its place.
    fn begin(&mut self, process: u32) {
        let command = self.place.member(process, self.size, &self.address, &self.args());
        self.running[process as usize] = Some(Started::new(command));
    }

    /// Starts a spare.
    fn spare(&self) -> Started {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        let mut command = self.place.command(&[&self.args()[..], &["--spare"]].concat());
        command.env("MASTER_ADDR", host).env("MASTER_PORT", port);
        Started::new(command)
    }

    /// Waits until so many steps are done.
    fn await_step(&self, steps: usize) {
        let metrics = self.place.path("runs/small/metrics.jsonl");
        let since = Instant::now();
        while !fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() >= steps) {
            assert!(since.elapsed() < PATIENCE, "it does not train");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn kill(&mut self, process: u32) {
        let mut victim = self.running[process as usize].take().expect("it runs");
        victim.0.kill().unwrap();
        victim.0.wait().unwrap();
    }

    /// Process 0 can print again.
    fn free(&mut self) {
        if let Screen::Full(reader) = &self.screen {
            let mut reader = reader.try_clone().unwrap();
            self.screen = Screen::Read(std::thread::spawn(move || {
                let mut said = String::new();
                reader.read_to_string(&mut said).unwrap();
                said
            }));
        }
    }

    /// Waits until process 0 has said this on its standard error.
    fn await_said(&mut self, words: &str) -> String {
        self.running[0].as_mut().expect("it runs").await_said(words)
    }

    /// How process 0 ends.
    fn end_first(mut self) -> (Place, Ended) {
        self.running.truncate(1);
        let (place, mut ended) = self.end();
        (place, ended.remove(0))
    }

    /// How all end, by process.
    fn end(mut self) -> (Place, Vec<Ended>) {
        self.free();
        let all = self
            .running
            .iter_mut()
            .map(|running| running.take().expect("it runs"));
        let mut ended: Vec<Ended> = all.map(Started::end).collect();
        let Screen::Read(reading) = self.screen else {
            unreachable!("it was freed");
        };
        ended[0].stdout = reading.join().unwrap().trim_start().to_owned();
        (self.place, ended)
    }

    /// All end well, with the weights of a run without a loss, and each step is told once.
    #[track_caller]
    fn ends_as_if_nothing_had_happened(self) -> String {
        let args = self.args.clone();
        let (place, ended) = self.end();
        let first = ended.into_iter().map(Ended::done).next().unwrap();
        let steps = |run: &str| place.numbers(run);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let whole = place.alone(&[&args[..], &["--run-dir", "whole"]].concat()).done();
        assert_eq!(first.hash(), whole.hash());
        assert_eq!(steps("runs/small"), steps("whole"));
        first.stderr
    }
}

#[test]
fn a_process_that_is_started_again_takes_its_place_with_the_same_bits() {
    for (size, victim) in [(2, 1), (3, 1), (3, 2)] {
        let stages = format!("pipeline.stages={size}");
        let mut run = Throttled::start(size, &[&stages]);
        run.await_step(12);
        run.kill(victim);
        run.begin(victim);
        let said = run.ends_as_if_nothing_had_happened();
        assert!(
            said.contains(&format!("process {victim} has stopped without saying why")),
            "{said}"
        );
        assert!(said.contains("from what the processes kept in memory"), "{said}");
    }
}

#[test]
fn processes_that_are_not_neighbours_are_replaced_at_once() {
    let mut run = Throttled::start(4, &["pipeline.stages=4"]);
    run.await_step(12);
    run.kill(1);
    run.kill(3);
    run.begin(3);
    run.begin(1);
    let said = run.ends_as_if_nothing_had_happened();
    assert!(said.contains("from what the processes kept in memory"), "{said}");
}

#[test]
fn replicas_with_a_sharded_optimizer_are_replaced() {
    let sets = [
        "pipeline.stages=2",
        "pipeline.replicas=2",
        "optimizer.sharded=true",
    ];
    for victim in [1, 3] {
        let mut run = Throttled::start(4, &sets);
        run.await_step(12);
        run.kill(victim);
        run.begin(victim);
        run.ends_as_if_nothing_had_happened();
    }
}

#[test]
fn a_run_loses_several_processes_one_after_the_other() {
    let mut run = Throttled::start(3, &["pipeline.stages=3"]);
    for (step, victim) in [(8, 1), (16, 2), (24, 1)] {
        run.await_step(step);
        run.kill(victim);
        run.begin(victim);
    }
    let said = run.ends_as_if_nothing_had_happened();
    assert_eq!(said.matches("the run goes on with step").count(), 3, "{said}");
}

#[test]
fn processes_may_be_lost_at_any_moment_of_a_step_with_all_that_belongs_to_it() {
    let evaluates = ["train.validate_every=1", "train.validation_micro_batches=16"];
    for sets in [
        &evaluates[..],
        &["checkpoint.every=1"],
        &["checkpoint.every=1", "checkpoint.beside=false"],
        &["train.snapshot_every=1"],
    ] {
        for step in [3, 10] {
            let mut run = Throttled::start(2, sets);
            run.await_step(step);
            run.kill(1);
            run.begin(1);
            run.ends_as_if_nothing_had_happened();
        }
    }
}

#[test]
fn a_process_is_lost_while_all_join_again() {
    let mut run = Throttled::start(4, &["pipeline.stages=4"]);
    run.await_step(12);
    run.kill(1);
    run.await_said("the run waits");
    // One that would join again, and one that takes a place.
    run.kill(3);
    run.begin(1);
    run.kill(1);
    run.begin(3);
    run.begin(1);
    run.ends_as_if_nothing_had_happened();
}

#[test]
fn neighbours_that_are_lost_together_are_replaced_from_the_last_checkpoint() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", "checkpoint.every=4"]);
    run.await_step(12);
    run.kill(1);
    run.kill(2);
    run.begin(1);
    run.begin(2);
    let said = run.ends_as_if_nothing_had_happened();
    assert!(said.contains("from runs/small/checkpoints/step-000000"), "{said}");
}

#[test]
fn neighbours_that_are_lost_together_before_the_first_checkpoint_end_the_run() {
    let mut run = Throttled::start(3, &["pipeline.stages=3"]);
    run.await_step(12);
    run.kill(1);
    run.kill(2);
    run.begin(1);
    run.begin(2);
    let (_, ended) = run.end();
    for process in ended {
        let said = process.failed_somehow();
        assert!(
            said.contains("were lost together, and there is no checkpoint yet"),
            "{said}"
        );
    }
}

#[test]
fn the_first_process_cannot_be_replaced() {
    let mut run = Throttled::start(3, &["pipeline.stages=3", "checkpoint.every=4"]);
    run.await_step(12);
    run.kill(0);
    for process in [1, 2] {
        let said = run.running[process].take().unwrap().end().failed(1);
        assert!(said.contains("it is the one that cannot be replaced"), "{said}");
        assert!(
            said.contains("continues from runs/small/checkpoints/step-0000"),
            "{said}"
        );
    }
}

#[test]
fn processes_are_replaced_as_often_as_the_config_says() {
    let mut run = Throttled::start(2, &["train.restarts=1"]);
    run.await_step(8);
    run.kill(1);
    run.begin(1);
    run.await_step(16);
    run.kill(1);
    let said = run.running[0].take().unwrap().end().failed(1);
    assert!(
        said.contains("error: process 1 has stopped without saying why"),
        "{said}"
    );
    assert!(said.contains("processes were replaced 1 times before"), "{said}");
}

#[test]
fn without_restarts_a_lost_process_ends_the_run() {
    let mut run = Throttled::start(2, &["train.restarts=0"]);
    run.await_step(8);
    run.kill(1);
    let said = run.running[0].take().unwrap().end().failed(1);
    assert!(!said.contains("waits"), "{said}");
}

/// Waits until process 0 knows a spare. Returns what it says then.
fn await_known(spare: &mut Started) -> String {
    let (out, mut said) = (spare.0.stdout.as_mut().unwrap(), String::new());
    while !said.ends_with('\n') {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("it is known");
        said.push(char::from(byte[0]));
    }
    said
}

#[test]
fn spares_take_the_places_of_lost_processes() {
    let mut run = Throttled::start(3, &["pipeline.stages=3"]);
    let mut spares = [run.spare(), run.spare(), run.spare()];
    for spare in &mut spares {
        assert_eq!(
            await_known(spare),
            format!("a spare of the run at {}\n", run.address)
        );
    }
    for (step, victim) in [(8, 2), (16, 1)] {
        run.await_step(step);
        run.kill(victim);
    }
    run.await_step(24);
    // The spares are processes 1 and 2 now.
    let (place, args) = (run.place.path("."), run.args.clone());
    let first = run.end_first();
    let mut said = spares.map(|spare| spare.end().done().stdout);
    said.sort();
    let takes = |process| format!("takes the place of process {process}\n");
    assert_eq!(said, [takes(1), takes(2), "the run has ended\n".to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let whole = first
        .0
        .alone(&[&args[..], &["--run-dir", "whole"]].concat())
        .done();
    assert_eq!(first.1.done().hash(), whole.hash(), "in {}", place.display());
    assert_eq!(first.0.numbers("runs/small"), first.0.numbers("whole"));
}

#[test]
fn a_spare_that_has_died_is_passed_over() {
    let mut run = Throttled::start(2, &[]);
    let mut spares = [run.spare(), run.spare()];
    for spare in &mut spares {
        await_known(spare);
    }
    let [living, mut dead] = spares;
    dead.0.kill().unwrap();
    dead.0.wait().unwrap();
    run.await_step(8);
    run.kill(1);
    let (_, ended) = run.end_first();
    ended.done();
    assert_eq!(living.end().done().stdout, "takes the place of process 1\n");
}

#[test]
fn a_spare_ends_with_its_run() {
    let run = Throttled::start(2, &[]);
    let mut spare = run.spare();
    await_known(&mut spare);
    let (_, ended) = run.end();
    ended.into_iter().for_each(|process| drop(process.done()));
    assert_eq!(spare.end().done().stdout, "the run has ended\n");

    let mut run = Throttled::start(2, &[]);
    let mut spare = run.spare();
    await_known(&mut spare);
    run.kill(0);
    let said = spare.end().failed(2);
    assert!(said.contains("error: process 0 at "), "{said}");
}

#[test]
fn a_run_without_restarts_needs_no_spare() {
    let run = Throttled::start(2, &["train.restarts=0"]);
    let said = run.spare().end().failed(2);
    assert!(
        said.contains("a spare takes the place of a process that is lost"),
        "{said}"
    );
}
