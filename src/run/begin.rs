//! Everything up to the first step of a run.

use pipewright_stages::Stage;

use super::claim::Claim;
use super::listeners::Listeners;
use super::session::Session;
use super::settings::Run;
use super::trace::Tracer;
use super::writer::Writer;
use crate::error::{CheckpointError, RunError};
use crate::pipeline::Pipeline;
use crate::{Error, Result};

impl Run {
    /// Makes the directory of a new run, or loads the newest checkpoint of an existing run. Afterwards the
    /// run is ready for its first step.
    ///
    /// # Errors
    /// [`Error::Run`] when the directory cannot be used, [`CheckpointError::OtherData`] when the run trained
    /// on other data before, and whatever [`Pipeline::load`] returns. The other processes are told.
    pub fn begin<S: Stage>(mut self, pipeline: &mut Pipeline<S>) -> Result<Session<'_, S>> {
        pipeline.heed(self.interrupt.clone());
        pipeline.expect_steps(self.steps);
        let leads = pipeline.process() == 0;
        let claim = match self.claim.take() {
            Some(claim) => Ok(claim),
            None if leads => Claim::new(self.dir.clone(), self.resume),
            None => Claim::following(self.dir.clone(), self.resume),
        };
        let claim = agree(pipeline, claim)?;
        let resumed = pipeline.any(claim.from().is_some())?;
        let seen = match claim.from().is_some() == resumed {
            true => Ok(()),
            false => Err(RunError::NotShared(self.dir.path().to_owned()).into()),
        };
        agree(pipeline, seen)?;
        let other_data = self.check_data(&claim, pipeline);
        let other_data = agree(pipeline, other_data)?;
        if let Some(folder) = claim.from() {
            pipeline.load(folder)?;
        }
        let done = pipeline.next_step();
        let tracer = self.trace.map(|traced| Tracer::new(traced, done, self.steps));
        let tracer = agree(pipeline, tracer.transpose())?;
        let best = if resumed { self.dir.best() } else { Ok(None) };
        let best = agree(pipeline, best)?;
        let writer = self.open(pipeline, claim, leads)?;
        let screen = self.progress.filter(|_| leads);
        let mut session = Session {
            pipeline,
            saved: self.dir.checkpoint(done).exists().then_some(done),
            dir: self.dir,
            writer,
            listeners: Listeners::new(
                screen.map(|progress| progress.show(done, self.steps)),
                self.listeners,
            ),
            interrupt: self.interrupt,
            validation: self.validation,
            steps: self.steps,
            save_every: self.save_every,
            keep: self.keep,
            first: done,
            best,
            forecast: self.forecast,
            tracer,
            traced: None,
        };
        session.note(if resumed { "resumed" } else { "began" });
        if let Some(other_data) = other_data {
            session.note(&other_data);
        }
        Ok(session)
    }

    /// Refuses other data than the checkpoint was trained on, unless that is allowed. Then it returns the
    /// line for the history.
    fn check_data<S: Stage>(&self, claim: &Claim, pipeline: &Pipeline<S>) -> Result<Option<String>> {
        let Some(checkpoint) = claim.checkpoint() else {
            return Ok(None);
        };
        let Err(error) = checkpoint.check_data(&pipeline.fingerprint()?) else {
            return Ok(None);
        };
        if self.allow_other_data
            && let Error::Checkpoint(refusal) = &error
            && let CheckpointError::OtherData { saved, given, .. } = refusal.as_ref()
        {
            return Ok(Some(format!(
                "continues with other data: {given}; it was {saved}"
            )));
        }
        Err(error)
    }

    /// Opens the run's files in the process that leads. All processes check that they see them.
    fn open<S: Stage>(
        &self,
        pipeline: &mut Pipeline<S>,
        claim: Claim,
        leads: bool,
    ) -> Result<Option<Writer>> {
        let (config, labels) = (self.config.as_deref(), self.labels.clone());
        let new = claim.from().is_none();
        let open = || Writer::begin((&self.dir, claim), (config, labels), pipeline.next_step());
        let writer = leads.then(open).transpose();
        let writer = agree(pipeline, writer)?;
        let seen = self.dir.check_shared();
        let seen = agree(pipeline, seen);
        if let (Err(_), Some(writer), true) = (&seen, &writer, new) {
            writer.abandon();
        }
        seen.map(|()| writer)
    }
}

/// This process's value, once all processes have theirs. A failure in one process is a failure in all.
fn agree<S: Stage, T>(pipeline: &mut Pipeline<S>, own: Result<T>) -> Result<T> {
    if pipeline.processes() > 1 {
        if let Err(error) = &own {
            pipeline.fail(error);
        } else {
            pipeline.meet()?;
        }
    }
    own
}
