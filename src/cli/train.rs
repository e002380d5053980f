//! `pipewright train`: trains a model as a config says.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::Failure;
use super::attempt::{Attempt, Lost};
use super::cuda_env;
use super::processes::{self, Role};
use super::train_args::Args;
use crate::config::Config;
use crate::run::{Losses, Resume, Run, RunDir, explain_on_signal};
use crate::{Error, Result};

pub(super) fn run(args: &Args) -> std::result::Result<ExitCode, Failure> {
    // Everything that fails before the first step is a refusal: nothing was started.
    let role = Role::here().map_err(Failure::refused)?;
    explain_on_signal().map_err(Failure::refused)?;
    let (config, folder, mut run) = choose(args, role).map_err(Failure::refused)?;
    cuda_env::enter_for(&config);
    let replacements = processes::replacements(&config).map_err(Failure::refused)?;
    let mut losses = Losses::new(replacements);
    let mut attempt = Attempt::first(args, role, &config, replacements > 0);
    loop {
        let Lost { failure, done } = match attempt.train(run) {
            Ok(status) => return Ok(status),
            Err(lost) => lost,
        };
        let is_first = matches!(*failure.error, Error::ProcessGone(0));
        let said = failure.error.to_string();
        let count = losses.after(*failure.error, done).map_err(|error| Failure {
            error: Box::new(error),
            ..failure
        })?;
        // If process 0 has gone, all others say so.
        if role.leads() || is_first {
            tell_loss(&config, &said, is_first, count);
        }
        run = Run::new(&folder).resume(Resume::IfThere);
        attempt.follow();
    }
}

/// Says that the run goes on when another process has come.
fn tell_loss(config: &Config, loss: &str, is_first: bool, count: u32) {
    let how = match is_first {
        true => "it has been started again with --resume",
        false => "another one has come with its RANK",
    };
    let (deadline, most) = (config.launch.deadline, config.train.restarts);
    eprintln!(
        "{}warning: {loss}; the run goes on when {how}, within {deadline} s (loss {count} of {most} that are \
         allowed without a new step)",
        processes::prefix()
    );
}

/// The config, the folder of the run, and the run. A single process claims the folder before anything else.
/// With several processes, the first one claims it once it is connected to the others.
fn choose(args: &Args, role: Role) -> Result<(Config, PathBuf, Run)> {
    let folder = |config: &Config| match &args.run_dir {
        Some(folder) => folder.clone(),
        None => Path::new("runs").join(&config.train.name),
    };
    let (config, folder) = match (&args.config, &args.run_dir) {
        (Some(path), _) => {
            let config = Config::load(path, &args.sets)?;
            let folder = folder(&config);
            (Some(config), folder)
        }
        (None, Some(folder)) if args.resume => (None, folder.clone()),
        (None, _) => {
            let config = Config::built_in(&args.sets)?;
            let folder = folder(&config);
            (Some(config).filter(|_| !args.resume), folder)
        }
    };
    let resume = if args.resume {
        Resume::Always
    } else {
        Resume::Never
    };
    let mut run = Run::new(&folder).resume(resume);
    if role == Role::Alone {
        run = run.claim(None)?;
    }
    let saved = RunDir::at(&folder).config();
    let config = config.map_or_else(|| Config::load(&saved, &args.sets), Ok)?;
    Ok((config, folder, run))
}
