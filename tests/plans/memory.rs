//! Training that needs more memory than there is: which ranks count together, and against what.

use std::fs;
use std::path::Path;

use pipewright::id::WorldRank;
use pipewright::plan::{KeptForRestarts, RankMemory, Restarts, StageMemory, kept_for_restarts};
use pipewright::stages::Device;
use pipewright::stages::optimizer::PASSAGE;
use pipewright_cli::compose::{self, RanksHere};
use pipewright_cli::profile::MemoryLimit;
use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;

/// A config of this many ranks on these devices.
fn config(ranks: usize, devices: &str) -> Config {
    let text = format!("[pipeline]\nstages = {ranks}\nmicro_batches = 2\ndevices = '{devices}'\n");
    Config::parse("my.toml", &text, &[], &[]).unwrap()
}

/// Ranks that need this many MiB each.
fn ranks<const N: usize>(needed: [u64; N]) -> [RankMemory; N] {
    needed.map(|needed| RankMemory { weights: (needed * MIB) as f64, ..RankMemory::default() })
}

/// A limit of 200 MiB, with `free` MiB free.
fn limit(free: u64, shared: bool) -> MemoryLimit {
    MemoryLimit { bytes: 200 * MIB, free: free * MIB, set_by: "the box has".to_owned(), shared }
}

/// Process 0 of two on one machine, with a rank each.
fn first_of_two() -> RanksHere {
    RanksHere { of_process: vec![WorldRank(0)], of_machine: vec![WorldRank(0), WorldRank(1)], processes: 2 }
}

#[test]
fn ranks_of_all_processes_of_a_machine_count_against_what_they_share() {
    let (config, ranks) = (config(2, "cpu"), ranks([60, 60]));
    let check =
        |here: &RanksHere, limit| compose::check_memory(&config, &ranks, here, &[(Device::Cpu, limit)]);
    has(
        &check(&first_of_two(), limit(100, true)).unwrap_err(),
        &["training needs about 120.00 MiB of memory in the 2 processes of this machine, and the box has \
             200.00 MiB, of which 100.00 MiB is free: 120.00 MiB for weights"],
    );
    check(&first_of_two(), limit(120, true)).unwrap();
    check(&first_of_two(), limit(60, false)).unwrap();
    let refused = check(&RanksHere::all([1, 2, 1]), limit(100, false)).unwrap_err().to_string();
    has(&refused, &["training needs about 120.00 MiB of memory, and the box has"]);
}

#[test]
fn each_device_has_the_ranks_that_are_on_it() {
    let (config, ranks) = (config(3, "cuda:0,cuda:1,cuda:0"), ranks([40, 90, 50]));
    let check = |first, second| {
        let limits = [
            (Device::Cuda(0), limit(first, true)),
            (Device::Cuda(1), limit(second, true)),
            (Device::Cpu, limit(0, true)),
        ];
        compose::check_memory(&config, &ranks, &RanksHere::all([1, 3, 1]), &limits).is_ok()
    };
    assert!(check(90, 90), "no rank is on the CPU");
    assert!(!check(89, 90));
    assert!(!check(90, 89));
}

#[test]
fn processes_know_which_ranks_are_on_their_machine() {
    let of = |replicas, ranks| {
        worlds::in_processes(2, move |world| {
            RanksHere::of(Some(&world.crew()), [replicas, ranks, 1]).unwrap()
        })
    };
    let expected = |of_process: [u32; 2]| RanksHere {
        of_process: of_process.map(WorldRank).to_vec(),
        of_machine: (0..4).map(WorldRank).collect(),
        processes: 2,
    };
    for (replicas, ranks) in [(1, 4), (2, 2)] {
        assert_eq!(of(replicas, ranks), [expected([0, 1]), expected([2, 3])]);
    }
    assert_eq!(RanksHere::of(None, [1, 4, 1]).unwrap(), RanksHere::all([1, 4, 1]));
}

