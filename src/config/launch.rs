//! Where the processes of a run find each other, and what must be equal in all of them.

use std::time::Duration;

use super::Config;
use crate::error::{ConfigError, ProcessesProblem, Result};
use crate::fabric::Membership;

/// The number of processes of a run.
const SIZE: &str = "WORLD_SIZE";

/// This process's number.
const NUMBER: &str = "RANK";

/// Where process 0 is, if the config does not say it.
const HOST: &str = "MASTER_ADDR";
const PORT: &str = "MASTER_PORT";

/// After how many seconds of silence another machine counts as gone.
const SILENCE: &str = "PIPEWRIGHT_SILENCE";

/// This process's number and the number of processes, from the environment. `None` if it runs alone.
///
/// # Errors
/// When a variable is not a number, is missing, or is out of range.
pub fn processes(environment: &[(String, String)]) -> Result<Option<[u32; 2]>> {
    processes_of(environment).map_err(|problem| ConfigError::Processes(problem).into())
}

fn processes_of(environment: &[(String, String)]) -> std::result::Result<Option<[u32; 2]>, ProcessesProblem> {
    let Some(count) = number(environment, SIZE)? else {
        return Ok(None);
    };
    match (count, number(environment, NUMBER)?) {
        (0, _) => Err(ProcessesProblem::NoProcesses),
        (1, None | Some(0)) => Ok(None),
        (processes, None) => Err(ProcessesProblem::NotNumbered { processes }),
        (processes, Some(process)) if process < processes => Ok(Some([process, processes])),
        (processes, Some(process)) => Err(ProcessesProblem::OutOfRange { process, processes }),
    }
}

impl Config {
    /// This process's place in a run, from the environment. `None` if it runs alone. `launch.address`
    /// overrides the environment's address, because a launcher may use its own port itself.
    ///
    /// # Errors
    /// As for [`processes`]. Also when neither the config nor the environment says where process 0 listens.
    pub fn membership(&self, environment: &[(String, String)]) -> Result<Option<Membership>> {
        let Some([process, processes]) = processes(environment)? else {
            return Ok(None);
        };
        let given = match (text(environment, HOST), text(environment, PORT)) {
            // An IPv6 address itself contains colons.
            (Some(host), Some(port)) if host.contains(':') => Some(format!("[{host}]:{port}")),
            (Some(host), Some(port)) => Some(format!("{host}:{port}")),
            _ => None,
        };
        let address = self.launch.address.clone().or(given);
        let address = address.ok_or(ConfigError::Processes(ProcessesProblem::NoAddress { processes }))?;
        Ok(Some(Membership {
            process,
            processes,
            address,
            deadline: Duration::from_secs(self.launch.deadline),
            silence: match number(environment, SILENCE).map_err(ConfigError::Processes)? {
                Some(seconds) => Duration::from_secs(seconds.into()),
                None => Membership::SILENCE,
            },
        }))
    }

    /// What must be equal in all processes of a run: every key that counts, except where the processes find
    /// each other and what is served.
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

fn number(
    environment: &[(String, String)],
    name: &'static str,
) -> std::result::Result<Option<u32>, ProcessesProblem> {
    let Some(text) = text(environment, name) else {
        return Ok(None);
    };
    let number = text.parse().map_err(|_| ProcessesProblem::NoNumber {
        name,
        text: text.to_owned(),
    })?;
    Ok(Some(number))
}
