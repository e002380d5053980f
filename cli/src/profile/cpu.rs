//! The processor of this machine.

use std::collections::BTreeSet;

/// The processor of a machine.
#[derive(Debug)]
pub struct Cpu {
    /// Its model name, or `unknown` if the system does not tell it.
    pub name: String,
    /// Physical cores. Two threads of one core share its arithmetic units.
    pub cores: usize,
    /// How many threads this process can run at once.
    pub threads: usize,
}

impl Cpu {
    /// The processor that this process runs on, as `/proc/cpuinfo` describes it.
    pub fn here() -> Self {
        let facts = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let all = |name: &'static str| values(&facts, name);
        let cores: BTreeSet<_> = all("physical id").zip(all("core id")).collect();
        Self {
            name: all("model name").next().unwrap_or("unknown").to_owned(),
            cores: if cores.is_empty() { threads } else { cores.len() },
            threads,
        }
    }
}

/// The values of a line that `/proc/cpuinfo` has for each processor.
fn values<'a>(facts: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    let pairs = facts.lines().filter_map(|line| line.split_once(':'));
    let named = pairs.filter(move |(key, _)| key.trim() == name);
    named.map(|(_, value)| value.trim())
}
