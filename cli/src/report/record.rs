//! What a run directory has.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::samples::Samples;
use super::steps::Steps;
use crate::{Error, Result};
use pipewright::error::RunError;
use pipewright::run::{About, HistoryEntry, RunDir, WholeLines};

/// The most bytes of a timeline's picture that a page holds.
const LARGEST_PICTURE: usize = 600_000;

/// A run, as its directory tells it.
#[derive(Clone, Debug)]
pub struct Record {
    dir: RunDir,
    pub(super) name: String,
    pub(super) steps: Steps,
    pub(super) about: About,
    /// The keys of the config with their values, in the config's order.
    pub(super) settings: Vec<(String, String)>,
    /// The steps of the whole run, if its config tells.
    pub(super) planned_steps: Option<u64>,
    pub(super) history: Vec<HistoryEntry>,
    /// The texts that the model wrote.
    pub(super) samples: Samples,
    /// The picture of a traced step beside the planned one.
    pub(super) timeline: Option<String>,
    /// What is missing because a file is damaged.
    pub(super) notices: Vec<String>,
}

impl Record {
    /// Reads a run directory. A run may still train there.
    ///
    /// # Errors
    /// [`RunError`] if there is no run; [`pipewright::Error::Io`].
    pub fn read(path: &Path) -> Result<Self> {
        let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = whole.file_name().unwrap_or(whole.as_os_str());
        let mut record = Self {
            dir: RunDir::at(path),
            name: name.to_string_lossy().into_owned(),
            steps: Steps::default(),
            about: About::default(),
            settings: Vec::new(),
            planned_steps: None,
            history: Vec::new(),
            samples: Samples::of(""),
            timeline: None,
            notices: Vec::new(),
        };
        record.update()?;
        Ok(record)
    }

    /// The directory of the run.
    pub(crate) fn dir(&self) -> &RunDir {
        &self.dir
    }

    /// What is missing because a file is damaged, a sentence each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Names runs by their paths where several have the same name.
    pub(crate) fn distinguish(runs: &mut [Self]) {
        let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
        for run in runs {
            if names.iter().filter(|name| **name == run.name).count() > 1 {
                run.name = run.dir.path().display().to_string();
            }
        }
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn update(&mut self) -> Result<()> {
        let metrics = self.dir.metrics();
        self.notices.clear();
        self.read_about();
        match self.steps.update(&metrics, self.about.since) {
            Err(error) if error.kind() == ErrorKind::NotFound || error.kind() == ErrorKind::NotADirectory => {
                return Err(RunError::new(format!(
                    "there is no run in {}: it has no file metrics.jsonl; name the folder of a run, such as \
                     runs/gpt-text",
                    self.dir.path().display()
                ))
                .into());
            }
            read => read.map_err(Error::io("read", metrics))?,
        }
        self.leaves_out("metrics.jsonl", self.steps.damaged);
        self.read_settings();
        self.read_history();
        self.read_samples();
        self.read_timeline();
        Ok(())
    }

    fn read_about(&mut self) {
        let text = self.text(self.dir.about());
        match text.map(|text| serde_json::from_str(&text)) {
            Some(Ok(about)) => self.about = about,
            Some(Err(error)) => self.lacks("about.json", &error, "machine and planned memory are left out"),
            None => {}
        }
    }

    fn read_settings(&mut self) {
        let text = self.text(self.dir.config());
        match text.map(|text| text.parse::<Table>()) {
            Some(Ok(table)) => {
                let steps = table.get("train").and_then(|train| train.get("steps"));
                self.planned_steps =
                    steps.and_then(Value::as_integer).and_then(|steps| steps.try_into().ok());
                self.settings.clear();
                flatten("", &table, &mut self.settings);
            }
            Some(Err(error)) => self.lacks("config.toml", &error.message(), "settings are left out"),
            None => {}
        }
    }

    fn read_history(&mut self) {
        self.history.clear();
        let text = self.text(self.dir.history()).unwrap_or_default();
        let (mut lines, mut damaged) = (WholeLines::new(text.as_bytes()), 0);
        while let Ok(Some(line)) = lines.next_line() {
            match serde_json::from_slice(line) {
                Ok(entry) => self.history.push(entry),
                Err(_) => damaged += 1,
            }
        }
        self.leaves_out("history.jsonl", damaged);
    }

    fn read_samples(&mut self) {
        self.samples = Samples::of(&self.text(self.dir.samples()).unwrap_or_default());
        self.leaves_out("samples.jsonl", self.samples.damaged);
    }

    fn read_timeline(&mut self) {
        self.timeline = None;
        let Some(text) = self.text(self.dir.plan_and_trace()) else {
            return;
        };
        if !text.starts_with("<svg") || !text.trim_end().ends_with("</svg>") {
            self.lacks("plan-and-trace.svg", &"it is no whole picture", "the traced step is left out");
        } else if text.len() > LARGEST_PICTURE {
            self.notices.push(format!(
                "plan-and-trace.svg has {} kB, too much for this page: open it beside the page",
                text.len() / 1000
            ));
        } else {
            self.timeline = Some(text);
        }
    }

    /// The text of a file, if there is one.
    fn text(&mut self, path: PathBuf) -> Option<String> {
        match fs::read(&path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                self.notices.push(format!("{name} cannot be read: {error}"));
                None
            }
        }
    }

    fn leaves_out(&mut self, file: &str, damaged: u64) {
        if damaged > 0 {
            self.notices.push(format!("{file}: lines that could not be read and are left out: {damaged}"));
        }
    }

    fn lacks(&mut self, file: &str, why: &dyn std::fmt::Display, what: &str) {
        self.notices.push(format!("{file} is damaged ({why}): {what}"));
    }
}

/// Adds the keys of a table, as `section.key`.
fn flatten(before: &str, table: &Table, to: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let key = format!("{before}{key}");
        match value {
            Value::Table(inner) => flatten(&format!("{key}."), inner, to),
            Value::String(text) => to.push((key, text.clone())),
            other => to.push((key, other.to_string())),
        }
    }
}
