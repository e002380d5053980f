//! A run of several processes, as the command line sees it: process 0 speaks and writes, the others only say what went wrong.

use crate::Result;
use crate::compose::PipelinePlan;
use crate::config::{self, Config, environment};
use crate::error::RunError;
use crate::fabric::World;
use crate::mesh::Mesh;

/// This process's part in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It runs alone.
    Alone,
    /// Process 0 of several: it speaks and writes for all.
    First,
    /// Another one.
    Other,
}

impl Role {
    /// As the environment says.
    pub(super) fn here() -> Result<Self> {
        Ok(match config::processes(&environment())? {
            None => Self::Alone,
            Some([0, _]) => Self::First,
            Some(_) => Self::Other,
        })
    }

    /// Whether it speaks and writes.
    pub(super) fn leads(self) -> bool {
        self != Self::Other
    }
}

/// What stands before this process's errors.
pub(super) fn prefix() -> String {
    match config::processes(&environment()) {
        Ok(Some([process, _])) => format!("process {process}: "),
        _ => String::new(),
    }
}

/// Refuses a command that several processes would only do several times.
pub(super) fn refuse(command: &str) -> Result<()> {
    match config::processes(&environment())? {
        None => Ok(()),
        Some([_, processes]) => {
            let command = command.to_owned();
            Err(RunError::OneProcess { command, processes }.into())
        }
    }
}

/// Finds the other processes of a run, which must have the same plan; none when it runs alone. `options` are those of the command line that
/// all have to have in common, a line each.
pub(super) fn join(config: &Config, plan: &PipelinePlan, options: &str) -> Result<Option<World>> {
    let Some(membership) = config.membership(&environment())? else {
        return Ok(None);
    };
    Mesh::of_pipeline(plan.schedule.ranks(), membership.processes, &[])?;
    let program = format!(
        "{}
[options]
{options}
{}",
        config.in_common()?,
        plan.in_common()
    );
    World::join(&membership, &program).map(Some)
}
