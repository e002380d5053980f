//! When a run writes text.

use pipewright_stages::Stage;

use super::event::Event;
use super::saving::is_due;
use super::session::Session;
use crate::Result;

impl<S: Stage> Session<'_, S> {
    /// Writes a text after this step, if one is due.
    pub(super) fn sample_if_due(&mut self) -> Result<()> {
        let done = self.done();
        let Some(samples) =
            self.samples.as_ref().filter(|samples| done == self.steps || is_due(done, samples.every))
        else {
            return Ok(());
        };
        let sample = samples.write(self.pipeline)?;
        if self.rejoining.told.samples.is_new(done) {
            self.listeners.tell(&Event::Sample(&sample));
            let written = self.on_disk(|writer| writer.sample(&sample));
            self.warn(written);
        }
        Ok(())
    }
}
