//! Ending a run from outside of its loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::error::RunError;
use crate::{Error, Result};

/// A wish that a run ends after the step that it is in. Clones share the wish.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A wish that nobody has yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to save and end after this step.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether somebody has asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Asks when the process gets SIGINT (Ctrl-C), SIGTERM or SIGHUP, and calls `first` on a thread of its own. The
    /// second of these signals ends the process at once, with status 1: nothing is saved then.
    ///
    /// # Errors
    /// [`Error::Run`] when the system refuses.
    pub fn on_signals(first: impl FnOnce() + Send + 'static) -> Result<Self> {
        let interrupt = Self::new();
        interrupt
            .watch(first)
            .map_err(|source| Error::Run(RunError::Signals { source }))?;
        Ok(interrupt)
    }

    fn watch(&self, first: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let signals = [SIGINT, SIGTERM, SIGHUP];
        for signal in signals {
            // In this order: the first signal finds the wish unset, the second one finds it set.
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&self.0))?;
            flag::register(signal, Arc::clone(&self.0))?;
        }
        let mut arrivals = Signals::new(signals)?;
        let wait = move || {
            if arrivals.forever().next().is_some() {
                first();
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(wait)?;
        Ok(())
    }
}