/// Two replicas of two ranks, which need 40 and 90 MiB: what each device holds follows from the list of
/// devices and from the map, and not from the first replica alone.
#[test]
fn each_device_has_its_ranks_of_all_replicas() {
    let fits = |devices: &str, map: &str, free: [u64; 4]| {
        let text = format!(
            "[pipeline]\nstages = 2\nreplicas = 2\nmicro_batches = 2\ndevices = '{devices}'\n\
             [launch]\nmap = '{map}'\n"
        );
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        let limits = (0..).zip(free).map(|(gpu, free)| (Device::Cuda(gpu), limit(free, true)));
        let limits: Vec<_> = limits.collect();
        compose::check_memory(&config, &ranks([40, 90]), &RanksHere::all([2, 2, 1]), &limits).is_ok()
    };
    // A device for each rank of each replica.
    let four = "cuda:0,cuda:1,cuda:2,cuda:3";
    assert!(fits(four, "pipeline", [40, 90, 40, 90]));
    for short in 0..4 {
        let mut free = [40, 90, 40, 90];
        free[short] -= 1;
        assert!(!fits(four, "pipeline", free), "cuda:{short}");
    }
    assert!(fits(four, "replicas", [40, 40, 90, 90]));
    assert!(!fits(four, "replicas", [40, 90, 40, 90]));
    // A list for one replica holds for all.
    assert!(fits("cuda:0,cuda:1", "replicas", [80, 180, 0, 0]));
    assert!(!fits("cuda:0,cuda:1", "replicas", [79, 180, 0, 0]));
    assert!(fits("cuda:1", "pipeline", [0, 260, 0, 0]));
    assert!(!fits("cuda:1", "pipeline", [0, 259, 0, 0]));
}

#[test]
fn staleness_is_named_where_it_is_what_needs_the_memory() {
    let text = "[pipeline]\nstages = 1\nreplicas = 2\nsync = 'server'\nmax_staleness = 50\n";
    let config = Config::parse("my.toml", text, &[], &[]).unwrap();
    let limits = [(Device::Cpu, limit(100, true))];
    let refused =
        compose::check_memory(&config, &ranks([60]), &RanksHere::all([2, 1, 1]), &limits).unwrap_err();
    let said = refused.to_string();
    assert!(
        said.starts_with("my.toml:5: pipeline.max_staleness: training needs about 120.00 MiB of memory"),
        "{said}"
    );
    has(&said, &["; lower it, because a rank holds gradients of so many steps"]);
}

/// The table "bytes of a weight" of the guide, row by row: settings, and what each column counts.
#[test]
fn the_guide_says_how_many_bytes_of_a_weight_are_planned() {
    let page = include_str!("../../book/src/memory.md");
    let held = |sets: &[String]| {
        let text = "[pipeline]\nstages = 1\nmicro_batches = 16\n";
        let config = Config::parse("my.toml", text, &[], sets).unwrap();
        let plan = compose::plan(&config).unwrap();
        compose::memory(&config, &plan).unwrap()[0]
    };
    let weights = held(&[]).weights / 4.0;
    let (_, table) = page.split_once("| settings | weights | gradients | optimizer | copies |\n").unwrap();
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 7);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let sets = cells[0].split('`').skip(1).step_by(2).map(|set| set.replace(" = ", "="));
        let rank = held(&sets.collect::<Vec<_>>());
        let planned = [rank.weights, rank.gradients, rank.optimizer, rank.copies];
        let said: Vec<f64> = cells[1..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!(planned.map(|bytes| bytes / weights).to_vec(), said, "{row}");
    }
}

