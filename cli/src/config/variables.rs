//! Variables of the environment, as launchers set them.

use crate::error::{ConfigError, Result};

/// The variables of a process, with their values.
pub(super) type Environment = [(String, String)];

/// The variables with a process's number and with the number of processes.
pub(super) type Names = [&'static str; 2];

/// A variable's value. `None` if it is not set, or empty.
pub(super) fn text<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    let mut found = environment.iter().filter(|(key, _)| key == name);
    found.find(|(_, value)| !value.is_empty()).map(|(_, value)| value.as_str())
}

/// A variable's value as a number. `None` if it is not set, or empty.
pub(super) fn number(environment: &Environment, name: &'static str) -> Result<Option<u32>> {
    let Some(text) = text(environment, name) else {
        return Ok(None);
    };
    let number = text.trim().parse().map_err(|_| {
        ConfigError::Other(format!("{name} is `{text}`, which is no number: give a whole number, 0 or more"))
    })?;
    Ok(Some(number))
}

/// A process's number and the number of processes. `None` if the number of processes is not set.
pub(super) fn position(environment: &Environment, names: Names) -> Result<Option<[u32; 2]>> {
    let Some(processes) = number(environment, names[1])? else {
        return Ok(None);
    };
    let [own, all] = names;
    let problem = match number(environment, own)? {
        _ if processes == 0 => format!("{all} is 0: a run has 1 process or more"),
        None if processes == 1 => return Ok(Some([0, 1])),
        None => format!(
            "{all} is {processes}, but {own} is not set: give each process its own, 0 to {}, or unset {all} \
             to run in one process",
            processes - 1
        ),
        Some(process) if process < processes => return Ok(Some([process, processes])),
        Some(process) => format!(
            "{own} is {process}, but {all} is {processes}: processes have the numbers 0 to {}",
            processes - 1
        ),
    };
    Err(ConfigError::Other(problem).into())
}
