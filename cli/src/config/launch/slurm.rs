//! `srun` of Slurm.

use super::found::{Launched, Launcher, port};
use super::variables::{Environment, number, position, text};
use crate::error::{ConfigError, Error, Result};

/// The hosts of a step, and how many they are.
const HOSTS: &str = "SLURM_STEP_NODELIST";
const COUNT: &str = "SLURM_STEP_NUM_NODES";

/// What `srun` says. Only its variables of a step count: variables of the job, such as `SLURM_NTASKS`, are
/// also there in the batch script itself, which is one process. Process 0 is on the first host of the step.
pub(super) fn read(environment: &Environment) -> Result<Option<Launched>> {
    let [job, step] = ["SLURM_JOB_ID", "SLURM_STEP_ID"].map(|name| text(environment, name));
    let step = job.zip(step).map(|(job, step)| format!("{job}.{step}"));
    let port = step.as_deref().map(port);
    let launcher = Launcher::Slurm { step: step.unwrap_or_default() };
    let Some([process, processes]) = position(environment, launcher.names())? else {
        return Ok(None);
    };
    let host = match (number(environment, COUNT)?, text(environment, HOSTS)) {
        (Some(1), _) => Some("127.0.0.1".to_owned()),
        (_, Some(hosts)) => Some(first_host(hosts)?),
        (_, None) => None,
    };
    Ok(Some(Launched { process, processes, launcher, host, port }))
}

/// The first host of a list such as `node[01-03,07],login`: what stands before the first comma outside of
/// brackets, with the first number of each bracket in the bracket's place.
fn first_host(list: &str) -> Result<String> {
    let mut host = String::new();
    let mut rest = list;
    while let Some(at) = rest.find(['[', ',']) {
        host += &rest[..at];
        if rest[at..].starts_with(',') {
            rest = "";
        } else {
            let (numbers, after) = rest[at + 1..].split_once(']').ok_or_else(|| no_list(list))?;
            let first = numbers.split(['-', ',']).next().unwrap_or_default();
            if first.is_empty() {
                return Err(no_list(list));
            }
            host += first;
            rest = after;
        }
    }
    host += rest;
    if host.is_empty() { Err(no_list(list)) } else { Ok(host) }
}

fn no_list(list: &str) -> Error {
    ConfigError::Other(format!(
        "{HOSTS} is `{list}`, which is no list of hosts such as node[01-04]: set launch.address"
    ))
    .into()
}
