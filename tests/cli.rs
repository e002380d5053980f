//! The commands train and sample, as a person or a script runs them.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use tempfile::TempDir;

/// Small enough to train in no time; dropout on.
const CONFIG: &str = "\
[model]
dim = 16
layers = 2
heads = 2
dropout = 0.1

[data]
path = 'text.txt'
seq = 16

[pipeline]
micro_batches = 3
micro_batch_size = 2

[train]
name = 'small'
steps = 6
validate_every = 3
print_every = 1

[checkpoint]
every = 2
";

/// A folder with a config and a text to train on.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("my.toml"), CONFIG).unwrap();
        fs::write(
            folder.path().join("text.txt"),
            "the quick brown fox jumps over the lazy dog. ".repeat(40),
        )
        .unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("pipewright"));
        command.current_dir(self.0.path()).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run(self.command(args).output().unwrap())
    }

    /// The steps in `metrics.jsonl`.
    fn steps(&self, run: &str) -> Vec<u64> {
        self.lines(run)
            .iter()
            .map(|line| line["step"].as_u64().unwrap())
            .collect()
    }

    fn lines(&self, run: &str) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path(run).join("metrics.jsonl")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn checkpoints(&self, run: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(run).join("checkpoints")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Starts a long run and waits until it has done some steps.
    fn start(&self, args: &[&str]) -> Child {
        let long = [
            "train",
            "my.toml",
            "--set",
            "train.steps=1000000",
            "--set",
            "train.validate_every=0",
        ];
        let mut command = self.command(&[&long[..], args].concat());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let metrics = self.path("runs/small/metrics.jsonl");
        wait_until(|| fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() > 4));
        child
    }
}

struct Run(Output);

impl Run {
    fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(
            self.0.status.code(),
            Some(0),
            "{}{}",
            self.stdout(),
            self.stderr()
        );
        self
    }

    /// The message of a refusal, which is one line and starts nothing.
    #[track_caller]
    fn refused(self) -> String {
        assert_eq!(
            self.0.status.code(),
            Some(2),
            "{}{}",
            self.stdout(),
            self.stderr()
        );
        assert_eq!(self.stdout(), "");
        self.stderr()
    }

    fn hash(&self) -> String {
        let stdout = self.stdout();
        stdout
            .lines()
            .find_map(|line| line.strip_prefix("weights "))
            .unwrap_or_else(|| panic!("{stdout}"))
            .to_owned()
    }
}

