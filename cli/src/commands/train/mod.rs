//! `pipewright train`: trains a model as a config says. Here is all that a person sees of it, from the first
//! moment to the end.

mod interruption;
mod introduction;
mod machine;
mod metrics;
mod samples;
mod spare;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::bars::{FetchingBar, WorkBars, show_reference};
use super::cuda_env;
use super::key;
use super::memory;
use super::processes::{self, Role};
use super::stalls::ShowsStalls;
use super::{Failure, INTERRUPTED};
use crate::compose::{self, RanksHere, Room, TrainingData};
use crate::config::Config;
use crate::{Error, Result};
use interruption::Interruption;
use introduction::Introduction;
use pipewright::checkpoint::{Checkpoint, Stored};
use pipewright::error::{RunError, StoreError};
use pipewright::fabric::World;
use pipewright::pipeline::Pipeline;
use pipewright::plan::RankMemory;
use pipewright::pretrained::{told_of_adapters, told_of_model};
use pipewright::run::{
    Ended, Forecast, Outcome, Progress, Resume, Run, RunDir, Validation, before_ranks, explain_on_signal,
};
use pipewright::stages::{RecomputedStage, Sequential};
use pipewright::store::{Store, is_url};
use samples::samples;

/// Train the model of a config, cut into pipeline stages.
///
/// Without a config, a small GPT trains on a built-in text (examples/gpt-text.toml), as runs/first.
///
/// The run is kept in the folder runs/NAME (train.name in the config; without one, runs/run): config.toml
/// (every setting), metrics.jsonl (a line a step), history.jsonl, checkpoints/, run.json (which checkpoint is
/// the last and which is the best) and loss.svg.
///
/// Several processes make one run, as RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say, or a launcher. On
/// several hosts all need one secret: PIPEWRIGHT_TOKEN, or launch.token_file in the config.
///
/// Exit status: 0 done; 1 the run failed, or a second Ctrl-C at the terminal stopped it at once; 2 the
/// arguments, the config or the data are wrong, and nothing was started; 130 Ctrl-C or a signal interrupted
/// it, and the state was saved.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  pipewright train
  pipewright train --steps 20 --trace --run-dir runs/traced
  pipewright train --steps 100 --set pipeline.stages=4 --run-dir runs/four
  pipewright train --resume --set pipeline.stages=2 --run-dir runs/four
  pipewright train --resume s3://bucket/runs/four --run-dir runs/four
  pipewright train my.toml --set optimizer.learning_rate=1e-3
  PIPEWRIGHT_TRAIN__STEPS=200 pipewright train my.toml --run-dir runs/trial")]
pub(super) struct Args {
    /// The config, a TOML file; with --resume it may be left out, and is then the run's own
    config: Option<PathBuf>,
    /// Set a key of the config; may be repeated
    #[arg(long = "set", value_name = "SECTION.KEY=VALUE")]
    sets: Vec<String>,
    /// Continue the run from its newest checkpoint, on as many stages as the config says now; with a PLACE of
    /// copies, such as s3://bucket/runs/a, first fetch the newest one from there, if the run has none as new
    #[arg(long, value_name = "PLACE", num_args = 0..=1, default_missing_value = "")]
    resume: Option<String>,
    /// With --resume: continue even if the data has changed; the run's history records it
    #[arg(long, requires = "resume")]
    allow_other_data: bool,
    /// Stop after this many steps in total and save; the learning rate still follows train.steps
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// The folder of the run, instead of runs/NAME
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
    /// Trace this many steps (without a number: 5), after two that are not traced, and draw the one of median
    /// length: trace.svg, plan-and-trace.svg, and trace.json for Perfetto, in the run's folder
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "5")]
    trace: Option<u64>,
    /// Wait beside a run with train.restarts, and take the place of a process that is lost; needs no RANK.
    /// The first spare on a host of launch.address takes the place of process 0
    #[arg(long)]
    spare: bool,
    /// Print the SHA-256 of all weights at the end
    #[arg(long)]
    weights_hash: bool,
}

