//! `pipewright train`: a model trains as a config says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics_exporter_prometheus::PrometheusBuilder;

use super::cuda_env;
use super::processes::{self, Role};
use super::run_dir::RunDir;
use super::trace::Tracer;
use super::trainer::{Ended, Trainer};
use crate::checkpoint::Checkpoint;
use crate::compose::{self, TrainingData};
use crate::config::Config;
use crate::{Error, Result};

/// Train a model as a config says, cut into pipeline stages.
///
/// Without a config, a small GPT trains on a text that is built in (examples/gpt-text.toml). The
/// run is kept in runs/NAME: config.toml (every setting), metrics.jsonl (a line a step), checkpoints/,
/// loss.svg. Exit status: 0 done; 2 bad arguments, config or data, nothing was started; 1 the run failed, or was
/// stopped at once by a second Ctrl-C; 130 interrupted by Ctrl-C, the state saved.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright train
  pipewright train my.toml --set pipeline.stages=4 --set pipeline.micro_batches=8
  pipewright train my.toml --resume --set pipeline.stages=2
  pipewright train my.toml --steps 20 --trace --run-dir /tmp/traced
  PIPEWRIGHT_TRAIN__STEPS=200 pipewright train my.toml --run-dir /tmp/trial")]
pub(super) struct Args {
    /// The config, a TOML file; with --resume, that of the run when left out
    config: Option<PathBuf>,
    /// Set a key of the config; repeat it for more
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    /// Continue the run from its newest checkpoint, on as many stages as the config now says
    #[arg(long)]
    resume: bool,
    /// Stop after this many steps in all and save; the learning rate still follows train.steps
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// The folder of the run, in place of runs/NAME
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Trace so many steps, the first two apart (5 when no number is given), and draw the one of middle length:
    /// trace.svg, plan-and-trace.svg, and trace.json for Perfetto, in the run's folder
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    trace: Option<u64>,
    /// Print the SHA-256 of all weights at the end
    #[arg(long)]
    weights_hash: bool,
}

impl Args {
    /// What all processes of a run have to have in common.
    fn in_common(&self) -> String {
        let Self {
            resume,
            steps,
            run_dir,
            trace,
            weights_hash,
            ..
        } = self;
        let number = |number: &Option<u64>| number.map_or("no".to_owned(), |number| number.to_string());
        format!(
            "--resume {resume}\n--steps {}\n--run-dir {}\n--trace {}\n--weights-hash {weights_hash}\n",
            number(steps),
            run_dir.as_deref().map_or("no".into(), Path::to_string_lossy),
            number(trace),
        )
    }
}

pub(super) fn run(args: Args) -> Result<ExitCode> {
    let interrupted = Arc::new(AtomicBool::new(false));
    // Whatever fails before the first step is a refusal: nothing was started.
    let mut trainer = prepare(&args).map_err(|error| Error::Invalid(error.to_string()))?;
    on_interrupt(Arc::clone(&interrupted), trainer.role())?;
    let ended = match trainer.train(&interrupted) {
        Ok(ended) => ended,
        Err(error) => {
            if let Err(another) = trainer.fail(&error) {
                eprintln!("{another}");
            }
            return Err(error);
        }
    };
    if args.weights_hash {
        let hash = trainer.weights_hash()?;
        trainer.print(&format!("weights {hash}\n"))?;
    }
    Ok(match ended {
        Ended::Done => ExitCode::SUCCESS,
        Ended::Interrupted => ExitCode::from(130),
    })
}

/// Everything up to the first step.
fn prepare(args: &Args) -> Result<Trainer> {
    let role = Role::here()?;
    let (config, run_dir) = choose(args, role)?;
    cuda_env::enter_for(&config);
    let plan = compose::plan(&config)?;
    if let Some(warning) = &plan.warning {
        eprintln!("warning: {warning}");
    }
    if let Some(why) = plan.why.as_ref().filter(|_| role.leads()) {
        eprintln!("{why}");
    }
    let world = processes::join(&config, &plan, &args.in_common())?;
    let (data, resumed) = match open(args, &config, &run_dir, role) {
        Ok(opened) => opened,
        Err(error) => {
            if let Some(world) = world {
                world.fail(&error);
            }
            return Err(error);
        }
    };
    let mut pipeline = compose::launch(&config, &data, &plan.counts, plan.schedule, world)?;
    if let Some(resumed) = &resumed {
        pipeline.load(&resumed.folder)?;
    }
    let steps = args.steps.unwrap_or(config.train.steps);
    let changes = resumed.map_or(Ok(Vec::new()), |resumed| resumed.changes(&config))?;
    let done = pipeline.next_step();
    let tracer = args
        .trace
        .map(|traced| Tracer::new(traced, done, steps))
        .transpose()?;
    let trainer = Trainer::begin(config, data, pipeline, (run_dir, role), steps, changes)?.traced_by(tracer);
    Ok(match &plan.prediction {
        Some(prediction) => trainer.predicted_by(prediction),
        None => trainer,
    })
}

