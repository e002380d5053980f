//! `pipewright report`: a page of a run, or of several.

mod page;
mod served;

use serde_json::json;

use super::*;

impl Place {
    /// A run with all files that a page is made of.
    fn make(&self, name: &str, steps: u64) {
        let run = self.path(name);
        fs::create_dir_all(&run).unwrap();
        let lines: String = (0..steps).map(|step| line(step, 4.0 / (1.0 + step as f64))).collect();
        fs::write(run.join("metrics.jsonl"), lines).unwrap();
        let rank = json!({ "weights": 1e6, "gradients": 1e6, "optimizer": 2e6, "copies": 0.0,
            "activations": 3e6, "buffers": 5e5 });
        let about = json!({
            "machine": [["processor", "Abacus 9, cores 2, threads 4"]],
            "ranks": [{ "rank": 0 }, { "rank": 1 }],
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

    fn report(&self, args: &[&str]) -> Run {
        self.run(&[&["report"], args].concat())
    }

    /// The page of a run, and what was said on standard error.
    fn page(&self, args: &[&str]) -> (String, String) {
        let run = self.report(args).done();
        (fs::read_to_string(self.path(run.stdout().trim_end())).unwrap(), run.stderr())
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
