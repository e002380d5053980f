//! The thread that asks the other processes whether they still run, and answers them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pipewright::fabric::line::{Aside, Line};

use super::library::Mpi;
use super::link::Link;
use super::messages::Kind;

/// The time between two looks for questions and answers. Longer times are counted in looks. While this
/// process does not run, it does not look, so that time does not count: the others may not have run either.
const LOOK: Duration = Duration::from_millis(10);

/// How often each process is asked during the silence that counts as its end.
const TIMES: u64 = 4;

/// Watches all other processes.
pub(super) struct Watcher {
    pub(super) mpi: &'static Mpi,
    /// By process. `None` for this one.
    pub(super) links: Vec<Option<Arc<Link>>>,
    /// How long a process may be silent.
    pub(super) silence: Duration,
    /// What takes the words.
    pub(super) aside: Arc<Aside>,
}

impl Watcher {
    /// Watches until it is told to stop.
    pub(super) fn run(&self, stop: &AtomicBool) {
        // By process: the looks for which it has been silent.
        let mut silent = vec![0; self.links.len()];
        let most = self.silence.div_duration_f64(LOOK) as u64;
        for look in 1_u64.. {
            if stop.load(Ordering::Acquire) {
                return;
            }
            while let Some(process) = self.mpi.sender(Kind::Watch) {
                silent[process as usize] = 0;
                self.hear(process);
            }
            let asks = look.is_multiple_of((most / TIMES).max(1));
            for link in self.links.iter().flatten().filter(|link| !link.is_ended()) {
                let silent = &mut silent[link.process() as usize];
                *silent += 1;
                if *silent > most {
                    link.lose();
                } else if asks {
                    link.say(Aside::QUESTION);
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// Takes a word.
    fn hear(&self, process: u32) {
        let Some(link) = &self.links[process as usize] else {
            return;
        };
        let Some(arrived) = self.mpi.next(process, Kind::Watch) else {
            return;
        };
        let mut word = vec![0; arrived.length()];
        arrived.take(&mut word);
        // What is no word, nobody says.
        if let Ok(Some(answer)) = self.aside.hear(process, &word) {
            link.tell_watcher(&answer);
        }
    }
}
