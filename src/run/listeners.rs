//! The listeners of a run.

use std::sync::Arc;

use super::event::{Event, Next, Task, Warning};
use super::progress::Screen;
use super::settings::Listener;
use super::stalls::Stalls;
use crate::Error;

/// The screen and the listeners of a run, and their answers.
pub(super) struct Listeners {
    screen: Option<Screen>,
    listeners: Vec<Listener>,
    stalls: Arc<Stalls>,
    stopped: bool,
    warnings: Vec<Warning>,
}

impl Listeners {
    pub(super) fn new(screen: Option<Screen>, listeners: Vec<Listener>, stalls: Arc<Stalls>) -> Self {
        Self { screen, listeners, stalls, stopped: false, warnings: Vec::new() }
    }

    /// Tells of an event. Stalls that came before it are told first.
    pub(super) fn tell(&mut self, event: &Event<'_>) {
        self.tell_stalls();
        if let Some(screen) = &self.screen {
            screen.show(event);
        }
        self.tell_all(event);
    }

    /// Tells of the stalls that were shown since the last event.
    pub(super) fn tell_stalls(&mut self) {
        for stall in self.stalls.take() {
            self.tell_all(&Event::Stall(&stall));
        }
    }

    fn tell_all(&mut self, event: &Event<'_>) {
        for listener in &mut self.listeners {
            self.stopped |= listener(event) == Next::Stop;
        }
    }

    /// Shows a line that also processes without a screen show: the one that leads is lost.
    pub(super) fn show_everywhere(&self, line: &str) {
        self.stalls.show(line);
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

    /// `done` steps are done: for the history of stalls.
    pub(super) fn set_done(&self, done: u64) {
        self.stalls.set_done(done);
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
