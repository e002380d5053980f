//! PyTorch's `torchrun`.

use super::found::{Launched, Launcher, port};
use super::variables::{Environment, number, position, text};
use crate::error::Result;

/// Set by `torchrun`'s agent for each of its workers, and by nobody else.
const RUN: &str = "TORCHELASTIC_RUN_ID";

/// Whether the agent itself listens at `MASTER_PORT`.
const AGENT_LISTENS: &str = "TORCHELASTIC_USE_AGENT_STORE";

/// What `torchrun` says. If its agent listens at `MASTER_PORT`, process 0 takes another port, which all
/// processes can tell from the run's name and that port.
pub(super) fn read(environment: &Environment) -> Result<Option<Launched>> {
    let Some(run) = text(environment, RUN) else {
        return Ok(None);
    };
    let launcher = Launcher::Torchrun { run: run.to_owned() };
    let Some([process, processes]) = position(environment, launcher.names())? else {
        return Ok(None);
    };
    let taken = number(environment, "MASTER_PORT")?;
    let agent_listens = text(environment, AGENT_LISTENS) != Some("False");
    Ok(Some(Launched {
        process,
        processes,
        launcher,
        host: text(environment, "MASTER_ADDR").map(str::to_owned),
        port: match taken {
            Some(taken) if agent_listens => Some(beside(taken, run)),
            taken => taken.and_then(|port| port.try_into().ok()),
        },
    }))
}

/// A port that is not `taken`.
fn beside(taken: u32, run: &str) -> u16 {
    let port = port(&format!("{run}.{taken}"));
    if u32::from(port) == taken { port ^ 1 } else { port }
}