impl Args {
    fn resumes(&self) -> bool {
        self.resume.is_some()
    }

    /// The config, and the place of the copies from which the run continues. What follows `--resume` is one
    /// of the two: only a place is a URL.
    fn config_and_copies(&self) -> Result<(Option<&Path>, Option<&str>)> {
        let config = self.config.as_deref();
        let Some(given) = self.resume.as_deref().filter(|given| !given.is_empty()) else {
            return Ok((config, None));
        };
        match (is_url(Path::new(given)), config) {
            (true, _) => Ok((config, Some(given))),
            (false, None) => Ok((Some(Path::new(given)), None)),
            (false, Some(_)) => Err(Error::refused(format!(
                "--resume {given}: this is neither a place of copies, such as s3://bucket/runs/a or \
                 file:///copies/a, nor the only config"
            ))),
        }
    }

    /// The options that must be equal in all processes of a run.
    fn in_common(&self) -> String {
        let Self { resume, allow_other_data, steps, run_dir, trace, .. } = self;
        let number = |number: &Option<u64>| number.map_or("no".to_owned(), |number| number.to_string());
        format!(
            "--resume {resume:?}\n--allow-other-data {allow_other_data}\n--steps {}\n--run-dir {}\n\
             --trace {}\n",
            number(steps),
            run_dir.as_deref().map_or("no".into(), Path::to_string_lossy),
            number(trace),
        )
    }
}

pub(super) fn run(args: &Args) -> std::result::Result<ExitCode, Failure> {
    // Everything that fails before the first step is a refusal: nothing was started.
    explain_on_signal().map_err(Failure::refused)?;
    if args.spare {
        return stand_by(args).map_err(Failure::refused);
    }
    let role = Role::here().map_err(Failure::refused)?;
    let interruption = Interruption::heed(role).map_err(Failure::refused)?;
    let refused = |error| match interruption.interrupt().is_requested() {
        true => Failure { status: INTERRUPTED, ..Failure::refused(error) },
        false => Failure::refused(error),
    };
    let mut prepared = prepare(args, role, &interruption).map_err(refused)?;
    interruption.run_begins();
    let run = prepared.run.interrupt(interruption.interrupt().clone());
    let changed = |error| RunError::name_changes(prepared.changes, error);
    let session = run.begin(&mut prepared.pipeline).map_err(|error| refused(changed(error).into()))?;
    interruption.run_has_begun();
    drop(prepared.shows_stalls);
    if role.leads()
        && let Err(error) = prepared.introduction.print(&session)
    {
        let error = pipewright::Error::from(error);
        session.abandon(&error);
        return Err(Failure::refused(error));
    }
    let dir = session.dir().clone();
    let outcome = session.train().map_err(Failure::failed)?;
    let status = match outcome.ended {
        Ended::Left => return Ok(ExitCode::from(INTERRUPTED)),
        Ended::Interrupted => ExitCode::from(INTERRUPTED),
        Ended::Done | Ended::Stopped => ExitCode::SUCCESS,
    };
    if role.leads() {
        print_end(args, &outcome, &dir)?;
    }
    // All compute it if one process prints it.
    if prepared.pipeline.any(args.weights_hash).map_err(Failure::failed)? {
        let hash = prepared.pipeline.weights_hash().map_err(Failure::failed)?;
        if role.leads() && args.weights_hash {
            super::print(&format!("weights {hash}\n"))?;
        }
    }
    Ok(status)
}

/// Waits beside a run.
fn stand_by(args: &Args) -> Result<ExitCode> {
    let Chosen { config, .. } = choose(args, Role::Other)?;
    let program = processes::program(&config, &compose::plan(&config)?, &args.in_common())?;
    spare::wait(&config, &program)
}

