//! The thread that asks the other processes whether they still run, and answers them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::library::{Kind, Mpi};
use super::link::{ANSWER, ASK, Link};
use crate::fabric::processes::Line;

/// The time between two looks for questions and answers.
const LOOK: Duration = Duration::from_millis(10);

/// How often each process is asked during the silence that counts as its end.
const TIMES: u32 = 4;

/// Watches all other processes.
pub(super) struct Watcher {
    pub(super) mpi: &'static Mpi,
    /// By process. `None` for this one.
    pub(super) links: Vec<Option<Arc<Link>>>,
    /// How long a process may be silent.
    pub(super) silence: Duration,
}

impl Watcher {
    /// Watches until it is told to stop.
    pub(super) fn run(&self, stop: &AtomicBool) {
        let mut heard = vec![Instant::now(); self.links.len()];
        let mut asked = Instant::now();
        while !stop.load(Ordering::Acquire) {
            while let Some(process) = self.mpi.sender(Kind::Watch) {
                heard[process as usize] = Instant::now();
                self.hear(process);
            }
            let asks = asked.elapsed() > self.silence / TIMES;
            for link in self.links.iter().flatten().filter(|link| !link.is_ended()) {
                if heard[link.process() as usize].elapsed() > self.silence {
                    link.lose();
                } else if asks {
                    link.ask();
                }
            }
            if asks {
                asked = Instant::now();
            }
            thread::sleep(LOOK);
        }
    }

    /// Takes a question or an answer.
    fn hear(&self, process: u32) {
        let Some(link) = &self.links[process as usize] else {
            return;
        };
        let mut byte = [0];
        if let Some(arrived) = self.mpi.next(process, Kind::Watch) {
            arrived.take(&mut byte);
        }
        match byte {
            ASK => link.tell_watcher(ANSWER),
            _ => link.answered(),
        }
    }
}
