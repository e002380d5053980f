//! Where the processes of a run find each other, and what they have in common.

use std::time::Duration;

use super::Config;
use crate::error::{Error, Result};
use crate::fabric::Membership;

/// How many processes a run has.
const SIZE: &str = "WORLD_SIZE";

/// Which of them this is.
const NUMBER: &str = "RANK";

/// Where process 0 is, unless the config says so.
const HOST: &str = "MASTER_ADDR";
const PORT: &str = "MASTER_PORT";

/// How many seconds nothing may be heard of another machine before it counts as gone.
const SILENCE: &str = "PIPEWRIGHT_SILENCE";

/// This process's number, and how many there are, as the environment says; none when it runs alone.
///
/// # Errors
/// [`Error::Invalid`] for what is no number, and for one that is missing or out of range.
pub fn processes(environment: &[(String, String)]) -> Result<Option<[u32; 2]>> {
    let Some(count) = number(environment, SIZE)? else {
        return Ok(None);
    };
    let last = match count {
        0 => {
            return Err(Error::Invalid(format!(
                "{SIZE} is 0: a run has 1 process or more"
            )));
        }
        count => count - 1,
    };
    match number(environment, NUMBER)? {
        None | Some(0) if count == 1 => Ok(None),
        Some(process) if process < count => Ok(Some([process, count])),
        Some(process) => Err(Error::Invalid(format!(
            "{NUMBER} is {process}, but {SIZE} is {count}: processes have the numbers 0 to {last}"
        ))),
        None => Err(Error::Invalid(format!(
            "{SIZE} is {count}, but {NUMBER} is not set: give each process its own, 0 to {last}, or unset {SIZE} to run \
             in one process"
        ))),
    }
}

impl Config {
    /// This process's place among those of a run, as the environment says; none when it runs alone. `launch.address` is stronger than
    /// the environment's address: a launcher's own port may be taken by itself.
    ///
    /// # Errors
    /// As for [`processes`]; when neither says where process 0 listens.
    pub fn membership(&self, environment: &[(String, String)]) -> Result<Option<Membership>> {
        let Some([process, processes]) = processes(environment)? else {
            return Ok(None);
        };
        let given = match (text(environment, HOST), text(environment, PORT)) {
            // An address of IPv6 has colons of its own.
            (Some(host), Some(port)) if host.contains(':') => Some(format!("[{host}]:{port}")),
            (Some(host), Some(port)) => Some(format!("{host}:{port}")),
            _ => None,
        };
        let address = self.launch.address.clone().or(given).ok_or_else(|| {
            Error::Invalid(format!(
                "{SIZE} is {processes}, but nobody says where process 0 listens: set {HOST} and {PORT}, or launch.address \
                 = \"host:port\""
            ))
        })?;
        Ok(Some(Membership {
            process,
            processes,
            address,
            deadline: Duration::from_secs(self.launch.deadline),
            silence: match number(environment, SILENCE)? {
                Some(seconds) => Duration::from_secs(seconds.into()),
                None => Membership::SILENCE,
            },
        }))
    }

    /// What all processes of a run have to have in common: every key that counts, but where they find each other and what is served.
    ///
    /// # Errors
    /// When a number is too large for TOML.
    pub fn in_common(&self) -> Result<String> {
        let mut table = self.kept()?;
        table.remove("launch");
        table.remove("metrics");
        Ok(table.to_string())
    }
}

fn text<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = environment
        .iter()
        .find(|(key, value)| key == name && !value.is_empty());
    found.map(|(_, value)| value.as_str())
}

fn number(environment: &[(String, String)], name: &str) -> Result<Option<u32>> {
    let Some(text) = text(environment, name) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| {
        Error::Invalid(format!(
            "{name} is `{text}`, which is no number: give a whole number, 0 or more"
        ))
    })?;
    Ok(Some(number))
}
