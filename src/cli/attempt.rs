//! A try to train to the end: the parts of a run, and its steps.

use std::process::ExitCode;

use metrics_exporter_prometheus::PrometheusBuilder;

use super::Failure;
use super::encoding::EncodingBar;
use super::introduction::Introduction;
use super::memory;
use super::processes::{self, Role};
use super::train_args::Args;
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::compose::{self, RanksHere, TrainingData};
use crate::config::Config;
use crate::error::RunError;
use crate::fabric::World;
use crate::pipeline::Pipeline;
use crate::plan::RankMemory;
use crate::run::{Ended, Forecast, Interrupt, Outcome, Progress, Run, RunDir, Session, Validation};
use crate::stages::{RecomputedStage, Sequential};

type Stage = RecomputedStage<Sequential>;

/// A try to train to the end. Another one follows when another process has come in the place of one that has
/// gone.
pub(super) struct Attempt<'a> {
    args: &'a Args,
    role: Role,
    config: &'a Config,
    /// From the moment at which a signal can be heeded.
    interrupt: Option<Interrupt>,
    is_first: bool,
    /// Whether another one may follow.
    may_follow: bool,
}

/// Why a try has ended, and the steps done then.
pub(super) struct Lost {
    pub(super) failure: Failure,
    pub(super) done: u64,
}

impl<'a> Attempt<'a> {
    pub(super) fn first(args: &'a Args, role: Role, config: &'a Config, may_follow: bool) -> Self {
        Self {
            args,
            role,
            config,
            interrupt: None,
            is_first: true,
            may_follow,
        }
    }

    /// The next try is not the first one.
    pub(super) fn follow(&mut self) {
        self.is_first = false;
    }

    pub(super) fn train(&mut self, run: Run) -> std::result::Result<ExitCode, Lost> {
        let failed = if self.is_first {
            Failure::refused
        } else {
            Failure::failed
        };
        let refused = |error| Lost {
            failure: failed(error),
            done: 0,
        };
        let mut prepared = self.prepare(run).map_err(refused)?;
        let interrupt = match &self.interrupt {
            Some(interrupt) => interrupt.clone(),
            None => on_interrupt(self.role).map_err(refused)?,
        };
        self.interrupt = Some(interrupt.clone());
        let run = prepared.run.interrupt(interrupt);
        let session = run.begin(&mut prepared.pipeline).map_err(refused)?;
        if self.role.leads()
            && let Err(error) = self.introduce(&prepared.introduction, &session)
        {
            session.abandon(&error);
            return Err(refused(error));
        }
        let dir = session.dir().clone();
        let trained = session.train();
        let done = prepared.pipeline.next_step();
        let end = trained.and_then(|outcome| self.end(&outcome, &dir, &mut prepared.pipeline));
        end.map_err(|error| Lost {
            failure: Failure::failed(error),
            done,
        })
    }

    fn introduce(&self, introduction: &Introduction, session: &Session<'_, Stage>) -> Result<()> {
        match self.is_first {
            true => introduction.print(session),
            false => {
                let done = session.pipeline().next_step();
                super::print(&format!("goes on after {done} steps, with all processes\n"))
            }
        }
    }

    /// What follows the last step.
    fn end(&self, outcome: &Outcome, dir: &RunDir, pipeline: &mut Pipeline<Stage>) -> Result<ExitCode> {
        if self.role.leads() {
            print_end(self.args, outcome, dir)?;
        }
        if self.args.weights_hash {
            let hash = pipeline.weights_hash()?;
            if self.role.leads() {
                super::print(&format!("weights {hash}\n"))?;
            }
        }
        Ok(match outcome.ended {
            Ended::Interrupted => ExitCode::from(130),
            Ended::Done | Ended::Stopped => ExitCode::SUCCESS,
        })
    }