fn wait_until(holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "it took too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

mod train {
    use super::*;

    #[test]
    fn a_run_leaves_its_config_numbers_picture_and_checkpoints() {
        let place = Place::new();
        let run = place
            .run(&["train", "my.toml", "--set", "checkpoint.keep=2"])
            .done();
        let stdout = run.stdout();
        for part in [
            "text.txt`: 1800 bytes, the last 180 for validation",
            "stages 2, schedule 1f1b",
            "step      5  loss ",
        ] {
            assert!(stdout.contains(part), "{stdout}");
        }
        assert!(
            stdout.contains("validation after 3 steps: loss ") && stdout.contains("validation after 6 steps"),
            "{stdout}"
        );
        assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(
            place.checkpoints("runs/small"),
            ["step-00000004", "step-00000006"]
        );
        let config = fs::read_to_string(place.path("runs/small/config.toml")).unwrap();
        assert!(
            config.contains("keep = 2") && config.contains("clip = 1.0"),
            "{config}"
        );
        let picture = fs::read_to_string(place.path("runs/small/loss.svg")).unwrap();
        assert!(picture.contains("<svg") && picture.contains("validation"));
    }

    #[test]
    fn a_line_of_numbers_has_every_field() {
        let place = Place::new();
        place.run(&["train", "my.toml", "--run-dir", "here"]).done();
        let line = &place.lines("here")[2];
        for field in [
            "loss",
            "grad_norm",
            "lr",
            "seconds",
            "tokens_per_second",
            "bubble",
            "validation_loss",
        ] {
            assert!(line[field].is_f64(), "{field} in {line}");
        }
        assert_eq!(line["tokens"], 96);
        assert_eq!(line["peak_bytes"].as_array().unwrap().len(), 2);
        assert!(place.lines("here")[1].get("validation_loss").is_none());
    }

    #[test]
    fn the_same_weights_on_any_stages_and_schedule_and_after_resuming_on_others() {
        let place = Place::new();
        let whole = place.run(&["train", "my.toml", "--weights-hash"]).done().hash();
        for (stages, schedule) in [("1", "gpipe"), ("4", "1f1b"), ("3", "gpipe")] {
            let folder = format!("at-{stages}");
            let (stages, schedule) = (
                format!("pipeline.stages={stages}"),
                format!("pipeline.schedule={schedule}"),
            );
            let args = [
                "train",
                "my.toml",
                "--weights-hash",
                "--run-dir",
                &folder,
                "--set",
                &stages,
                "--set",
                &schedule,
            ];
            assert_eq!(place.run(&args).done().hash(), whole, "{stages} {schedule}");
        }
        place
            .run(&["train", "my.toml", "--run-dir", "two", "--steps", "3"])
            .done();
        assert_eq!(place.checkpoints("two"), ["step-00000002", "step-00000003"]);
        let resume = [
            "train",
            "--resume",
            "--run-dir",
            "two",
            "--set",
            "pipeline.stages=4",
            "--weights-hash",
        ];
        let resumed = place.run(&resume).done();
        assert!(
            resumed.stdout().contains("resumed after 3 steps"),
            "{}",
            resumed.stdout()
        );
        assert_eq!(resumed.hash(), whole);
        assert_eq!(place.steps("two"), [0, 1, 2, 3, 4, 5]);
        let again = place.run(&resume).done();
        assert_eq!((again.hash(), place.steps("two").len()), (whole, 6));
    }

    #[test]
    fn a_killed_run_resumes_and_has_every_step_once() {
        let place = Place::new();
        let mut child = place.start(&[]);
        child.kill().unwrap();
        child.wait().unwrap();
        let newest = place.checkpoints("runs/small").pop().unwrap();
        let done: u64 = newest.strip_prefix("step-").unwrap().parse().unwrap();
        let steps = (done + 3).to_string();
        let resumed = place
            .run(&[
                "train",
                "my.toml",
                "--resume",
                "--steps",
                &steps,
                "--weights-hash",
            ])
            .done();
        assert!(
            resumed.stdout().contains(&format!("resumed after {done} steps")),
            "{}",
            resumed.stdout()
        );
        assert_eq!(place.steps("runs/small"), (0..done + 3).collect::<Vec<_>>());
        let whole = [
            "train",
            "my.toml",
            "--run-dir",
            "whole",
            "--steps",
            &steps,
            "--weights-hash",
        ];
        assert_eq!(place.run(&whole).done().hash(), resumed.hash());
    }

    #[test]
    fn an_interruption_finishes_the_step_saves_and_exits_with_130() {
        let place = Place::new();
        let child = place.start(&["--set", "checkpoint.every=0"]);
        signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("interrupted: finishing this step, then saving")
        );
        let steps = place.steps("runs/small");
        assert_eq!(
            place.checkpoints("runs/small"),
            [format!("step-{:08}", steps.len())]
        );
        let more = (steps.len() + 1).to_string();
        place
            .run(&["train", "my.toml", "--resume", "--steps", &more])
            .done();
        assert_eq!(place.steps("runs/small").len(), steps.len() + 1);
    }

    #[test]
    fn a_loss_that_is_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint() {
        let place = Place::new();
        place.run(&["train", "my.toml", "--steps", "2"]).done();
        let run = place.run(&[
            "train",
            "my.toml",
            "--resume",
            "--set",
            "optimizer.learning_rate=1e30",
        ]);
        assert_eq!(run.0.status.code(), Some(1), "{}", run.stderr());
        let stderr = run.stderr();
        assert!(
            stderr.contains("is not finite; first in") && stderr.contains("error: step 3: "),
            "{stderr}"
        );
        assert!(
            stderr.contains("the newest checkpoint is runs/small/checkpoints/step-00000002"),
            "{stderr}"
        );
        place.run(&["train", "my.toml", "--resume"]).done();
        assert_eq!(place.steps("runs/small"), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn the_environment_sets_keys() {
        let place = Place::new();
        let output = place
            .command(&["train", "my.toml"])
            .env("PIPEWRIGHT_TRAIN__STEPS", "1")
            .output()
            .unwrap();
        assert!(output.status.success());
        assert_eq!(place.steps("runs/small"), [0]);
    }

    #[test]
    fn a_metrics_endpoint_serves_the_numbers_of_the_run() {
        let place = Place::new();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut child = place.start(&["--set", &format!("metrics.listen={address}")]);
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        for name in [
            "pipewright_loss ",
            "pipewright_tokens_per_second ",
            "pipewright_rank_busy_seconds{rank=\"1\"} ",
        ] {
            assert!(answer.contains(name), "{answer}");
        }
    }

    #[test]
    fn mnist_reaches_94_percent() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let data = folder.join("../shared/data/mnist-t10k");
        if !data.exists() {
            println!("skipped: {} is absent", data.display());
            return;
        }
        let place = Place::new();
        let (config, data) = (
            folder.join("examples/mnist.toml"),
            format!("data.path={}", data.display()),
        );
        place
            .run(&[
                "train",
                config.to_str().unwrap(),
                "--run-dir",
                "mnist",
                "--set",
                &data,
            ])
            .done();
        let lines = place.lines("mnist");
        assert!(lines.last().unwrap()["validation_accuracy"].as_f64().unwrap() >= 0.94);
    }
}

mod refusals {
    use super::*;

    /// Nothing was started: there is no run directory.
    #[track_caller]
    fn refused(args: &[&str], part: &str) {
        let place = Place::new();
        let said = place.run(args).refused();
        assert!(said.starts_with("error: ") && said.contains(part), "{said}");
        assert!(!place.path("runs").exists());
    }

    #[test]
    fn configs_and_arguments() {
        refused(&["train", "none.toml"], "cannot read none.toml: ");
        refused(
            &["train", "my.toml", "--set", "model.dmi=8"],
            "--set: unknown key model.dmi: did you mean `dim`?",
        );
        refused(
            &["train", "my.toml", "--set", "model.heads=3"],
            "model.dim 16 is not divisible by 3 heads",
        );
        refused(
            &["train", "my.toml", "--set", "pipeline.stages=9"],
            "pipeline.stages: 9 stages for 6 layers",
        );
        refused(
            &["train", "my.toml", "--set", "pipeline.micro_batches=0"],
            "pipeline.micro_batches: is 0",
        );
        refused(
            &["train", "my.toml", "--resume"],
            "there is no run in runs/small to resume",
        );
        refused(
            &["train", "--resume", "--run-dir", "x"],
            "there is no run in x to resume",
        );
        refused(&["train", "my.toml", "--zzz"], "unexpected argument '--zzz'");
    }

    #[test]
    fn data() {
        refused(
            &["train", "my.toml", "--set", "data.path=none.txt"],
            "cannot read `none.txt`: ",
        );
        refused(
            &["train", "my.toml", "--set", "data.seq=5000"],
            "`text.txt` is too short: of its 1800 tokens 1620",
        );
        refused(
            &["train", "my.toml", "--set", "model.vocab=100"],
            "is outside the model's vocabulary of 100",
        );
    }

    #[test]
    fn a_run_directory_that_exists() {
        let place = Place::new();
        fs::create_dir_all(place.path("runs/small")).unwrap();
        place.run(&["train", "my.toml", "--steps", "1"]).done();
        let said = place.run(&["train", "my.toml"]).refused();
        assert!(
            said.contains("the run directory runs/small exists: continue it with --resume, or name another"),
            "{said}"
        );
        assert_eq!(place.steps("runs/small"), [0]);
    }

    #[test]
    fn a_port_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let set = format!("metrics.listen={address}");
        refused(
            &["train", "my.toml", "--set", &set],
            &format!("metrics.listen: cannot serve metrics on {address}: "),
        );
    }

    #[test]
    fn checkpoints_that_are_damaged_or_of_another_model() {
        let place = Place::new();
        place.run(&["train", "my.toml", "--steps", "2"]).done();
        let said = place
            .run(&["train", "my.toml", "--resume", "--set", "model.dim=32"])
            .refused();
        assert!(
            said.contains("has dimensions [") && said.contains("model.safetensors"),
            "{said}"
        );
        let said = place
            .run(&["train", "my.toml", "--resume", "--set", "model.layers=3"])
            .refused();
        assert!(said.contains("`h.2.") && said.contains("is missing"), "{said}");
        let weights = place.path("runs/small/checkpoints/step-00000002/model.safetensors");
        let whole = fs::read(&weights).unwrap();
        fs::write(&weights, &whole[..whole.len() - 1]).unwrap();
        let said = place.run(&["train", "my.toml", "--resume"]).refused();
        assert!(said.contains("model.safetensors: not a whole file"), "{said}");
    }
}

