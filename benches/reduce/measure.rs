//! How often a reduction is measured, and the processes that do it.

use std::process::{Command, Stdio};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Reductions that are not measured, before the others.
pub(crate) const WARM_UP: usize = 5;

/// How many reductions of a size are measured.
pub(crate) fn count(kilobytes: usize) -> usize {
    if kilobytes < 4096 { 60 } else { 15 }
}

pub(crate) fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// Runs `processes` processes. Returns the numbers that the first one prints.
pub(crate) fn first_of(processes: u32, command: impl Fn(u32) -> Command) -> Result<Vec<f64>> {
    let children = (0..processes).map(|process| command(process).stdout(Stdio::piped()).spawn());
    let children = children.collect::<std::io::Result<Vec<_>>>()?;
    let mut said = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("a process failed: {}", output.status).into());
        }
        said.push(String::from_utf8(output.stdout)?);
    }
    let numbers = said[0].split_whitespace().map(str::parse);
    Ok(numbers.collect::<std::result::Result<_, _>>()?)
}