/// What is there already: the data, and the run to go on with.
fn open(
    args: &Args,
    config: &Config,
    run_dir: &RunDir,
    role: Role,
) -> Result<(TrainingData, Option<Resumed>)> {
    if role.leads() {
        check_place(run_dir, args.resume)?;
        serve_metrics(config)?;
    }
    let resumed = if args.resume {
        Resumed::newest(run_dir)?
    } else {
        None
    };
    Ok((compose::data(config)?, resumed))
}

fn serve_metrics(config: &Config) -> Result<()> {
    let Some(address) = config.metrics.listen else {
        return Ok(());
    };
    let served = PrometheusBuilder::new().with_http_listener(address).install();
    served.map_err(|error| {
        Error::Invalid(format!(
            "metrics.listen: cannot serve metrics on {address}: {error}; choose a free port"
        ))
    })
}

/// What a run continues from.
struct Resumed {
    folder: PathBuf,
    checkpoint: Checkpoint,
}

impl Resumed {
    /// The newest checkpoint, whose files must be whole.
    fn newest(run_dir: &RunDir) -> Result<Option<Self>> {
        let mut all = run_dir.checkpoints()?;
        let Some(folder) = all.pop() else {
            return Ok(None);
        };
        match Checkpoint::open(&folder) {
            Ok(checkpoint) => Ok(Some(Self { folder, checkpoint })),
            Err(error) => Err(Error::Invalid(match all.last() {
                Some(older) => format!(
                    "{error}; remove the folder {} to continue from {}",
                    folder.display(),
                    older.display()
                ),
                None => format!("{error}; there is no earlier one: begin another run, without --resume"),
            })),
        }
    }

    /// What differs from the config it was saved with and makes training go on in another way.
    fn changes(&self, config: &Config) -> Result<Vec<String>> {
        match Config::parse("its config", self.checkpoint.config(), &[], &[]) {
            Ok(saved) => config.changes_from(&saved),
            Err(error) => Ok(vec![format!("it cannot be told what: {error}")]),
        }
    }
}

/// The config and the folder of the run.
fn choose(args: &Args, role: Role) -> Result<(Config, RunDir)> {
    let folder = |config: &Config| match &args.run_dir {
        Some(folder) => RunDir::new(folder),
        None => RunDir::new(Path::new("runs").join(&config.train.name)),
    };
    let (config, run_dir) = match (&args.config, &args.run_dir) {
        (Some(path), _) => {
            let config = Config::load(path, &args.sets)?;
            let run_dir = folder(&config);
            (Some(config), run_dir)
        }
        (None, Some(path)) if args.resume => (None, RunDir::new(path)),
        (None, _) => {
            let config = Config::built_in(&args.sets)?;
            let run_dir = folder(&config);
            (Some(config).filter(|_| !args.resume), run_dir)
        }
    };
    // In a run of several processes the folder of a new run is process 0's to look at, when the others can be told.
    if args.resume || role == Role::Alone {
        check_place(&run_dir, args.resume)?;
    }
    let config = config.map_or_else(|| Config::load(&run_dir.config(), &args.sets), Ok)?;
    Ok((config, run_dir))
}

/// Refuses to write over a run, and to resume none.
fn check_place(run_dir: &RunDir, resume: bool) -> Result<()> {
    let path = run_dir.path().display();
    match (resume, run_dir.is_taken()) {
        (false, true) => Err(Error::Invalid(format!(
            "the run directory {path} exists: continue it with --resume, or name another with --run-dir DIR \
             or --set train.name=NAME"
        ))),
        (true, false) => Err(Error::Invalid(format!(
            "there is no run in {path} to resume: leave out --resume to begin one"
        ))),
        _ => Ok(()),
    }
}

/// The first Ctrl-C asks for an orderly end, the second ends at once: as a failure, because nothing is saved.
fn on_interrupt(interrupted: Arc<AtomicBool>, role: Role) -> Result<()> {
    let handler = move || {
        if interrupted.swap(true, Ordering::SeqCst) {
            std::process::exit(1);
        }
        if role.leads() {
            eprintln!(
                "\ninterrupted: finishing this step, then saving (Ctrl-C again to stop at once, unsaved)"
            );
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Error::Invalid(format!("cannot watch for Ctrl-C: {error}")))
}
