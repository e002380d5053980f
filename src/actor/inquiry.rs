//! Asks the other processes what they do.

use std::thread;
use std::time::{Duration, Instant};

use crate::fabric::Others;
use crate::mesh::Mesh;
use crate::situation::{Contact, ProcessState, Program, Situation};

/// For how long answers are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two looks for answers.
const LOOK: Duration = Duration::from_millis(2);

/// The questions to the other processes.
pub(super) struct Inquiry {
    others: Others,
    mesh: Mesh,
    /// By process.
    asked: Vec<Asked>,
    /// For how long this process has looked.
    since_launch: Duration,
}

/// What is known of another process.
#[derive(Clone, Copy, Default)]
struct Asked {
    /// How many questions it had answered when it was asked, if that question is open.
    open: Option<u64>,
    /// Whether the question is open for longer than it may be.
    is_late: bool,
    /// What had come from it at the last look.
    heard: u64,
    /// For how long nothing has come since.
    silent: Duration,
}

impl Inquiry {
    pub(super) fn new(others: Others, mesh: Mesh) -> Self {
        Self {
            asked: vec![Asked::default(); others.processes() as usize],
            others,
            mesh,
            since_launch: Duration::ZERO,
        }
    }

    /// So much time has passed since this was called last.
    pub(super) fn look(&mut self, passed: Duration) {
        self.since_launch += passed;
        for (process, asked) in (0..).zip(&mut self.asked) {
            let heard = self.others.heard(process);
            if heard == asked.heard {
                asked.silent += passed;
            } else {
                (asked.heard, asked.silent) = (heard, Duration::ZERO);
            }
        }
    }

    /// What all processes do. It waits for answers, but not long, and not again for a process that has not
    /// answered the last question. Meanwhile it calls `look`, which says how much time has passed, or that it
    /// must end. `own` is told of whom nothing was heard, and says what this process does.
    pub(super) fn ask(
        &mut self,
        look: &mut dyn FnMut() -> Option<Duration>,
        own: &dyn Fn(Vec<u32>) -> Program,
    ) -> Situation {
        let this = self.others.process();
        for process in self.expected() {
            let answers = self.others.answers(process);
            let asked = &mut self.asked[process as usize];
            asked.is_late = asked.open == Some(answers);
            if !asked.is_late {
                asked.open = Some(answers);
                self.others.ask(process);
            }
        }
        let since = Instant::now();
        while since.elapsed() < PATIENCE && self.expected().any(|process| self.is_open(process)) {
            thread::sleep(LOOK);
            match look() {
                Some(passed) => self.look(passed),
                None => break,
            }
        }
        let unheard = self.expected().filter(|process| !self.has_answered(*process));
        let unheard = unheard.collect();
        let own = own(unheard);
        let processes = (0..self.others.processes()).map(|process| ProcessState {
            process,
            ranks: self.mesh.ranks_of(process).collect(),
            contact: match process == this {
                true => Contact::Answers(own.clone()),
                false => self.contact(process),
            },
        });
        Situation { processes: processes.collect() }
    }

    /// The others that have not ended.
    fn expected(&self) -> impl Iterator<Item = u32> + use<> {
        let others = self.others.clone();
        let all = (0..others.processes()).filter(move |process| *process != others.process());
        let others = self.others.clone();
        all.filter(move |process| !others.has_ended(*process))
    }

    /// Whether an answer may still come soon.
    fn is_open(&self, process: u32) -> bool {
        let asked = self.asked[process as usize];
        !asked.is_late && !self.has_answered(process)
    }

    /// Whether it has answered the last question.
    fn has_answered(&self, process: u32) -> bool {
        self.asked[process as usize].open != Some(self.others.answers(process))
    }

    fn contact(&self, process: u32) -> Contact {
        let asked = self.asked[process as usize];
        if self.others.has_ended(process) {
            return Contact::Ended;
        }
        let said = self.others.said(process);
        if self.others.heard(process) == 0 || self.has_answered(process) && said.is_empty() {
            let seconds = self.since_launch.as_secs_f64();
            return Contact::NotLaunched { seconds };
        }
        if !self.has_answered(process) {
            let seconds = asked.silent.as_secs_f64();
            let machine = self.others.machine_answers(process);
            return Contact::Silent { seconds, machine };
        }
        // All run the same program, so it can be read.
        Contact::Answers(postcard::from_bytes(&said).unwrap_or_default())
    }
}
