//! Signals that ask `train` to end, from its first moment on.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::Result;
use crate::commands::INTERRUPTED;
use crate::commands::processes::{Role, prefix};
use pipewright::run::Interrupt;

/// What a signal does. Once the run has begun, its step is finished and saved, or this process leaves it.
/// While it begins, what is known of a reference is kept. Before, there is nothing to save: the process ends
/// at once, and the others see that by its connections. Until it has connections, it goes on to tell them.
#[derive(Debug)]
pub(super) struct Interruption {
    interrupt: Interrupt,
    phase: Arc<AtomicU8>,
}

/// It looks for the other processes.
const CONNECTS: u8 = 0;
/// It is alone, or connected with all others, and opens data and builds stages.
const PREPARES: u8 = 1;
/// The run begins: what the model gives answers before the training may be found out.
const BEGINS: u8 = 2;
/// The run has begun.
const RUNS: u8 = 3;

impl Interruption {
    /// Heeds signals from now on.
    pub(super) fn heed(role: Role) -> Result<Self> {
        let begins = if role == Role::Alone { PREPARES } else { CONNECTS };
        let phase = Arc::new(AtomicU8::new(begins));
        let at = Arc::clone(&phase);
        let interrupt = Interrupt::on_signals(move || match at.load(Ordering::SeqCst) {
            CONNECTS => {}
            PREPARES => {
                eprintln!("\n{}interrupted before the first step: nothing was trained", prefix());
                process::exit(INTERRUPTED.into());
            }
            BEGINS if role.leads() => eprintln!(
                "\ninterrupted while the run begins: ending, and keeping what is known (type Ctrl-C again to \
                 stop at once)"
            ),
            RUNS if role.leads() => eprintln!(
                "\ninterrupted: finishing this step, then saving (type Ctrl-C again to stop at once, unsaved)"
            ),
            _ => {}
        })?;
        Ok(Self { interrupt, phase })
    }

    /// The request that a signal makes.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The process is connected with the others, so they see if it ends.
    pub(super) fn connected(&self) {
        self.phase.store(PREPARES, Ordering::SeqCst);
    }

    /// The run begins: what a reference knows is kept.
    pub(super) fn run_begins(&self) {
        self.phase.store(BEGINS, Ordering::SeqCst);
    }

    /// The run has begun: from now on there is something to save.
    pub(super) fn run_has_begun(&self) {
        self.phase.store(RUNS, Ordering::SeqCst);
    }
}