    /// Everything until the run directory is made.
    fn prepare(&self, run: Run) -> Result<Prepared> {
        let Self {
            args, role, config, ..
        } = *self;
        let plan = compose::plan(config)?;
        if self.is_first {
            if let Some(warning) = &plan.warning {
                eprintln!("warning: {warning}");
            }
            if let Some(why) = plan.why.as_ref().filter(|_| role.leads()) {
                eprintln!("{why}");
            }
        }
        let memory = compose::memory(config, &plan)?;
        let (world, fabric) = processes::join(config, &plan, &args.in_common())?;
        // After the data, which is no longer free memory then.
        let opened = self
            .open(run, world.as_ref())
            .and_then(|opened| check_memory(config, &memory, world.as_ref()).map(|()| opened));
        let ((data, run), world) = processes::or_tell(opened, world)?;
        let changes = match run.resumes_from() {
            Some(checkpoint) => changes(checkpoint, config)?,
            None => Vec::new(),
        };
        let pipeline = compose::launch(config, &data, &plan.counts, &plan.replicas, world)?;
        let forecast = plan
            .prediction
            .as_ref()
            .map_or_else(Forecast::by_passes, Forecast::by_costs);
        let prediction = plan.prediction.as_ref();
        let introduction = Introduction::new(
            config,
            &data,
            fabric,
            prediction,
            memory::table(&memory, config.pipeline.replicas),
            changes,
        );
        let run = describe(run.forecast(forecast), args, config, data)?.outlives_processes(self.may_follow);
        Ok(Prepared {
            run,
            pipeline,
            introduction,
        })
    }

    /// Opens what exists: the data, and the run to resume.
    fn open(&self, run: Run, world: Option<&World>) -> Result<(TrainingData, Run)> {
        let run = match world {
            Some(_) => run.claim(world)?,
            None => run,
        };
        if self.role.leads() && self.is_first {
            serve_metrics(self.config)?;
        }
        let bar = EncodingBar::new(self.role.leads());
        let data = compose::data_telling(self.config, &mut |encoded| bar.show(encoded))?;
        Ok((data, run))
    }
}

/// A run whose parts are ready.
struct Prepared {
    run: Run,
    pipeline: Pipeline<Stage>,
    introduction: Introduction,
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

/// Refuses training for which this machine has too little memory, together with the other processes here.
fn check_memory(config: &Config, ranks: &[RankMemory], world: Option<&World>) -> Result<()> {
    let (map, replicas) = (config.launch.map, config.pipeline.replicas);
    let here = RanksHere::of(world, map, replicas, ranks.len() as u32)?;
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
        .progress(Progress::default().every(config.train.print_every));
    if let Some(source) = data.validation.filter(|_| config.train.validate_every > 0) {
        let validation = Validation::new(source)
            .micro_batches(data.validation_micro_batches)
            .every(config.train.validate_every);
        run = run.validate(validation);
    }
    Ok(match args.trace {
        Some(steps) => run.trace(steps),
        None => run,
    })
}

fn serve_metrics(config: &Config) -> Result<()> {
    let Some(address) = config.metrics.listen else {
        return Ok(());
    };
    let served = PrometheusBuilder::new().with_http_listener(address).install();
    served.map_err(|source| RunError::Metrics { address, source }.into())
}

/// The settings that differ from a checkpoint's config and that change the training.
fn changes(checkpoint: &Checkpoint, config: &Config) -> Result<Vec<String>> {
    match Config::parse("its config", checkpoint.config(), &[], &[]) {
        Ok(saved) => config.changes_from(&saved),
        Err(error) => Ok(vec![format!("something, but its config cannot be read: {error}")]),
    }
}

/// The first Ctrl-C asks for an orderly end. The second one ends at once, as a failure, because nothing is
/// saved.
fn on_interrupt(role: Role) -> Result<Interrupt> {
    Interrupt::on_signals(move || {
        if role.leads() {
            eprintln!(
                "\ninterrupted: finishing this step, then saving (Ctrl-C again to stop at once, unsaved)"
            );
        }
    })
}
