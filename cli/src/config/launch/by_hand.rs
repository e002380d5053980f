//! `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`, set by a person or a script.

use super::found::{Launched, Launcher, contradiction};
use super::variables::{Environment, number, position, text};
use crate::error::{ConfigError, Result};

const PORT: &str = "MASTER_PORT";

/// What these variables say.
pub(super) fn read(environment: &Environment) -> Result<Option<Launched>> {
    let launcher = Launcher::Variables;
    let names = launcher.names();
    let Some([process, processes]) = position(environment, names)? else {
        return match number(environment, names[0])? {
            None | Some(0) => Ok(None),
            Some(process) => Err(ConfigError::Other(format!(
                "RANK is {process}, but WORLD_SIZE is not set: say how many processes there are, or unset \
                 RANK to run in one process"
            ))
            .into()),
        };
    };
    Ok(Some(Launched { process, processes, launcher, host: None, port: None }))
}

/// Refuses another number or another count than a launcher has found.
pub(super) fn confirms(environment: &Environment, found: &Launched) -> Result<()> {
    let mut given = Vec::new();
    let mut agrees = true;
    for (name, expected) in Launcher::Variables.names().into_iter().zip([found.process, found.processes]) {
        if let Some(value) = number(environment, name)? {
            given.push((name, value));
            agrees &= value == expected;
        }
    }
    match agrees {
        true => Ok(()),
        false => Err(contradiction(&given, &found.said())),
    }
}

/// The same with host and port of `MASTER_ADDR` and `MASTER_PORT`, where they are set by hand.
pub(super) fn meeting(environment: &Environment, mut found: Launched) -> Result<Launched> {
    if matches!(found.launcher, Launcher::Torchrun { .. }) {
        return Ok(found);
    }
    if let Some(host) = text(environment, "MASTER_ADDR") {
        found.host = Some(host.trim().to_owned());
    }
    if let Some(text) = text(environment, PORT) {
        let port = text.trim().parse().ok().filter(|&port| port > 0);
        found.port = Some(port.ok_or_else(|| {
            ConfigError::Other(format!("{PORT} is `{text}`, which is no port: give a number from 1 to 65535"))
        })?);
    }
    Ok(found)
}
