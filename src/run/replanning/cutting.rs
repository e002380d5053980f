//! What a run does about its cut between two steps.

use pipewright_stages::Stage;
use serde::{Deserialize, Serialize};

use super::Replan;
use crate::Result;
use crate::pipeline::{Cut, StepReport};
use crate::plan::{Better, Replicas, Why};
use crate::run::directory::cut::{NOT_CHANGED, NewCut, Reason};
use crate::run::directory::folder::About;
use crate::run::directory::history::HistoryEntry;
use crate::run::event::{Event, Task, cut_has_brought, cut_is_kept};
use crate::run::forecast::Forecast;
use crate::run::session::Session;

/// With several processes, a new cut is possible before each step whose number is a multiple of this.
const EVERY: u64 = 8;

/// What process 0 tells the others.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    cut: Cut,
    reason: Reason,
    /// The number of the question, if somebody has asked.
    answers: Option<u64>,
}

impl<S: Stage> Session<'_, S> {
    /// Adds a step to what is watched.
    pub(in crate::run) fn watch(&mut self, report: &StepReport) {
        let (Some(replan), Some(_)) = (&mut self.replan, &self.writer) else {
            return;
        };
        let brought = replan.effect.add(report.seconds);
        if let Replan { watch, is_automatic: true, .. } = replan {
            watch.add(report.seconds, report.ranks.iter().map(|rank| rank.busy).collect());
        }
        if let Some([before, now]) = brought {
            self.listeners.tell(&Event::CutHasBrought { before, now });
            self.note_of_cut(&cut_has_brought(before, now), None);
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
        let (Some(Wanted { cut: to, reason, answers }), Some(replan)) = (wanted, &mut self.replan) else {
            return Ok(());
        };
        let from = replan.now().clone();
        if to == from {
            if answers.is_none() {
                replan.watch.refused();
            }
            self.note_of_cut(&format!("{NOT_CHANGED}nothing would be other than now"), answers);
            return Ok(());
        }
        // So the run hears of a checkpoint that is on its way.
        self.wait()?;
        match self.pipeline.recut_to(&to) {
            Ok((recut, replicas)) => {
                let (moved, seconds) = (recut.moved, recut.seconds);
                let cut = NewCut { step: self.done(), from, to, reason, moved, seconds };
                self.is_cut(&cut, replicas, answers);
                Ok(())
            }
            Err(error) if self.pipeline.ends_by(&error) => Err(error),
            Err(error) => {
                if let Some(replan) = self.replan.as_mut().filter(|_| answers.is_none()) {
                    replan.watch.refused();
                }
                self.note_of_cut(&format!("{NOT_CHANGED}{error}"), answers);
                // Who has asked is told.
                if answers.is_none() {
                    self.listeners.warn(Task::Replan, error);
                }
                Ok(())
            }
        }
    }

    /// The pipeline has joined its run again, with the cut of what the processes kept in memory, or with the
    /// one at launch.
    pub(in crate::run) fn follow_cut(&mut self) {
        let Some(replan) = &mut self.replan else {
            return;
        };
        let was = replan.now().clone();
        match self.pipeline.cut_since_launch() {
            Some((cut, replicas)) => replan.returns_to(cut, replicas.clone()),
            None => replan.returns_to_launch(),
        }
        if *replan.now() == was {
            return;
        }
        // Not all processes know the passes of the first steps with this cut.
        self.forecast = None;
        self.tell_about_cut();
        let Some(replan) = &self.replan else {
            return;
        };
        let which = match replan.now() == replan.launched() {
            true => "goes on with the cut at launch",
            false => "goes on with the cut that was kept in memory",
        };
        let event = format!("{which}: {}", replan.now());
        if self.leads() {
            self.listeners.show_everywhere(&event);
        }
        self.note_of_cut(&event, None);
    }

    fn is_cut(&mut self, cut: &NewCut, replicas: Replicas, answers: Option<u64>) {
        if let Some(replan) = &mut self.replan {
            let was = match cut.reason {
                Reason::Faster { was, .. } => Some(was),
                Reason::ItWasFaster { .. } | Reason::Asked => None,
            };
            replan.effect.changes(cut.reason == Reason::Asked);
            replan.goes_on(&cut.to, replicas, cut.seconds, was);
        }
        self.forecast = self.forecasts.then(Forecast::by_passes);
        self.tell_about_cut();
        if let Some(tracer) = &mut self.tracer {
            tracer.begin_again(cut.step);
        }
        self.listeners.tell(&Event::NewCut(cut));
        self.note_of_cut(&cut.to_string(), answers);
    }

    /// Writes what is known of the run with its new cut.
    fn tell_about_cut(&mut self) {
        if self.writer.is_none() {
            return;
        }
        let ranks = self.pipeline.rank_names();
        let memory = self.replan.as_ref().map(Replan::memory).unwrap_or_default();
        // Steps that are repeated are told by the ranks that ran them first.
        let since = self.done().max(self.rejoining.told.lines.next());
        self.write(Task::Replan, |writer| {
            writer.about(|about| {
                let since = if ranks == about.ranks { about.since } else { since };
                *about = About { ranks, since, memory, predicted: None, ..about.clone() };
            })
        });
    }

    /// A run that is resumed has the cut of its config. Says so, if it had another one when it ended.
    pub(in crate::run) fn note_old_cut(&mut self) {
        let (Some(now), Some(_)) = (self.cut_now(), &self.writer) else {
            return;
        };
        // A history that cannot be read is told elsewhere.
        let before = self.dir.events().unwrap_or_default().into_iter().rev().find_map(|entry| entry.cut);
        if let Some(before) = before.filter(|before| *before != now) {
            self.notes.push(format!(
                "begins with the cut of its config ({now}), and ended with another one ({before})"
            ));
        }
    }

    /// Adds the beginning to the history, with the cut if it may change.
    pub(in crate::run) fn note_with_cut(&mut self, event: &str) {
        let entry = HistoryEntry { cut: self.cut_now(), ..HistoryEntry::now(self.done(), event) };
        self.write(Task::History, |writer| writer.note_entry(&entry));
    }

    fn note_of_cut(&mut self, event: &str, answers: Option<u64>) {
        let (cut, of_cut) = (self.cut_now(), true);
        let entry = HistoryEntry { of_cut, cut, answers, ..HistoryEntry::now(self.done(), event) };
        self.write(Task::History, |writer| writer.note_entry(&entry));
    }

    fn cut_now(&self) -> Option<Cut> {
        self.replan.as_ref().map(|replan| replan.now().clone())
    }

    /// The cut that somebody asks for, in the process that leads.
    fn asked(&mut self) -> Option<Wanted> {
        match self.dir.take_asked_cut() {
            Ok(asked) => asked.zip(self.replan.as_ref()).map(|(asked, replan)| Wanted {
                cut: asked.change.of(replan.now()),
                reason: Reason::Asked,
                answers: Some(asked.question),
            }),
            Err(error) => {
                // A file that stays there is told once.
                let event = format!("{NOT_CHANGED}{error}");
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
            self.listeners.tell(&Event::CutIsKept { before, now });
            self.note_of_cut(&cut_is_kept(before, now), None);
        }
        let replan = self.replan.as_mut()?;
        match better {
            Ok(better) => better.map(|better| {
                let cut = replan.cut_of(&better);
                let Better { why, slowness, was, will_be, .. } = better;
                let reason = match why {
                    Why::Faster => Reason::Faster { slowness, was, will_be },
                    Why::ItWasFaster => Reason::ItWasFaster { was, before: will_be },
                };
                Wanted { cut, reason, answers: None }
            }),
            Err(error) => {
                replan.watch.refused();
                self.listeners.warn(Task::Replan, error.into());
                None
            }
        }
    }
}
