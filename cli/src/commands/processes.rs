//! A run of several processes, on the command line: process 0 prints and writes files, the others only print
//! errors.

use crate::compose::PipelinePlan;
use crate::config::{self, Config, Fabric, environment};
use crate::{Error, Result};
use pipewright::error::RunError;
use pipewright::fabric::World;
use pipewright::mesh::Mesh;
use pipewright::run::Interrupt;

/// This process's role in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is the only process.
    Alone,
    /// Process 0 of several: it prints and writes files for all.
    First,
    /// Another process.
    Other,
}

impl Role {
    /// The role that the environment sets.
    pub(super) fn here() -> Result<Self> {
        Ok(match config::processes(&environment())? {
            None => Self::Alone,
            Some([0, _]) => Self::First,
            Some(_) => Self::Other,
        })
    }

    /// Whether it prints and writes files.
    pub(super) fn leads(self) -> bool {
        self != Self::Other
    }
}

/// The text before this process's errors.
pub(super) fn prefix() -> String {
    match config::processes(&environment()) {
        Ok(Some([process, _])) => format!("process {process}: "),
        _ => String::new(),
    }
}

/// Refuses a command for which several processes are of no use.
pub(super) fn refuse(command: &str) -> Result<()> {
    match config::launched(&environment())? {
        None => Ok(()),
        Some(found) => Err(RunError::new(format!(
            "`{command}` runs in one process, but {} is {}: unset it, or start one process (only `train` and \
             `profile` run in several)",
            found.launcher.names()[1],
            found.processes
        ))
        .into()),
    }
}

/// Connects to the other processes that measure the same config. The world is `None` if there is only one
/// process. The text says what connects them, and why.
pub(super) fn join_to_measure(config: &Config) -> Result<(Option<World>, String)> {
    let heeds = Interrupt::default();
    connect(config, &config.in_common()?, &heeds, |_| Ok(()))
}

/// A result, with the world. If it is an error, the other processes are told, so that they do not wait.
pub(super) fn or_tell<T>(result: Result<T>, world: Option<World>) -> Result<(T, Option<World>)> {
    match result {
        Ok(value) => Ok((value, world)),
        Err(error) => {
            if let Some(world) = world {
                match &error {
                    Error::Engine(error) => world.fail(error),
                    error => world.fail(&pipewright::Error::other(error.to_string())),
                }
            }
            Err(error)
        }
    }
}

/// Connects to the other processes of a run, which must have the same plan. The world is `None` if there is
/// only one process. The text says what connects them, and why. `options` are the command line's options that
/// must be equal in all processes, one a line. The interrupt ends the wait for the others.
pub(super) fn join(
    config: &Config,
    plan: &PipelinePlan,
    options: &str,
    interrupt: &Interrupt,
) -> Result<(Option<World>, String)> {
    connect(config, &program(config, plan, options)?, interrupt, |processes| {
        let sizes = [plan.replicas.count(), plan.replicas.ranks(), config.pipeline.shards];
        Ok(Mesh::new(sizes, processes, &[]).map(drop)?)
    })
}

/// What must be equal in all processes of a run, with the command line's options, one a line.
pub(super) fn program(config: &Config, plan: &PipelinePlan, options: &str) -> Result<String> {
    let (config, plan) = (config.in_common()?, plan.in_common());
    Ok(format!("{config}\n[options]\n{options}\n{plan}"))
}

/// Connects to the other processes, if `check` accepts the number of processes. `program` is what must be
/// equal in all.
fn connect(
    config: &Config,
    program: &str,
    interrupt: &Interrupt,
    check: impl Fn(u32) -> Result<()>,
) -> Result<(Option<World>, String)> {
    let (fabric, said) = config.fabric(&environment())?;
    let world = match fabric {
        Fabric::Alone => None,
        Fabric::Sockets(membership) => {
            announce(&format!("; process 0 at {}", membership.address))?;
            check(membership.processes)?;
            Some(World::join_heeding(&membership, program, interrupt)?)
        }
        #[cfg(feature = "mpi")]
        Fabric::Mpi(membership) => {
            announce("")?;
            check(membership.processes)?;
            Some(membership.join(program)?)
        }
    };
    Ok((world, said))
}

/// Process 0 says who told it its place, before it waits for the others. `at`: where it is, if the others
/// need to know that.
fn announce(at: &str) -> Result<()> {
    match config::launched(&environment())? {
        Some(found) if found.process == 0 => {
            super::print(&format!("processes {}, {}{at}\n", found.processes, found.launcher))
        }
        _ => Ok(()),
    }
}