#[test]
fn what_the_host_holds_of_each_micro_batch_is_counted() {
    let held = |micro_batches: u32| {
        let text = format!("[pipeline]\nstages = 1\nmicro_batches = {micro_batches}\nmicro_batch_size = 1\n");
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        let plan = compose::plan(&config).unwrap();
        compose::memory(&config, &plan).unwrap()[0].buffers
    };
    let each = (held(20_004) - held(4)) / 20_000.0;
    // 128 tokens of the input and as many of the target are ready twice: now and for the next step.
    let data = 2.0 * 2.0 * 128.0 * 4.0;
    // Measured with 100,000: 1,490 to 1,910 bytes of each.
    assert!((1490.0..1910.0).contains(&(each - data)), "{each}");
}

#[test]
fn gradient_groups_are_named_where_their_sums_need_the_memory() {
    let refused = |free: u64| {
        let needed = ranks([60]).map(|rank| RankMemory {
            gradients: (80 * MIB) as f64,
            waiting: (60 * MIB) as f64,
            ..rank
        });
        let limits = [(Device::Cpu, limit(free, true))];
        let here = RanksHere::all([1, 1, 1]);
        compose::check_memory(&config(1, "cpu"), &needed, &here, &limits).unwrap_err().to_string()
    };
    let said = refused(80);
    assert!(
        said.starts_with("pipeline.gradient_groups: training needs about 140.00 MiB of memory")
            && said
                .contains("; set it to the number of replicas: then no sum of gradients waits for another"),
        "{said}"
    );
    let said = refused(79);
    assert!(
        said.starts_with("model: training needs")
            && said.contains("or set pipeline.gradient_groups to the number of replicas"),
        "{said}"
    );
}

/// The limits that a system with these files has: bytes, free bytes and whether all processes share them.
fn limits(files: &[(&str, &str)]) -> Vec<(u64, u64, bool)> {
    let root = TempDir::new().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let limits = MemoryLimit::under(root.path()).into_iter();
    limits.map(|limit| (limit.bytes, limit.free, limit.shared)).collect()
}

#[test]
fn what_others_hold_is_not_free() {
    let machine = ("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  300 kB\n");
    assert_eq!(limits(&[machine]), [(1_024_000, 307_200, true)]);
    let process = [
        ("proc/self/limits", "Max address space         5000                 9000  bytes\n"),
        ("proc/self/status", "VmPeak:  9 kB\nVmSize:  2 kB\n"),
    ];
    assert_eq!(limits(&process), [(5000, 5000 - 2048, false)]);
    let unlimited =
        [("proc/self/limits", "Max address space         unlimited            unlimited  bytes\n")];
    assert_eq!(limits(&unlimited), []);
    assert!(MemoryLimit::under(Path::new("/nowhere")).is_empty());
}

#[test]
fn the_control_group_with_the_least_free_memory_counts() {
    let second = [
        ("proc/self/cgroup", "0::/job/task\n"),
        ("sys/fs/cgroup/job/task/memory.max", "max\n"),
        ("sys/fs/cgroup/job/task/memory.current", "100\n"),
        ("sys/fs/cgroup/job/memory.max", "1000\n"),
        ("sys/fs/cgroup/job/memory.current", "700\n"),
        ("sys/fs/cgroup/job/memory.stat", "anon 1\nfile 9\ninactive_file 150\nactive_file 50\n"),
        ("sys/fs/cgroup/memory.max", "600\n"),
        ("sys/fs/cgroup/memory.current", "50\n"),
    ];
    assert_eq!(limits(&second), [(1000, 500, true)]);
    let first = [
        ("proc/self/cgroup", "5:cpu:/\n4:memory:/job\n0::/\n"),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n"),
        ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "900\n"),
        (
            "sys/fs/cgroup/memory/job/memory.stat",
            "inactive_file 7\ntotal_inactive_file 20\ntotal_active_file 30\n",
        ),
    ];
    assert_eq!(limits(&first), [(1000, 150, true)]);
}

