//! Everything up to the first step of a run. All processes compare their settings then.

use std::sync::Arc;

use pipewright_stages::Stage;
use pipewright_stages::units::counted;

use super::copying::Copying;
use super::directory::claim::Claim;
use super::directory::folder::About;
use super::directory::trace::Tracer;
use super::directory::writer::{Files, Writer};
use super::forecast::Forecast;
use super::listeners::Listeners;
use super::rejoining::{InCommon, Lead, Rejoining};
use super::samples::Samples;
use super::saving::{Retention, Saving};
use super::session::Session;
use super::settings::Run;
use super::stalls::Stalls;
use super::validation::{BestSoFar, Validation};
use crate::checkpoint::{self, Checkpoint, Key};
use crate::data::Reference;
use crate::error::{CheckpointError, RestartError, RunError, StoreError};
use crate::pipeline::{Pipeline, ReferenceFound};
use crate::{Error, Result};

/// A run whose processes have all that they need for the first step.
struct Begun {
    in_common: InCommon,
    resumed: bool,
    /// Notes about its beginning.
    notes: Vec<String>,
    best: BestSoFar,
    tracer: Option<Tracer>,
    /// In the process that leads.
    writer: Option<Writer>,
    copying: Option<Copying>,
}

impl Run {
    /// Makes the directory of a new run, or loads the newest checkpoint of an existing run. Afterwards the
    /// run is ready for its first step. A validation that the pipeline cannot run is refused here, and not
    /// only when it is due; so is text that it cannot write.
    ///
    /// # Errors
    /// [`Error::Run`] when the directory or a setting cannot be used, [`CheckpointError::OtherData`] when the
    /// run trained on other data before, [`FabricError::Refused`](crate::error::FabricError::Refused) when
    /// the settings differ between processes, and whatever [`Pipeline::load`] and [`Pipeline::evaluate`]
    /// return; [`Pipeline::next_scores`] too. The other processes are told.
    pub fn begin<S: Stage>(mut self, pipeline: &mut Pipeline<S>) -> Result<Session<'_, S>> {
        pipeline.heed(self.interrupt.clone());
        pipeline.expect_steps(self.steps);
        let mut left = pipeline.most_rejoins();
        let begun = loop {
            if pipeline.rejoined().is_some() {
                return self.take_part(pipeline);
            }
            match self.try_begin(pipeline) {
                Err(failure) if left > 0 && pipeline.may_rejoin(&failure) => {
                    left -= 1;
                    pipeline.rejoin()?;
                }
                begun => break begun?,
            }
        };
        pipeline.has_begun();
        let rejoining = Rejoining::new(begun.in_common, begun.best.clone());
        let mut session = self.session(pipeline, begun.writer, rejoining);
        (session.best, session.tracer, session.notes) = (begun.best, begun.tracer, begun.notes);
        session.copying = begun.copying;
        session.note_beginning(begun.resumed);
        session.forget_asked_cut();
        Ok(session)
    }

    /// Everything that all processes do together before the first step. It can be done again if one of them
    /// was lost meanwhile.
    fn try_begin<S: Stage>(&mut self, pipeline: &mut Pipeline<S>) -> Result<Begun> {
        let (in_common, validated) = self.check(pipeline)?;
        let claim = self.take_claim(pipeline)?;
        let resumed = claim.from().is_some();
        let mut notes = self.check_data(&claim, pipeline)?;
        let copying = agree(pipeline, self.copying(&claim, pipeline.process() == 0))?;
        if resumed && !self.dir.is_run() {
            notes.push(
                "there was no run.json: it is written anew, and no best checkpoint is known".to_owned(),
            );
        }
        if claim.begins_again() {
            notes.push("a run was lost here before its first checkpoint: it begins again".to_owned());
        }
        // Before the long evaluation of a reference, not after it.
        if let Some(folder) = claim.from().filter(|_| !self.references.is_empty()) {
            pipeline.opened(folder)?;
        }
        for reference in &self.references {
            notes.extend(self.find(pipeline, reference)?);
        }
        if let Some(folder) = claim.from() {
            pipeline.load(folder)?;
        }
        let done = pipeline.next_step();
        let tracer = self.trace.map(|traced| Tracer::new(traced, done, self.steps));
        let tracer = agree(pipeline, tracer.transpose())?;
        let best = self.best_so_far(resumed, validated, &mut notes);
        let best = agree(pipeline, best)?;
        let leads = pipeline.process() == 0;
        let writer = self.open(pipeline, claim, leads)?;
        Ok(Begun { in_common, resumed, notes, best, tracer, writer, copying })
    }

    /// Finds out a reference, unless the run is asked to end. Returns notes about it.
    fn find<S: Stage>(&self, pipeline: &mut Pipeline<S>, reference: &Reference) -> Result<Vec<String>> {
        let all = counted(reference.pairs(), "pair");
        let not_kept = |kept: Result<()>| {
            let text = |error| {
                format!("the reference is not kept, so the next run evaluates all pairs again: {error}")
            };
            kept.err().map(text)
        };
        match pipeline.find_reference(reference, || self.interrupt.is_requested())? {
            ReferenceFound::There => Ok(Vec::new()),
            ReferenceFound::Now { kept } => {
                let note = format!("the model before the training is the reference for {all}");
                Ok([note].into_iter().chain(not_kept(kept)).collect())
            }
            ReferenceFound::Stopped { pairs, kept } => {
                let next = not_kept(kept).unwrap_or_else(|| "the next run goes on from there".to_owned());
                Err(RunError::new(format!(
                    "the run was asked to end when {pairs} of {all} were evaluated with the model before the \
                     training: nothing was trained, and {next}"
                ))
                .into())
            }
        }
    }

    /// Takes the place of a process that was lost: what the run is at, the others know.
    fn take_part<S: Stage>(self, pipeline: &mut Pipeline<S>) -> Result<Session<'_, S>> {
        let data = self.validation.as_ref().map(Validation::data).transpose()?;
        self.dir.check_shared("")?;
        let in_common = self.in_common(data.as_deref());
        let lead = Lead { files: self.files(pipeline), copy_to: self.copy_to.clone() };
        let lead = (pipeline.process() == 0).then_some(lead);
        let mut rejoining = Rejoining::new(in_common, BestSoFar::default());
        rejoining.takes_part = true;
        let mut session = self.session(pipeline, None, rejoining);
        session.lead = lead;
        match session.go_on() {
            Ok(_) => {}
            Err(failure) => {
                if session.rejoin(failure)?.is_some() {
                    return Err(RestartError::WaitEnded { process: session.pipeline.process() }.into());
                }
            }
        }
        if session.leads() {
            session.notes.push("this process takes the place of process 0, which was lost".to_owned());
            session.note_with_cut("another process 0 takes the place of the lost one");
        }
        Ok(session)
    }

    fn session<S: Stage>(
        self,
        pipeline: &mut Pipeline<S>,
        writer: Option<Writer>,
        rejoining: Rejoining,
    ) -> Session<'_, S> {
        let (process, done) = (pipeline.process(), pipeline.next_step());
        let progress = self.progress.filter(|_| process == 0);
        let screen = progress.map(|progress| progress.show((done, self.steps), self.labels.targets()));
        let history = (process == 0).then(|| self.dir.history());
        let stalls = Arc::new(Stalls::new(process, self.progress.is_some(), screen.clone(), history));
        let weak = Arc::downgrade(&stalls);
        pipeline.on_stall(move |stall| {
            // The pipeline may outlive the run.
            if let Some(stalls) = weak.upgrade() {
                stalls.tell(stall);
            }
        });
        let best = rejoining.best_at(done);
        Session {
            pipeline,
            lead: None,
            saving: Saving::begin(done, self.dir.checkpoint(done).exists(), best.clone()),
            listeners: Listeners::new(screen, self.listeners, stalls),
            dir: self.dir,
            writer,
            interrupt: self.interrupt,
            validation: self.validation,
            samples: self.samples,
            references: self.references,
            replan: self.replan,
            steps: self.steps,
            save_every: self.save_every,
            saves_beside: self.save_beside,
            kept: Retention { newest: self.keep, every: self.keep_every },
            first: done,
            best,
            accountant: self.accountant,
            forecasts: self.forecast.is_some(),
            forecast: self.forecast,
            tracer: None,
            traced: None,
            pause: false,
            notes: Vec::new(),
            copies: self.copy_to.is_some(),
            copying: None,
            rejoining,
        }
    }

    /// Looks into the store for copies, in the process that leads, and copies the checkpoint from which the
    /// run continues, if it is not there.
    fn copying(&self, claim: &Claim, leads: bool) -> Result<Option<Copying>> {
        let Some(store) = self.copy_to.as_ref().filter(|_| leads) else {
            return Ok(None);
        };
        let newest = checkpoint::newest_step(store)?;
        if let (None, Some(step)) = (claim.from(), newest) {
            return Err(StoreError::Occupied { url: store.url().to_owned(), step }.into());
        }
        let copying = Copying::start(store.clone())?;
        if let Some((step, folder)) =
            claim.from().and_then(|from| Some((checkpoint::named_step(from)?, from)))
        {
            copying.add(step, folder.to_owned());
        }
        Ok(Some(copying))
    }

    /// Refuses impossible settings, and settings that differ between processes. Returns what must be equal in
    /// all, and the micro-batches and the data of the validation, as text.
    fn check<S: Stage>(&self, pipeline: &mut Pipeline<S>) -> Result<(InCommon, Option<String>)> {
        let kept = match self.keep {
            0 => Err(RunError::new(
                "a run that keeps 0 checkpoints leaves nothing to resume from: keep 1 or more",
            )
            .into()),
            _ => Ok(()),
        };
        agree(pipeline, kept)?;
        let has_none = self.validation.as_ref().is_some_and(|validation| validation.sources.is_empty());
        let has_data = match has_none {
            true => Err(RunError::new("a validation has no data: give it a source").into()),
            false => Ok(()),
        };
        agree(pipeline, has_data)?;
        let data = self.validation.as_ref().map(Validation::data).transpose();
        let data = agree(pipeline, data)?;
        let in_common = self.in_common(data.as_deref());
        pipeline.compare("comparing runs", in_common.clone())?;
        if let Some(samples) = &self.samples {
            samples.check(pipeline)?;
        }
        let (Some(validation), Some(data)) = (&self.validation, data) else {
            return Ok((in_common, None));
        };
        for one in &validation.sources {
            pipeline.check_evaluation(one.source.shapes(), one.micro_batches)?;
        }
        Ok((in_common, Some(data)))
    }

    /// Claims the directory. All processes must continue from a checkpoint, or all must begin a new run.
    fn take_claim<S: Stage>(&mut self, pipeline: &mut Pipeline<S>) -> Result<Claim> {
        let claim = match self.claim.take() {
            Some(claim) => Ok(claim),
            None if pipeline.process() == 0 => Claim::new(self.dir.clone(), self.resume),
            None => Claim::following(self.dir.clone(), self.resume),
        };
        let claim = agree(pipeline, claim)?;
        let resumed = pipeline.any(claim.from().is_some())?;
        let seen = match claim.from().is_some() == resumed {
            true => Ok(()),
            false => Err(RunError::NotShared(self.dir.path().to_owned()).into()),
        };
        agree(pipeline, seen).map(|()| claim)
    }

    /// Refuses other data than the checkpoint was trained on, unless that is allowed. If it is, it returns a
    /// line for the history.
    fn check_data<S: Stage>(&self, claim: &Claim, pipeline: &mut Pipeline<S>) -> Result<Vec<String>> {
        let checked = match claim.checkpoint() {
            Some(checkpoint) => pipeline.fingerprint().and_then(|given| checkpoint.check_data(&given)),
            None => Ok(()),
        };
        let checked = match checked {
            Err(Error::Checkpoint(refusal)) if self.allow_other_data => match *refusal {
                CheckpointError::OtherData { saved, given, .. } => {
                    Ok(vec![format!("continues with other data: {given}; it was {saved}")])
                }
                refusal @ CheckpointError::HeldBack { .. } => Ok(vec![refusal.to_string()]),
                refusal => Err(refusal.into()),
            },
            Err(error) => Err(error),
            Ok(()) => going_on(claim.checkpoint(), pipeline),
        };
        agree(pipeline, checked)
    }

    /// The best checkpoint of a resumed run. If it was validated on other data, it is forgotten, and a note
    /// says so.
    fn best_so_far(
        &self,
        resumed: bool,
        validated: Option<String>,
        notes: &mut Vec<String>,
    ) -> Result<BestSoFar> {
        let mut so_far = match resumed {
            true => self.dir.best_so_far()?,
            false => BestSoFar::default(),
        };
        if let Some(best) = validated.and_then(|validated| so_far.go_on(validated)) {
            notes.push(format!(
                "validates on other data than before: the checkpoint after {} is no longer the best",
                counted(best.step, "step")
            ));
        }
        Ok(so_far)
    }

    /// Opens the run's files in the process that leads. All processes check that they see them.
    fn open<S: Stage>(
        &self,
        pipeline: &mut Pipeline<S>,
        claim: Claim,
        leads: bool,
    ) -> Result<Option<Writer>> {
        let mut files = self.files(pipeline);
        // A run that has nothing left to do stays what it was.
        if self.dir.config().exists() && claim.from().is_some() && pipeline.next_step() >= self.steps {
            files.config = None;
        }
        let open = || Writer::begin(files, claim, pipeline.next_step());
        let writer = leads.then(open).transpose();
        let mut writer = agree(pipeline, writer)?;
        let signature = writer.as_mut().map(Writer::signature).unwrap_or_default();
        let signature = pipeline.of_first("looking at the run directory", Ok(signature))?;
        let seen = self.dir.check_shared(&signature);
        let seen = agree(pipeline, seen);
        if let (Err(_), Some(writer)) = (&seen, &writer) {
            writer.abandon();
        }
        seen.map(|()| writer)
    }

    fn files<S: Stage>(&self, pipeline: &Pipeline<S>) -> Files {
        let labels = self.labels.clone();
        let about = About {
            ranks: pipeline.rank_names(),
            predicted: self.forecast.as_ref().and_then(Forecast::predicted),
            loss: labels.unit.clone(),
            ..self.about.clone()
        };
        Files {
            dir: self.dir.clone(),
            config: self.config.clone(),
            about,
            labels,
            writes_text: self.samples.is_some(),
            for_tensorboard: self.tensorboard,
        }
    }

    /// The settings that must be equal, by name. The first difference in this order is reported. `data` is
    /// the data of the validation.
    fn in_common(&self, data: Option<&str>) -> Vec<(String, String)> {
        let number = |number: Option<u64>| number.map_or("none".to_owned(), |number| number.to_string());
        let none = || "none".to_owned();
        let validation = self.validation.as_ref();
        let samples = self.samples.as_ref();
        let forecast = match &self.forecast {
            None => "none",
            Some(forecast) if forecast.predicted().is_some() => "by costs",
            Some(_) => "by passes",
        };
        let parts = [
            ("the run directory", self.dir.path().display().to_string()),
            ("what to do with a run that is there", format!("{:?}", self.resume)),
            ("whether other data is allowed", self.allow_other_data.to_string()),
            ("the steps of the run", self.steps.to_string()),
            ("the steps between checkpoints", self.save_every.to_string()),
            ("whether checkpoints are written while steps run", self.save_beside.to_string()),
            ("how many checkpoints are kept", self.keep.to_string()),
            ("the steps between checkpoints that are kept for ever", self.keep_every.to_string()),
            (
                "where checkpoints are copied to",
                self.copy_to.as_ref().map_or_else(none, |to| to.url().to_owned()),
            ),
            ("the key of checkpoints (checkpoint.key_file, PIPEWRIGHT_KEY)", Key::mark_in_use()),
            ("the micro-batches of a validation", validation.map_or_else(none, Validation::sizes)),
            ("the steps between validations", number(validation.map(|validation| validation.every))),
            ("the data of the validation", data.unwrap_or("none").to_owned()),
            ("the steps between samples", number(samples.map(|samples| samples.every))),
            ("the text that is written", samples.map_or("none".to_owned(), Samples::described)),
            ("the steps to trace", number(self.trace)),
            ("the forecast", forecast.to_owned()),
        ];
        parts.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// How the data of a resumed run goes on, as lines for the history.
fn going_on<S: Stage>(checkpoint: Option<&Checkpoint>, pipeline: &Pipeline<S>) -> Result<Vec<String>> {
    let Some((checkpoint, saved)) = checkpoint.and_then(|saved| Some((saved, saved.data()?))) else {
        return Ok(Vec::new());
    };
    Ok(pipeline.fingerprint()?.going_on(saved, checkpoint.step()))
}

/// This process's value, once all processes have theirs. A failure in one process is a failure in all.
fn agree<S: Stage, T>(pipeline: &mut Pipeline<S>, own: Result<T>) -> Result<T> {
    match pipeline.processes() {
        1 => own,
        _ => pipeline.meet(own),
    }
}
