//! The arguments of `pipewright train`.

use std::path::{Path, PathBuf};

/// Train the model of a config, cut into pipeline stages.
///
/// Without a config, a small GPT trains on a built-in text (examples/gpt-text.toml).
///
/// The run is kept in the folder runs/NAME: config.toml (every setting), metrics.jsonl (a line a step),
/// history.jsonl, checkpoints/, run.json (which checkpoint is the last and which is the best) and loss.svg.
///
/// Several processes make one run, as RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say, or a launcher. On
/// several hosts all need one secret: PIPEWRIGHT_TOKEN, or launch.token_file in the config.
///
/// Exit status: 0 done; 1 the run failed, or a second Ctrl-C stopped it at once; 2 the arguments, the config
/// or the data are wrong, and nothing was started; 130 Ctrl-C interrupted it, and the state was saved.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright train
  pipewright train --steps 20 --trace --run-dir runs/traced
  pipewright train --steps 100 --set pipeline.stages=4 --run-dir runs/four
  pipewright train --resume --set pipeline.stages=2 --run-dir runs/four
  pipewright train my.toml --set optimizer.learning_rate=1e-3
  PIPEWRIGHT_TRAIN__STEPS=200 pipewright train my.toml --run-dir runs/trial")]
pub(super) struct Args {
    /// The config, a TOML file; with --resume it may be left out, and is then the run's own
    pub(super) config: Option<PathBuf>,
    /// Set a key of the config; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    pub(super) sets: Vec<String>,
    /// Continue the run from its newest checkpoint, on as many stages as the config says now
    #[arg(long)]
    pub(super) resume: bool,
    /// With --resume: continue even if the data has changed; the run's history records it
    #[arg(long, requires = "resume")]
    pub(super) allow_other_data: bool,
    /// Stop after this many steps in total and save; the learning rate still follows train.steps
    #[arg(long, value_name = "N")]
    pub(super) steps: Option<u64>,
    /// The folder of the run, instead of runs/NAME
    #[arg(long, value_name = "DIR")]
    pub(super) run_dir: Option<PathBuf>,
    /// Trace this many steps (without a number: 5), after two that are not traced, and draw the one of median
    /// length: trace.svg, plan-and-trace.svg, and trace.json for Perfetto, in the run's folder
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    pub(super) trace: Option<u64>,
    /// Print the SHA-256 of all weights at the end
    #[arg(long)]
    pub(super) weights_hash: bool,
}

impl Args {
    /// The options that must be equal in all processes of a run.
    pub(super) fn in_common(&self) -> String {
        let Self {
            allow_other_data,
            steps,
            run_dir,
            trace,
            weights_hash,
            ..
        } = self;
        let number = |number: &Option<u64>| number.map_or("no".to_owned(), |number| number.to_string());
        format!(
            "--allow-other-data {allow_other_data}\n--steps {}\n--run-dir {}\n--trace {}\n\
             --weights-hash {weights_hash}\n",
            number(steps),
            run_dir.as_deref().map_or("no".into(), Path::to_string_lossy),
            number(trace),
        )
    }
}