#[test]
fn what_is_kept_for_restarts_is_snapshots_and_what_was_received_since() {
    let schedule = Schedule::one_f_one_b(2, 4).unwrap();
    // Each rank receives 40 bytes in a step.
    let stages =
        [100.0, 300.0].map(|snapshot| StageMemory { snapshot, output: 10.0, ..StageMemory::default() });
    let kept = |every, replaces| {
        let restarts = Restarts { every, from_replicas: 0.0, replaces };
        let kept = kept_for_restarts(&schedule, &stages, restarts);
        let parts = |kept: KeptForRestarts| (kept.snapshots, kept.received);
        kept.into_iter().map(parts).collect::<Vec<_>>()
    };
    assert_eq!(kept(2, false), [(100.0, 80.0), (300.0, 80.0)]);
    assert_eq!(kept(10, false), [(100.0, 140.0), (300.0, 340.0)]);
    // Two of each process's own, and two of another one. A restart begins with the newest of its own.
    let four = [2.0 * (100.0 + 300.0), 2.0 * (300.0 + 300.0)];
    assert_eq!(kept(2, true), four.map(|four| (four, 80.0)));
    // One that is made earlier is a further one.
    assert_eq!(kept(10, true), [(four[0] + 100.0, 140.0), (four[1] + 300.0, 340.0)]);
}

#[test]
fn snapshots_of_ranks_on_gpus_are_in_the_memory_of_the_host() {
    let planned = |devices: &str, restarts: u32| {
        let pipeline = format!("[pipeline]\nstages = 1\nmicro_batches = 2\ndevices = '{devices}'\n");
        let text = format!("{pipeline}[train]\nrestarts = {restarts}\n");
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        let plan = compose::plan(&config).unwrap();
        let memory = compose::memory(&config, &plan).unwrap();
        (config, memory)
    };
    let [(_, without), (config, with)] = [0, 3].map(|restarts| planned("cuda:0", restarts));
    let [(_, cpu_without), (_, cpu)] = [0, 3].map(|restarts| planned("cpu", restarts));
    // One rank receives nothing.
    assert_eq!(with[0].total(), without[0].total());
    // The optimizer's tensors are copied to the host, and into the snapshot.
    let snapshot = with[0].weights + with[0].optimizer;
    assert_eq!(with[0].snapshots, snapshot + with[0].optimizer);
    assert_eq!((cpu[0].snapshots, cpu[0].total() - cpu_without[0].total()), (0.0, snapshot));
    let snapshots = with[0].snapshots.ceil() as u64;
    let check = |on_gpu, on_host: u64| {
        let limits = [(Device::Cuda(0), on_gpu), (Device::Cpu, on_host)].map(|(device, free)| {
            let all = limit(0, true);
            (device, MemoryLimit { free, ..all })
        });
        compose::check_memory(&config, &with, &RanksHere::all([1, 1, 1]), &limits)
    };
    let on_gpu = with[0].total().ceil() as u64;
    check(on_gpu, snapshots).expect("there is room");
    check(on_gpu - 1, snapshots).expect_err("the GPU's memory is too small");
    let said = check(on_gpu, snapshots - 1).expect_err("the host's memory is too small").to_string();
    has(&said, &["train.restarts: training needs about"]);
    assert!(said.ends_with("and no lost process is replaced"), "{said}");
    // If neither of two is enough to do without, both are named.
    let mut both = with.clone();
    both[0].offloaded = with[0].snapshots;
    let limits = [(Device::Cuda(0), on_gpu), (Device::Cpu, 1)].map(|(device, free)| {
        let all = limit(0, true);
        (device, MemoryLimit { free, ..all })
    });
    let said = compose::check_memory(&config, &both, &RanksHere::all([1, 1, 1]), &limits)
        .expect_err("the host's memory is too small")
        .to_string();
    has(&said, &["pipeline.offload: training needs about"]);
    has(&said, &["and set train.restarts to 0"]);
}

