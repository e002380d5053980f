//! What a run does about its cut between two steps.

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::Replan;
use crate::Result;
use crate::pipeline::StepReport;
use crate::plan::{Better, Why};
use crate::run::directory::cut::{Asked, NewCut, Reason};
use crate::run::event::{Event, Task};
use crate::run::session::Session;

/// With several processes, a new cut is possible before each step whose number is a multiple of this.
const EVERY: u64 = 8;

/// What process 0 tells the others.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    counts: Vec<usize>,
    reason: Reason,
    /// The number of the question, if somebody has asked.
    answers: Option<u64>,
}

impl<S: Stage> Session<'_, S> {
    /// Adds a step to what is watched.
    pub(in crate::run) fn watch(&mut self, report: &StepReport) {
        if let (Some(Replan { watch, is_automatic: true, .. }), Some(_)) = (&mut self.replan, &self.writer) {
            watch.add(report.seconds, self.pipeline.busy_of_ranks(report));
        }
    }

    /// At the beginning: what somebody asked for was meant for a run that has ended.
    pub(in crate::run) fn forget_asked_cut(&mut self) {
        if self.writer.is_some()
            && let Err(error) = self.dir.take_asked_cut()
        {
            self.listeners.warn(Task::Replan, error);
        }
    }

    /// Between two steps: goes on with another cut, if one is wanted.
    pub(in crate::run) fn replan(&mut self) -> Result<()> {
        let is_alone = self.pipeline.processes() == 1;
        if self.replan.is_none() || !(is_alone || self.done().is_multiple_of(EVERY)) {
            return Ok(());
        }
        let wanted = match self.writer.is_some() {
            true => self.asked().or_else(|| self.better()),
            false => None,
        };
        let wanted = match is_alone {
            true => wanted,
            false => self.pipeline.of_first("asking for a new cut", Ok(wanted))?,
        };
        let (Some(Wanted { counts, reason, answers }), Some(replan)) = (wanted, &self.replan) else {
            return Ok(());
        };
        let from = replan.counts();
        if counts == from {
            self.note_of_cut("not cut anew: the stages have these layers already", answers);
            return Ok(());
        }
        // So the run hears of a checkpoint that is on its way.
        self.wait()?;
        match self.pipeline.recut_to(&counts) {
            Ok(recut) => {
                let (moved, seconds) = (recut.moved, recut.seconds);
                let cut = NewCut { step: self.done(), from, to: counts, reason, moved, seconds };
                self.is_cut(&cut, answers);
                if self.launched.as_ref() == Some(&cut.to) {
                    self.pipeline.keep_again();
                }
                Ok(())
            }
            Err(error) if self.pipeline.has_failed() => Err(error),
            Err(error) => {
                if let Some(replan) = &mut self.replan {
                    replan.watch.refused();
                }
                self.note_of_cut(&format!("not cut anew: {error}"), answers);
                self.listeners.warn(Task::Replan, error);
                Ok(())
            }
        }
    }

    /// The model is cut as at launch again. `why`: what has happened.
    pub(in crate::run) fn forget_cut(&mut self, why: &str) {
        let (Some(replan), Some(counts)) = (&mut self.replan, &self.launched) else {
            return;
        };
        if replan.counts() != *counts {
            replan.watch.set(counts.clone(), 0.0);
            let event = format!("cut as at launch again, {why}: {counts:?} layers");
            self.note_of_cut(&event, None);
        }
    }

    /// Cuts the model as at launch again: snapshots have to be of the stages with which processes join.
    /// `why`: what has happened.
    pub(in crate::run) fn return_to_launched_cut(&mut self, why: &str) -> Result<()> {
        let (Some(replan), Some(counts)) = (&self.replan, self.launched.clone()) else {
            return Ok(());
        };
        if replan.counts() != counts {
            self.wait()?;
            self.pipeline.recut_to(&counts)?;
            self.pipeline.keep_again();
            self.forget_cut(why);
        }
        Ok(())
    }

    fn is_cut(&mut self, cut: &NewCut, answers: Option<u64>) {
        if let Some(Replan { watch, .. }) = &mut self.replan {
            match cut.reason {
                Reason::Faster { was, .. } => watch.try_out(cut.to.clone(), was, cut.seconds),
                Reason::ItWasFaster { .. } | Reason::Asked => watch.set(cut.to.clone(), cut.seconds),
            }
        }
        // They are about the cut before.
        self.forecast = None;
        if let Some(tracer) = &mut self.tracer {
            tracer.begin_again(cut.step);
        }
        self.listeners.tell(&Event::NewCut(cut));
        self.note_of_cut(&cut.to_string(), answers);
    }

    fn note_of_cut(&mut self, event: &str, answers: Option<u64>) {
        let step = self.done();
        self.write(Task::History, |writer| writer.note_of_cut(step, event, answers));
    }

    /// The cut that somebody asks for, in the process that leads.
    fn asked(&mut self) -> Option<Wanted> {
        match self.dir.take_asked_cut() {
            Ok(asked) => asked.map(|Asked { layers_of_each_stage, question }| Wanted {
                counts: layers_of_each_stage,
                reason: Reason::Asked,
                answers: Some(question),
            }),
            Err(error) => {
                // A file that stays there is told once.
                let event = format!("not cut anew: {error}");
                if let Some(replan) = self.replan.as_mut().filter(|replan| replan.told != event) {
                    replan.told.clone_from(&event);
                    self.note_of_cut(&event, None);
                    self.listeners.warn(Task::Replan, error);
                }
                None
            }
        }
    }

    /// The cut that is faster, in the process that leads.
    fn better(&mut self) -> Option<Wanted> {
        let left = self.steps.saturating_sub(self.done());
        let Some(Replan { watch, is_automatic: true, .. }) = &mut self.replan else {
            return None;
        };
        let better = watch.better(left);
        if let Some([before, now]) = watch.brought() {
            let event = format!("the new cut is kept: a step took {before:.3} s, and takes {now:.3} s");
            self.note_of_cut(&event, None);
        }
        let Some(Replan { watch, .. }) = &mut self.replan else {
            return None;
        };
        match better {
            Ok(better) => better.map(|Better { counts, why, slowness, was, will_be, .. }| {
                let reason = match why {
                    Why::Faster => Reason::Faster { slowness, was, will_be },
                    Why::ItWasFaster => Reason::ItWasFaster { was, before: will_be },
                };
                Wanted { counts, reason, answers: None }
            }),
            Err(error) => {
                watch.refused();
                self.listeners.warn(Task::Replan, error.into());
                None
            }
        }
    }
}
