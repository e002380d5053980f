//! Run directories that a page is made of.

use std::slice;

use pipewright_cli::report::{Record, page};

use super::*;

/// The lines of three steps.
fn steps() -> String {
    let lines = [
        json!({ "step": 0, "loss": 4.5, "accuracy": 0.5, "grad_norm": 1.5, "lr": 1e-3, "tokens": 4096,
            "seconds": 0.5, "tokens_per_second": 8192.0, "bubble": 0.25, "reducing": 0.1, "busy": [0.4, 0.3],
            "waiting": [0.05, 0.15], "peak_bytes": [2_000_000, 1_000_000] }),
        json!({ "step": 1, "loss": -2.5e-3, "grad_norm": 1e30, "lr": 0, "tokens": 0, "seconds": 0,
            "tokens_per_second": 0, "bubble": 1, "peak_bytes": [], "validation_loss": 3.5,
            "validation_accuracy": 1 }),
        json!({ "step": 2, "loss": 2.25, "grad_norm": 0.5, "lr": 1e-3, "tokens": 4096, "seconds": 0.25,
            "tokens_per_second": 16384.0, "bubble": 0, "busy": [0.4], "waiting": [0.05],
            "shard_waiting": [0.06], "peak_bytes": [3],
            "loss_step": 1, "staleness": 1 }),
    ];
    lines.map(|line| format!("{line}\n")).concat()
}

fn about() -> String {
    let memory = json!({ "weights": 1e6, "gradients": 1e6, "optimizer": 2e6, "copies": 0.0,
        "activations": 3e6, "buffers": 5e5 });
    let about = json!({
        "machine": [["processor", "Abacus 9"]],
        "ranks": [{ "replica": 0, "rank": 0 }, { "replica": 1, "rank": 0, "shard": 1 }],
        "memory": [memory],
        "predicted": { "seconds": 0.25, "bubble": 0.125 },
        "loss": { "quantity": "nats", "target": "token" },
    });
    format!("{about}\n")
}

const SETTINGS: &str = "[model]\ndim = 64\nsizes = [1, 2]\n[train]\nname = 'x'\nsteps = 700\n";

const HISTORY: &str = r#"{"time":"2026-01-31T12:00:00Z","pid":7,"step":0,"event":"began"}
{"time":"2026-01-31T12:00:05Z","pid":7,"step":3,"event":"resumed"}
"#;

const SAMPLES: &str = r#"{"step":1,"prompt":"The ","text":"quick <fox>\nand"}
{"step":2,"prompt":"","text":"é"}
"#;

const TIMELINE: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>100 % #1</title></svg>\n";

fn files() -> [(&'static str, String); 6] {
    [
        ("metrics.jsonl", steps()),
        ("about.json", about()),
        ("config.toml", SETTINGS.to_owned()),
        ("history.jsonl", HISTORY.to_owned()),
        ("samples.jsonl", SAMPLES.to_owned()),
        ("plan-and-trace.svg", TIMELINE.to_owned()),
    ]
}

fn make(folder: &Path) {
    for (name, text) in files() {
        write(&folder.join(name), text.as_bytes());
    }
}

/// Damages one file of a run directory, and makes pages of it: of the run alone, of it beside a whole one,
/// and of a run that is looked at again after the damage.
fn fuzz(name: &'static str, file: &str, words: &'static str) {
    let [damaged, whole] = [0, 1].map(|_| TempDir::new().expect("a folder"));
    make(damaged.path());
    make(whole.path());
    let other = Record::read(whole.path()).expect("a run");
    assert_eq!(other.notices(), [] as [&str; 0], "the files are whole before they are damaged");
    let path = damaged.path().join(file);
    let (_, seed) = files().into_iter().find(|(name, _)| *name == file).expect("one of them");
    let scripts = page(slice::from_ref(&other), false).matches("<script").count();
    Target {
        name,
        seeds: vec![seed.as_bytes().to_vec()],
        words,
        inputs: 300,
        bytes: 64 * MIB,
        blocks: 1_000_000,
    }
    .fuzz(|input| {
        write(&path, seed.as_bytes());
        let mut again = told(Record::read(damaged.path()))?;
        write(&path, input);
        told(again.update())?;
        let run = told(Record::read(damaged.path()))?;
        let notices = run.notices().to_vec();
        let pages =
            [page(slice::from_ref(&run), false), page(&[other.clone(), run], false), page(&[again], true)];
        let could_have_said = String::from_utf8_lossy(input).to_lowercase();
        for page in pages {
            assert_eq!(page.matches("<script").count(), scripts, "a text of the run is code");
            // Text may have such words; the attributes of a picture may not.
            for (at, number) in ["NaN", "inf"].iter().flat_map(|word| page.match_indices(word)) {
                let before = &page[..at];
                let is_text = before.rfind('>') > before.rfind('<');
                let near = before.rfind('<').unwrap_or_default();
                assert!(
                    is_text || could_have_said.contains(&number.to_lowercase()),
                    "{}{number}",
                    &before[near..]
                );
            }
        }
        match notices.is_empty() {
            true => Ok(()),
            false => Err(notices.join("; ")),
        }
    });
    fs::remove_file(path).expect("it was there");
}

#[test]
fn report_metrics() {
    let _alone = alone();
    fuzz(
        "report_metrics",
        "metrics.jsonl",
        "step, loss, accuracy, validation_accuracy, perplexity, grad_norm, seconds, busy, waiting, \
         shard_waiting, peak_bytes, validation_loss, 18446744073709551615, 9007199254740993, 1e308, \
         -1e308, 5e-324, null, \n{, }\n",
    );
}

#[test]
fn report_about() {
    let _alone = alone();
    fuzz(
        "report_about",
        "about.json",
        "machine, ranks, memory, predicted, seconds, bubble, loss, target, activations, 4294967295, \
         1e308, -1, null, <script>, \\u0000, \\\"",
    );
}

#[test]
fn report_settings() {
    let _alone = alone();
    fuzz(
        "report_settings",
        "config.toml",
        "[train], steps, = -1, [[, ]], {, nan, inf, \", ''', <script>, 2026-01-31",
    );
}

#[test]
fn report_history() {
    let _alone = alone();
    fuzz(
        "report_history",
        "history.jsonl",
        "time, pid, step, event, 18446744073709551615, \\u0000, <script>, \n{, }\n",
    );
}

#[test]
fn report_samples() {
    let _alone = alone();
    fuzz(
        "report_samples",
        "samples.jsonl",
        "step, prompt, text, 18446744073709551615, \\ud800, \\u0000, <script>, \n{, }\n",
    );
}

#[test]
fn report_timelines() {
    let _alone = alone();
    fuzz(
        "report_timelines",
        "plan-and-trace.svg",
        "<svg, </svg>, <script>, \", &quot;, %, #, \u{0}, ]]>, -->",
    );
}
