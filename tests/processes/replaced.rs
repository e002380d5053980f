//! A process that has gone is replaced, and the run goes on with the same bits.

use super::*;

/// A run of so many processes that goes on when it loses some.
struct Replaced {
    place: Place,
    address: String,
    args: Vec<String>,
    /// By process.
    started: Vec<Option<Started>>,
}

const STEPS: &str = "200";

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
        let args: Vec<&str> = self
            .args
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect();
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

    /// Waits until all have ended, with the weights of a run of one process. Returns what process 0 has said.
    fn end(self) -> Ended {
        let ended: Vec<Ended> = self.started.into_iter().flatten().map(Started::end).collect();
        let whole = ["--steps", STEPS, "--weights-hash", "--run-dir", "whole"];
        let whole = self
            .place
            .alone(&[&whole[..], &["--set", "train.validate_every=0"]].concat())
            .done();
        let mut done = ended.into_iter().map(Ended::done);
        let first = done.next().expect("process 0");
        assert_eq!(first.hash(), whole.hash());
        assert_eq!(self.place.numbers("runs/small"), self.place.numbers("whole"));
        for other in done {
            assert_eq!(other.stdout, "", "only process 0 speaks");
        }
        first
    }
}

#[test]
fn a_process_that_is_killed_is_replaced_by_one_with_its_number() {
    for (processes, victim) in [(2, 1), (3, 1), (3, 2)] {
        let stages = format!("pipeline.stages={processes}");
        let mut run = Replaced::start(processes, &[&stages]);
        run.await_steps(30);
        run.kill(victim);
        run.begin(victim, &[]);
        let said = run.end().stderr;
        let lost = format!(
            "warning: process {victim} has stopped without saying why: it was killed, or its machine or the \
             network failed; the run goes on when a process with its RANK has come in its place, within 60 s \
             (loss 1 of 2 that are allowed without a new step)\n"
        );
        assert!(said.contains(&lost), "{said}");
    }
}
