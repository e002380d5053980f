//! `pipewright report`: a page of a run, or of several.

mod page;
mod served;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use assert_cmd::cargo::cargo_bin;
use serde_json::json;
use tempfile::TempDir;

/// A folder with made-up runs.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A run with all files that a page is made of.
    fn make(&self, name: &str, steps: u64) {
        let run = self.path(name);
        fs::create_dir_all(&run).unwrap();
        let lines: String = (0..steps).map(|step| line(step, 4.0 / (1.0 + step as f64))).collect();
        fs::write(run.join("metrics.jsonl"), lines).unwrap();
        let rank = json!({ "weights": 1e6, "gradients": 1e6, "optimizer": 2e6, "copies": 0.0,
            "activations": 3e6, "buffers": 5e5 });
        let about = json!({
            "machine": [["processor", "Abacus 9, cores 2, threads 4"]], "ranks": [[0, 0], [0, 1]],
            "memory": [rank, rank], "predicted": { "seconds": 0.25, "bubble": 0.125 },
            "loss": { "quantity": "nats", "target": "token" },
        });
        fs::write(run.join("about.json"), about.to_string()).unwrap();
        let config = "[model]\ndim = 64\n[train]\nname = \"x\"\nsteps = 700\n";
        fs::write(run.join("config.toml"), config).unwrap();
        let began = json!({ "time": "2026-01-31T12:00:00Z", "pid": 7, "step": 0, "event": "began" });
        fs::write(run.join("history.jsonl"), format!("{began}\n")).unwrap();
        let sample = json!({ "step": 10, "prompt": "The ", "text": "quick <fox>\nand" });
        fs::write(run.join("samples.jsonl"), format!("{sample}\n")).unwrap();
        let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>100 % #1</title></svg>\n";
        fs::write(run.join("plan-and-trace.svg"), svg).unwrap();
    }

    fn report(&self, args: &[&str]) -> Output {
        let mut command = Command::new(cargo_bin("pipewright"));
        command.current_dir(self.0.path()).arg("report").args(args).output().unwrap()
    }

    /// The page of a run, and what was said on standard error.
    fn page(&self, args: &[&str]) -> (String, String) {
        let output = self.report(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let path = String::from_utf8(output.stdout).unwrap();
        (fs::read_to_string(self.0.path().join(path.trim_end())).unwrap(), said)
    }

    fn refused(&self, args: &[&str]) -> String {
        let output = self.report(args);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    }
}

fn line(step: u64, loss: f64) -> String {
    let mut line = json!({
        "step": step, "loss": loss, "grad_norm": 1.5, "lr": 1e-3, "tokens": 4096, "seconds": 0.5,
        "tokens_per_second": 8192.0, "bubble": 0.25, "busy": [0.4, 0.3], "waiting": [0.05, 0.15],
        "peak_bytes": [2_000_000, 1_000_000],
    });
    if step % 10 == 9 {
        line["validation_loss"] = json!(loss + 0.5);
    }
    format!("{line}\n")
}

fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part}");
    }
}
