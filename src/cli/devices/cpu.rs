//! The cores of this machine.

use std::collections::BTreeSet;

/// A machine's processor.
#[derive(Debug)]
pub(super) struct Cpu {
    /// What its maker calls it.
    pub(super) name: String,
    /// Cores, each with an arithmetic of its own.
    pub(super) cores: usize,
    /// How many threads this process can run at once.
    pub(super) threads: usize,
}

impl Cpu {
    /// The one that this process runs on.
    pub(super) fn here() -> Self {
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

/// The values of a line that each processor has.
fn values<'a>(facts: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    let pairs = facts.lines().filter_map(|line| line.split_once(':'));
    let named = pairs.filter(move |(key, _)| key.trim() == name);
    named.map(|(_, value)| value.trim())
}