mod sample {
    use super::*;

    fn trained() -> Place {
        let place = Place::new();
        place.run(&["train", "my.toml", "--steps", "2"]).done();
        place
    }

    fn written(place: &Place, args: &[&str]) -> Vec<u8> {
        place
            .run(&[&["sample", "runs/small", "--tokens", "40"], args].concat())
            .done()
            .0
            .stdout
    }

    #[test]
    fn text_begins_with_the_prompt_and_has_as_many_bytes_as_asked_for() {
        let text = written(&trained(), &["--prompt", "the quick"]);
        assert!(text.starts_with(b"the quick"));
        assert_eq!(text.len(), "the quick".len() + 40 + "\n".len());
    }

    #[test]
    fn the_seed_chooses_and_no_temperature_or_one_candidate_leaves_no_choice() {
        let place = trained();
        assert_eq!(
            written(&place, &["--seed", "3"]),
            written(&place, &["--seed", "3"])
        );
        assert_ne!(
            written(&place, &["--seed", "3"]),
            written(&place, &["--seed", "4"])
        );
        let likeliest = written(&place, &["--temperature", "0", "--seed", "5"]);
        assert_eq!(written(&place, &["--top-k", "1", "--seed", "6"]), likeliest);
        assert_eq!(
            written(&place, &["--top-k", "1000", "--seed", "3"]),
            written(&place, &["--seed", "3"])
        );
    }