/// What is printed after the last step, besides what the run itself prints.
fn print_end(args: &Args, outcome: &Outcome, dir: &RunDir) -> Result<()> {
    if let Some(forecast) = &outcome.forecast {
        super::print(&format!("{forecast}\n"))?;
    }
    if args.trace.is_none() {
        return Ok(());
    }
    let folder = dir.path().display();
    super::print(&match outcome.traced {
        Some(step) => format!(
            "traced    step {step}: trace.svg, trace.json (for ui.perfetto.dev) and plan-and-trace.svg in \
             {folder}\n"
        ),
        None => "traced    nothing: the run ended before the steps to trace\n".to_owned(),
    })
}

/// A run whose parts are ready.
struct Prepared {
    run: Run,
    pipeline: Pipeline<RecomputedStage<Sequential>>,
    introduction: Introduction,
    /// The settings that differ from the checkpoint's.
    changes: Vec<String>,
    /// Until the run shows them.
    shows_stalls: ShowsStalls,
}

/// Everything until the run directory is made.
fn prepare(args: &Args, role: Role, interruption: &Interruption) -> Result<Prepared> {
    let Chosen { config, run, dir, copy } = choose(args, role)?;
    cuda_env::enter_for(&config);
    let samples = samples(&config, role)?;
    for odd in compose::odd_tokenizer(&config)?.iter().filter(|_| role.leads()) {
        eprintln!("warning: {odd}");
    }
    if role.leads() {
        super::tell_search_of(&config);
    }
    let plan = compose::plan(&config)?;
    for warning in &plan.warnings {
        eprintln!("warning: {warning}");
    }
    if let Some(folder) = config.lora.path.as_ref().filter(|_| role.leads()) {
        super::warn(told_of_adapters(folder)?);
    }
    if let Some(folder) = config.model.path.as_ref().filter(|_| role.leads()) {
        super::warn(told_of_model(folder, true)?);
    }
    if let Some(why) = plan.why.as_ref().filter(|_| role.leads()) {
        eprintln!("{why}");
    }
    let memory = compose::memory(&config, &plan)?;
    let (world, fabric) = processes::join(&config, &plan, &args.in_common(), interruption.interrupt())?;
    interruption.connected();
    // After the data, which is no longer free memory then.
    let opened = open(run, (&dir, copy.as_ref()), &config, role, world.as_ref())
        .and_then(|opened| check_memory(&config, &memory, world.as_ref()).map(|()| opened));
    let ((data, run), world) = processes::or_tell(opened, world)?;
    if role.leads() {
        super::warn(&data.warnings);
    }
    let changes = match run.resumes_from() {
        Some(checkpoint) => changes(checkpoint, &config)?,
        None => Vec::new(),
    };
    let accountant = compose::accountant(&config, &data);
    data.references.iter().filter(|_| role.leads()).for_each(|reference| show_reference(reference));
    let processes = world.as_ref().map_or(1, World::processes);
    let shows_stalls = ShowsStalls::new();
    let room = Room::new(&config, &plan)?;
    let pipeline = compose::launch_with_listener(
        &config,
        &data,
        &plan,
        world,
        shows_stalls.listener(),
        move |crew, cut| room.check(crew, cut),
    )?;
    let forecast = plan.prediction.as_ref().map_or_else(Forecast::by_passes, Forecast::by_costs);
    let prediction = plan.prediction.as_ref();
    let steps = args.steps.unwrap_or(config.train.steps);
    let introduction = Introduction::new(
        &config,
        &data,
        accountant.as_ref().map(|accountant| (accountant.spent(steps), steps)),
        fabric,
        prediction,
        memory::table(&memory, [config.pipeline.replicas, config.pipeline.shards]),
        changes.clone(),
    );
    let run =
        run.forecast(forecast).machine(machine::facts(&config, &data, processes)).planned_memory(memory);
    let run = run.replan(compose::replan(&config, &plan)?);
    let mut run = describe(run, args, &config, data)?;
    if let Some(accountant) = accountant {
        run = run.accountant(accountant);
    }
    if let Some(samples) = samples {
        run = run.samples(samples);
    }
    Ok(Prepared { run, pipeline, introduction, changes, shows_stalls })
}