#[test]
fn state_on_the_host_is_counted_there_and_named_where_it_helps() {
    let planned = |optimizer: &str, devices: &str| {
        let text = format!(
            "[model]\ndim = 512\nlayers = 4\n[optimizer]\n{optimizer}\n\
             [pipeline]\nstages = 2\nmicro_batches = 2\ndevices = {devices}\n"
        );
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        let plan = compose::plan(&config).unwrap();
        let memory = compose::memory(&config, &plan).unwrap();
        (config, memory)
    };
    let (gpus, on_host) = ("['cuda:0', 'cuda:1']", "state_on_host = true");
    let (device, kept) = planned("", gpus);
    let (host, with) = planned(on_host, gpus);
    for (kept, with) in kept.iter().zip(&with) {
        assert_eq!((with.optimizer, with.state_on_host), (0.0, kept.optimizer));
        assert_eq!(kept.total() - with.total(), kept.optimizer - PASSAGE as f64);
        assert_eq!((kept.on_host(), with.on_host()), (0.0, kept.optimizer));
    }
    // On the CPU it changes nothing. A rank on the CPU beside one on a GPU has its own there.
    assert_eq!(planned(on_host, "'cpu'").1, planned("", "'cpu'").1);
    let mixed = "['cuda:0', 'cpu']";
    let [(_, without), (_, mixed)] = ["", on_host].map(|optimizer| planned(optimizer, mixed));
    assert_eq!((mixed[0].optimizer, mixed[1]), (0.0, without[1]));
    // Fewer bits take less of the host, and snapshots are made there from the state as before.
    let halves = planned("state_on_host = true\nstate = 'bf16'", gpus).1;
    assert_eq!(2.0 * halves[0].state_on_host, with[0].state_on_host);
    let restarts = |optimizer| planned(&format!("{optimizer}\n[train]\nrestarts = 3"), gpus).1[0].snapshots;
    assert_eq!(restarts(on_host), restarts(""));
    // What helps is named.
    let refused = |config: &Config, memory: &[RankMemory], on_gpu: f64, of_host: f64| {
        let of = |device, free: f64| (device, MemoryLimit { free: free as u64, ..limit(0, true) });
        let limits = [of(Device::Cuda(0), on_gpu), of(Device::Cuda(1), on_gpu), of(Device::Cpu, of_host)];
        compose::check_memory(config, memory, &RanksHere::all([1, 2, 1]), &limits)
            .map_err(|error| error.to_string())
    };
    let largest = |memory: &[RankMemory]| memory.iter().map(RankMemory::total).fold(0.0, f64::max).ceil();
    let all = with.iter().map(RankMemory::on_host).sum::<f64>().ceil();
    refused(&host, &with, largest(&with), all).expect("there is room");
    let said = refused(&device, &kept, largest(&with), all).expect_err("the GPUs are too small");
    has(&said, &["optimizer.state_on_host: training needs about", "; set it to true: then the state of"]);
    let said = refused(&device, &kept, 0.5 * largest(&with), all).expect_err("the GPUs are too small");
    assert!(!said.contains("state_on_host"), "{said}");
    let said = refused(&host, &with, largest(&with), all - 1.0).expect_err("the host is too small");
    has(&said, &["my.toml:5: optimizer.state_on_host: training needs about", "; set it to false: then the"]);
}

#[test]
fn frozen_weights_are_in_no_planned_snapshot() {
    let planned = |restarts: u32| {
        let text = format!(
            "[pipeline]\nstages = 1\nmicro_batches = 2\n[lora]\nrank = 4\n[train]\nrestarts = {restarts}\n"
        );
        let config = Config::parse("my.toml", &text, &[], &[]).unwrap();
        let plan = compose::plan(&config).unwrap();
        compose::memory(&config, &plan).unwrap()[0]
    };
    let [without, with] = [0, 3].map(planned);
    // One rank receives nothing. Of each number that is trained AdamW keeps two.
    assert_eq!(with.buffers - without.buffers, 1.5 * with.optimizer);
    assert!(with.optimizer < 0.2 * with.weights);
}
