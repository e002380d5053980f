//! A folder in which the command runs.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use tempfile::TempDir;

/// A folder of a test's own.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    /// A folder with this config and a text to train on.
    pub(crate) fn with(config: &str) -> Self {
        let place = Self(TempDir::new().unwrap());
        place.write("my.toml", config);
        place.write("text.txt", "the quick brown fox jumps over the lazy dog. ".repeat(40));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("pipewright"));
        command.current_dir(self.0.path()).args(args);
        command
    }

    /// The lines of `metrics.jsonl`.
    pub(crate) fn lines(&self, run: &str) -> Vec<Value> {
        let text = self.text(&format!("{run}/metrics.jsonl"));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn checkpoints(&self, run: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(run).join("checkpoints")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

pub(crate) fn signal(process: &Child, name: &str) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}