/// Refuses training for which this machine has too little memory, together with the other processes here.
fn check_memory(config: &Config, ranks: &[RankMemory], world: Option<&World>) -> Result<()> {
    let crew = world.map(World::crew);
    let here =
        RanksHere::of(crew.as_ref(), [config.pipeline.replicas, ranks.len() as u32, config.pipeline.shards])?;
    compose::check_memory(config, ranks, &here, &compose::memory_limits(config)?)
}

/// The run that the arguments and the config ask for.
fn describe(run: Run, args: &Args, config: &Config, data: TrainingData) -> Result<Run> {
    let (quantity, target) = config.loss_unit();
    let mut run = run
        .steps(args.steps.unwrap_or(config.train.steps))
        .allow_other_data(args.allow_other_data)
        .save_every(config.checkpoint.every)
        .save_beside(config.checkpoint.beside)
        .keep(config.checkpoint.keep)
        .keep_every(config.checkpoint.keep_every)
        .config(config.resolved_toml()?)
        .loss_unit(quantity, target)
        .tensorboard(config.metrics.tensorboard)
        .progress(Progress::default().every(config.train.print_every));
    for reference in data.references {
        run = run.reference(reference);
    }
    if !data.validation.is_empty() && config.train.validate_every > 0 {
        run = run.validate(Validation::on_each(data.validation).every(config.train.validate_every));
    }
    if let Some(place) = &config.checkpoint.copy_to {
        run = run.copy_to(Store::open(place)?);
    }
    Ok(match args.trace {
        Some(steps) => run.trace(steps),
        None => run,
    })
}

/// Opens what exists: the data, and the run to resume.
fn open(
    run: Run,
    (dir, copy): (&RunDir, Option<&Stored>),
    config: &Config,
    role: Role,
    world: Option<&World>,
) -> Result<(TrainingData, Run)> {
    let run = match world {
        Some(_) => {
            if role.leads() {
                bring(copy, dir)?;
            }
            run.claim(world)?
        }
        None => run,
    };
    if let Some(address) = config.metrics.listen.filter(|_| role.leads()) {
        metrics::serve(address)?;
    }
    let mut bars = WorkBars::new(role.leads());
    let from = run.newest()?;
    let open = || compose::data_with_progress(config, from.as_ref(), &mut |work| bars.show(work));
    Ok((before_ranks("opening the data".to_owned(), open)?, run))
}

/// The settings that differ from a checkpoint's config and that change the training.
fn changes(checkpoint: &Checkpoint, config: &Config) -> Result<Vec<String>> {
    match Config::parse("its config", checkpoint.config(), &[], &[]) {
        Ok(saved) => {
            let mut changes = config.changes_from(&saved)?;
            let of_start = ["model.", "lora.", "pipeline.dtype", "pipeline.wires", "pipeline.shard_groups"];
            let of_model = |change: &String| of_start.iter().any(|of| change.starts_with(of));
            same_privacy(&changes, &saved, config)?;
            same_reference(&saved, config)?;
            if config.has_reference() && changes.iter().any(of_model) {
                changes.push("the reference of pairs (another model before the training)".to_owned());
            }
            Ok(changes)
        }
        Err(error) => Ok(vec![format!("something, but its config cannot be read: {error}")]),
    }
}

/// Refuses preferences after another training in the same run: their reference would be the model before
/// both.
fn same_reference(saved: &Config, config: &Config) -> Result<()> {
    if !config.has_reference() || saved.learns_preferences() {
        return Ok(());
    }
    Err(config.refuse(
        "train.objective",
        "the steps before had another objective, and the reference would be the model before them: \
         begin a new run from the model that is to be the reference (`pipewright export` writes it)"
            .to_owned(),
    ))
}

