//! How much memory this process may use, and how much of it is free.

use std::fs::read_to_string;
use std::path::Path;

/// A limit to the memory of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// How much of it is free now, in bytes. What the system keeps of files counts as free: it gives that up.
    pub free: u64,
    /// What sets it, up to a verb: `this machine has`.
    pub set_by: String,
    /// Whether it is for all processes of this machine together, and not for this one alone.
    pub shared: bool,
}

impl MemoryLimit {
    /// The known limits: of this process's address space (`ulimit -v`), of its control groups (cgroups), and
    /// of the machine.
    pub fn here() -> Vec<Self> {
        Self::under(Path::new("/"))
    }

    /// The limits that the system's files tell, in a file system with this root.
    pub fn under(root: &Path) -> Vec<Self> {
        let limit = |set_by: &str, shared| {
            let set_by = set_by.to_owned();
            move |[bytes, free]: [u64; 2]| Self { bytes, free, set_by, shared }
        };
        let limits = [
            of_address_space(root).map(limit("this process may use (ulimit -v)", false)),
            of_control_groups(root).map(limit("the control group (cgroup) of this process may use", true)),
            of_machine(root).map(limit("this machine has", true)),
        ];
        limits.into_iter().flatten().collect()
    }
}

/// The address space of this process, and how much of it is free. Without a limit the system says
/// `unlimited`.
fn of_address_space(root: &Path) -> Option<[u64; 2]> {
    let limits = read_to_string(root.join("proc/self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    let bytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let used = kib(&root.join("proc/self/status"), "VmSize:").unwrap_or(0);
    Some([bytes, bytes.saturating_sub(used)])
}

/// The memory of the machine, and how much of it is free.
fn of_machine(root: &Path) -> Option<[u64; 2]> {
    let facts = root.join("proc/meminfo");
    let bytes = kib(&facts, "MemTotal:")?;
    Some([bytes, kib(&facts, "MemAvailable:").unwrap_or(bytes)])
}

/// The bytes in a line like `MemTotal:  1024 kB`.
fn kib(file: &Path, name: &str) -> Option<u64> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kib)
}

/// The names of a control group's files and of the lines in the last of them, in one version of cgroups.
struct Names {
    folder: &'static str,
    limit: &'static str,
    used: &'static str,
    /// What the system keeps of files.
    cached: [&'static str; 2],
}

const VERSION_2: Names = Names {
    folder: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: ["inactive_file ", "active_file "],
};

const VERSION_1: Names = Names {
    folder: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: ["total_inactive_file ", "total_active_file "],
};

/// The limit with the least free memory, among the limits of the process's control group and its parents.
fn of_control_groups(root: &Path) -> Option<[u64; 2]> {
    let groups = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let names = match controllers {
            "" => VERSION_2,
            "memory" => VERSION_1,
            _ => return None,
        };
        let group = Path::new(path.trim_start_matches('/'));
        let folders = group.ancestors().map(|group| root.join(names.folder).join(group));
        let limits = folders.filter_map(|folder| of_group(&folder, &names));
        limits.min_by_key(|[_, free]| *free)
    });
    limits.min_by_key(|[_, free]| *free)
}

/// The limit of one control group, and how much of it is free. A group without a limit says `max`.
fn of_group(folder: &Path, names: &Names) -> Option<[u64; 2]> {
    let number = |file: &str| read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let bytes = number(names.limit)?;
    let facts = read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = names.cached.iter().filter_map(|name| {
        let number = facts.lines().find_map(|line| line.strip_prefix(name))?;
        number.trim().parse::<u64>().ok()
    });
    let used = number(names.used).unwrap_or(0).saturating_sub(cached.sum());
    Some([bytes, bytes.saturating_sub(used)])
}
