//! How much memory this process may use.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// A limit to the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// What sets it.
    pub set_by: &'static str,
}

impl MemoryLimit {
    /// The smallest known limit: of the machine, of the process's control groups (cgroups), or of its address
    /// space (`ulimit -v`). `None` if the system tells none of them.
    pub fn here() -> Option<Self> {
        let limit = |set_by| move |bytes| Self { bytes, set_by };
        let limits = [
            of_machine().map(limit("this machine has")),
            of_control_groups().map(limit("the control group (cgroup) of this process may use")),
            of_address_space().map(limit("this process may use (ulimit -v)")),
        ];
        limits.into_iter().flatten().min_by_key(|limit| limit.bytes)
    }
}

/// The memory of the machine.
fn of_machine() -> Option<u64> {
    let facts = read_to_string("/proc/meminfo").ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kib)
}

/// The smallest limit of the process's control group and its parents, of cgroup version 2 or 1.
fn of_control_groups() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        smallest(Path::new(root), Path::new(path.trim_start_matches('/')), file)
    });
    limits.min()
}

/// The smallest limit in the files of this name, from a group up to the root. A file without a limit says
/// `max`.
fn smallest(root: &Path, group: &Path, file: &str) -> Option<u64> {
    let folders = group.ancestors().map(|group| root.join(group));
    let limit = |folder: PathBuf| read_to_string(folder.join(file)).ok()?.trim().parse().ok();
    folders.filter_map(limit).min()
}

/// The limit of the address space. Without a limit the system says `unlimited`.
fn of_address_space() -> Option<u64> {
    let limits = read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}
