//! The listeners of a run.

use super::event::{Event, Next, Task, Warning};
use super::progress::Screen;
use super::settings::Listener;
use crate::Error;

/// The screen and the listeners of a run, and their answers.
pub(super) struct Listeners {
    screen: Option<Screen>,
    listeners: Vec<Listener>,
    stopped: bool,
    warnings: Vec<Warning>,
}

impl Listeners {
    pub(super) fn new(screen: Option<Screen>, listeners: Vec<Listener>) -> Self {
        Self {
            screen,
            listeners,
            stopped: false,
            warnings: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, event: &Event<'_>) {
        if let Some(screen) = &self.screen {
            screen.show(event);
        }
        for listener in &mut self.listeners {
            self.stopped |= listener(event) == Next::Stop;
        }
    }

    /// Reports the first failure of each task.
    pub(super) fn warn(&mut self, task: Task, error: Error) {
        if self.warnings.iter().any(|earlier| earlier.task == task) {
            return;
        }
        let warning = Warning { task, error };
        self.tell(&Event::Warning(&warning));
        self.warnings.push(warning);
    }

    /// The screen, in the process that leads.
    pub(super) fn screen(&self) -> Option<&Screen> {
        self.screen.as_ref()
    }

    /// Whether one of them wants the run to end.
    pub(super) fn stopped(&self) -> bool {
        self.stopped
    }

    /// The warnings so far.
    pub(super) fn take_warnings(&mut self) -> Vec<Warning> {
        std::mem::take(&mut self.warnings)
    }
}
