//! A run that loses processes. It does not end before a test lets it.

use std::io::{PipeReader, PipeWriter, pipe};
use std::thread::JoinHandle;

use super::*;

/// A run with restarts. Process 0 cannot do all of its steps before [`Throttled::free`].
pub(super) struct Throttled {
    pub(super) place: Place,
    pub(super) address: String,
    size: u32,
    pub(super) args: Vec<String>,
    /// By process.
    pub(super) running: Vec<Option<Started>>,
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

/// The steps of runs with several losses.
pub(super) const MANY: &str = "train.steps=300";

/// The steps of runs that take in a process.
pub(super) const LONGER: &str = "train.steps=1200";

/// Room in a pipe comes in pieces of this number of bytes: for some steps.
const PAGE: usize = 1 << 12;

/// The bytes in a full pipe, less the room for some steps.
const FILLED: usize = (1 << 16) - PAGE;

impl Throttled {
    pub(super) fn start(size: u32, sets: &[&str]) -> Self {
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
        let mut run = Self {
            place: Place::new(),
            address: worlds::free_address(),
            size,
            args,
            running: (0..size).map(|_| None).collect(),
            screen: Screen::Full(pipe().unwrap().0),
        };
        (0..size).for_each(|process| run.begin(process));
        run
    }

    pub(super) fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    pub(super) fn first(&self, mut writer: PipeWriter) -> Started {
        writer.write_all(&vec![b'\n'; FILLED]).unwrap();
        let mut command = self.place.member(0, self.size, &self.address, &self.args());
        command.stdout(writer);
        Started::with_stdout(command)
    }

    /// Starts a process, or another one in its place.
    pub(super) fn begin(&mut self, process: u32) {
        let begun = match process {
            0 => {
                let (reader, writer) = pipe().unwrap();
                self.screen = Screen::Full(reader);
                self.first(writer)
            }
            _ => Started::new(self.place.member(process, self.size, &self.address, &self.args())),
        };
        self.running[process as usize] = Some(begun);
    }

    /// Starts a spare.
    pub(super) fn spare(&self) -> Started {
        self.spare_with(&[])
    }

    /// Starts a spare with further options.
    pub(super) fn spare_with(&self, more: &[&str]) -> Started {
        // It prints no hash, so it need not know that process 0 does.
        let args = self.args().into_iter().filter(|arg| *arg != "--weights-hash");
        self.beside(&args.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// Starts a spare that may become process 0.
    pub(super) fn heir(&self, more: &[&str]) -> Started {
        self.beside(&[&self.args(), more].concat())
    }

    fn beside(&self, args: &[&str]) -> Started {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        let args = [args, &["--spare"]].concat();
        let mut command = self.place.train(&args);
        command.env("MASTER_ADDR", host).env("MASTER_PORT", port);
        Started::new(command)
    }

    /// Waits until `steps` steps are done.
    pub(super) fn await_step(&self, steps: usize) {
        let metrics = self.place.path("runs/small/metrics.jsonl");
        let since = Instant::now();
        while !fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() >= steps) {
            assert!(since.elapsed() < PATIENCE, "it does not train");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(super) fn kill(&mut self, process: u32) {
        let mut victim = self.running[process as usize].take().expect("it runs");
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
    }

    /// Process 0 can print again.
    pub(super) fn free(&mut self) {
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
    pub(super) fn await_said(&mut self, words: &str) -> String {
        self.running[0].as_mut().expect("it runs").await_said(words)
    }

    /// Lets process 0 do some steps.
    pub(super) fn let_go(&mut self) {
        if let Screen::Full(reader) = &mut self.screen {
            reader.read_exact(&mut [0; PAGE]).unwrap();
        }
    }

    /// Waits until the run goes on after a loss. A process that is killed before that is one of two at once.
    /// Each such wait lets process 0 do more steps: [`MANY`] are enough for three.
    pub(super) fn await_return(&mut self) -> String {
        // It may wait for room for a line, and know of no loss yet.
        self.let_go();
        self.await_said("the run goes on with step")
    }

    /// Waits until the history has these words, and lets process 0 do some steps now and then: it takes
    /// nobody in while it waits for room for a line. [`LONGER`] is enough.
    pub(super) fn await_noted(&mut self, words: &str) {
        self.await_noted_often(words, 1);
    }

    /// The same until it has these words so often.
    pub(super) fn await_noted_often(&mut self, words: &str, times: usize) {
        let history = self.place.path("runs/small/history.jsonl");
        while !fs::read_to_string(&history).is_ok_and(|text| text.matches(words).count() >= times) {
            self.let_go();
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// How process 0 ends.
    pub(super) fn end_first(mut self) -> (Place, Ended) {
        self.running.truncate(1);
        let (place, mut ended) = self.end();
        (place, ended.remove(0))
    }

    /// How all end, by process.
    pub(super) fn end(mut self) -> (Place, Vec<Ended>) {
        self.free();
        let mut ended = self.end_each();
        let Screen::Read(reading) = self.screen else {
            unreachable!("it was freed");
        };
        ended[0].stdout = reading.join().unwrap().trim_start().to_owned();
        (self.place, ended)
    }

    /// The same, if another process than the throttled one is process 0 now.
    pub(super) fn end_all(mut self) -> (Place, Vec<Ended>) {
        let ended = self.end_each();
        (self.place, ended)
    }

    fn end_each(&mut self) -> Vec<Ended> {
        let all = self.running.iter_mut().map(|running| running.take().expect("it runs"));
        all.map(Started::end).collect()
    }

    /// All end well, with the weights of a run without a loss, and each step is told once.
    #[track_caller]
    pub(super) fn ends_as_if_nothing_had_happened(self) -> String {
        self.all_end_as_if_nothing_had_happened().remove(0)
    }

    /// The same. Returns what each process has said on its standard error.
    #[track_caller]
    pub(super) fn all_end_as_if_nothing_had_happened(self) -> Vec<String> {
        let args = self.args.clone();
        let (place, ended) = self.end();
        let ended: Vec<Ended> = ended.into_iter().map(Ended::done).collect();
        let first = &ended[0];
        let steps = |run: &str| place.numbers(run);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let whole = place.alone(&[&args[..], &["--run-dir", "whole"]].concat()).done();
        assert_eq!(first.hash(), whole.hash());
        assert_eq!(steps("runs/small"), steps("whole"));
        ended.into_iter().map(|ended| ended.stderr).collect()
    }
}
