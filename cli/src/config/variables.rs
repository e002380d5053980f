//! Variables of the environment, as launchers set them.

use crate::error::ProcessesProblem as Problem;

/// The variables of a process, with their values.
pub(super) type Environment = [(String, String)];

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// The variables with a process's number and with the number of processes.
pub(super) type Names = [&'static str; 2];

/// A variable's value. `None` if it is not set, or empty.
pub(super) fn text<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    let mut found = environment.iter().filter(|(key, _)| key == name);
    found
        .find(|(_, value)| !value.is_empty())
        .map(|(_, value)| value.as_str())
}

/// A variable's value as a number. `None` if it is not set, or empty.
pub(super) fn number(environment: &Environment, name: &'static str) -> Result<Option<u32>> {
    let Some(text) = text(environment, name) else {
        return Ok(None);
    };
    let number = text.trim().parse().map_err(|_| Problem::NoNumber {
        name,
        text: text.to_owned(),
    })?;
    Ok(Some(number))
}

/// A process's number and the number of processes. `None` if the number of processes is not set.
pub(super) fn position(environment: &Environment, names: Names) -> Result<Option<[u32; 2]>> {
    let Some(processes) = number(environment, names[1])? else {
        return Ok(None);
    };
    match number(environment, names[0])? {
        _ if processes == 0 => Err(Problem::NoProcesses { name: names[1] }),
        None if processes == 1 => Ok(Some([0, 1])),
        None => Err(Problem::NotNumbered { names, processes }),
        Some(process) if process < processes => Ok(Some([process, processes])),
        Some(process) => Err(Problem::OutOfRange {
            names,
            process,
            processes,
        }),
    }
}
