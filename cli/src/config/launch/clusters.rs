//! Launchers of clusters that say a process's place in variables of their own, and not where process 0 is.

use super::found::{Launched, Launcher, port};
use super::variables::{Environment, number, position, text};
use crate::error::Result;

/// How many processes are on this host, or on how many hosts they are.
enum Spread {
    Here(&'static str),
    Hosts(&'static str),
}

/// What such a launcher says. `None` if it has not started this process.
pub(super) fn read(environment: &Environment, launcher: Launcher) -> Result<Option<Launched>> {
    let (spread, job) = match launcher {
        Launcher::Jsrun => (Spread::Here("JSM_NAMESPACE_LOCAL_SIZE"), "LSB_JOBID"),
        Launcher::Pals => (Spread::Here("PMI_LOCAL_SIZE"), "PALS_APID"),
        Launcher::Flux => (Spread::Hosts("FLUX_JOB_NNODES"), "FLUX_JOB_ID"),
        // It names no job.
        _ => (Spread::Here("MV2_COMM_WORLD_LOCAL_SIZE"), ""),
    };
    let names = launcher.names();
    if text(environment, names[0]).is_none() {
        return Ok(None);
    }
    let Some([process, processes]) = position(environment, names)? else {
        return Ok(None);
    };
    let is_one_host = match spread {
        Spread::Here(name) => number(environment, name)? == Some(processes),
        Spread::Hosts(name) => number(environment, name)? == Some(1),
    };
    Ok(Some(Launched {
        process,
        processes,
        launcher,
        host: is_one_host.then(|| "127.0.0.1".to_owned()),
        port: Some(port(text(environment, job).unwrap_or_default())),
    }))
}