/// Refuses a private training that goes on with other noise or another batch, or whose first steps were not
/// private: epsilon counts all steps alike.
fn same_privacy(changes: &[String], saved: &Config, config: &Config) -> Result<()> {
    let counts =
        |change: &&String| ["privacy.", "pipeline.micro_batches"].iter().any(|of| change.starts_with(of));
    let problem = match changes.iter().find(counts) {
        _ if !config.is_private() => return Ok(()),
        _ if !saved.is_private() => "the steps before had no privacy".to_owned(),
        Some(change) => format!("the steps before had another setting ({change})"),
        None => return Ok(()),
    };
    Err(config.refuse(
        "privacy.clip",
        format!("{problem}, and epsilon counts all steps alike: set it as it was, or begin a new run"),
    ))
}

/// Brings a copy of a checkpoint into the run directory, unless one as new is there.
fn bring(copy: Option<&Stored>, dir: &RunDir) -> Result<()> {
    let Some(copy) = copy else {
        return Ok(());
    };
    let mut bar = FetchingBar::new(true);
    let fetched = dir.fetch(copy, &mut |fetching| bar.show(fetching))?;
    drop(bar);
    super::print(&match fetched {
        true => format!("fetched   {}\n", copy.url()),
        false => format!("not fetched, since the run directory has it or a newer one: {}\n", copy.url()),
    })
}

/// The settings of a run, its directory, and where it continues.
struct Chosen {
    config: Config,
    run: Run,
    dir: RunDir,
    /// The copy of a checkpoint from which it continues, unless the directory has one as new.
    copy: Option<Stored>,
}

/// The newest checkpoint at a place of copies.
fn newest_copy(place: &str) -> Result<Stored> {
    let store = Store::open(place)?;
    let newest = Stored::newest(&store)?;
    Ok(newest.ok_or_else(|| StoreError::NoCheckpoint { url: store.url().to_owned() })?)
}

/// The config, and the run in its directory. A single process claims the directory before anything else. With
/// several processes, the first one claims it once it is connected to the others.
fn choose(args: &Args, role: Role) -> Result<Chosen> {
    let (given, place) = args.config_and_copies()?;
    // The config of a copy is encrypted too.
    key::enter_for(args.run_dir.as_deref().unwrap_or(Path::new("")))?;
    let copy = place.map(newest_copy).transpose()?;
    let folder = |config: &Config| match &args.run_dir {
        Some(folder) => folder.clone(),
        None => Path::new("runs").join(&config.train.name),
    };
    let (config, folder) = match (given, &args.run_dir) {
        (Some(path), _) => {
            let config = Config::load(path, &args.sets)?;
            let folder = folder(&config);
            (Some(config), folder)
        }
        (None, Some(folder)) if args.resumes() => (None, folder.clone()),
        (None, _) => {
            let config = match &copy {
                Some(copy) => of_copy(copy, args)?,
                None => Config::built_in(&args.sets)?,
            };
            let folder = folder(&config);
            (Some(config).filter(|_| !args.resumes()), folder)
        }
    };
    match &config {
        Some(config) => key::enter(config)?,
        None => key::enter_for(&folder)?,
    }
    let resume = if args.resumes() { Resume::Always } else { Resume::Never };
    let (mut run, dir) = (Run::new(&folder).resume(resume), RunDir::at(folder));
    if role == Role::Alone {
        bring(copy.as_ref(), &dir)?;
        run = run.claim(None)?;
    }
    let saved = dir.config();
    let config = match (config, &copy) {
        (None, Some(copy)) if !saved.exists() => of_copy(copy, args)?,
        (None, _) => Config::load(&saved, &args.sets)?,
        (Some(config), copy) => match (std::fs::read_to_string(&saved), copy) {
            (Ok(saved), _) if args.resumes() => config.grouped_as(&saved)?,
            (Err(_), Some(copy)) => config.grouped_as(&copy.config()?)?,
            _ => config,
        },
    };
    key::enter(&config)?;
    Ok(Chosen { config, run, dir, copy })
}

/// The config with which a copy was saved.
fn of_copy(copy: &Stored, args: &Args) -> Result<Config> {
    let environment = crate::config::environment();
    Config::parse(&copy.url(), &copy.config()?, &environment, &args.sets)
}