    #[test]
    fn a_checkpoint_can_be_named_itself() {
        let place = trained();
        let newest = place
            .run(&["sample", "runs/small", "--tokens", "9"])
            .done()
            .stdout();
        let named = place
            .run(&["sample", "runs/small/checkpoints/step-00000002", "--tokens", "9"])
            .done()
            .stdout();
        assert_eq!(newest, named);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let place = trained();
        let refused = |args: &[&str]| place.run(args).refused();
        assert!(refused(&["sample", "none"]).contains("none is no checkpoint, and no run that has one"));
        assert!(refused(&["sample", "runs/small", "--prompt", ""]).contains("--prompt is empty"));
        assert!(
            refused(&["sample", "runs/small", "--temperature=-1"])
                .contains("--temperature -1: it must be 0 or more")
        );
        assert!(
            refused(&["sample", "runs/small", "--top-k", "0"]).contains("--top-k 0: it must be 1 or more")
        );
    }

    #[test]
    fn a_model_on_token_files_reads_and_writes_tokens() {
        let place = Place::new();
        let tokens: Vec<u8> = (0..900_u16)
            .flat_map(|index| (index % 300).to_le_bytes())
            .collect();
        fs::write(place.path("tokens.bin"), tokens).unwrap();
        let sets = [
            "--set",
            "data.kind=tokens",
            "--set",
            "data.path=tokens.bin",
            "--set",
            "model.vocab=300",
        ];
        place
            .run(&[&["train", "my.toml", "--steps", "1"], &sets[..]].concat())
            .done();
        let text = place
            .run(&["sample", "runs/small", "--prompt", "17 299", "--tokens", "3"])
            .done()
            .stdout();
        let written: Vec<u32> = text
            .split_whitespace()
            .map(|token| token.parse().unwrap())
            .collect();
        assert_eq!((written.len(), &written[..2]), (5, &[17, 299][..]));
        let said = place.run(&["sample", "runs/small", "--prompt", "17 x"]).refused();
        assert!(said.contains("--prompt: `x` is no token"), "{said}");
        let said = place.run(&["sample", "runs/small", "--prompt", "300"]).refused();
        assert!(
            said.contains("token 300 is outside the model's vocabulary of 300"),
            "{said}"
        );
    }
}
