//! Ranks of several processes on GPUs. NCCL carries their wires. The processes share one GPU and claim to be
//! different hosts.

use std::os::unix::fs::symlink;

use pipewright::stages::devices;

use super::*;
use emulator::Cuda;

/// A place where processes have a GPU or an emulated one. `None` if there is neither.
struct Gpus(Place);

impl Gpus {
    fn new() -> Option<Self> {
        (!emulator::start().is_none()).then(|| Self(Place::new()))
    }

    /// The same, and the model has experts.
    fn with_experts() -> Option<Self> {
        let gpus = Self::new()?;
        let config =
            CONFIG.replace("dropout = 0.1", "kind = 'mixtral'\nffn = 24\nexperts = 4\nauxiliary = 0.1");
        fs::write(gpus.0.path("my.toml"), config).unwrap();
        Some(gpus)
    }

    /// `train` in one process of several.
    fn member(&self, rank: u32, size: u32, address: &str, args: &[&str]) -> Command {
        let mut command = self.0.member(rank, size, address, args);
        emulator::start().give(&mut command);
        command
            .env("NCCL_HOSTID", format!("process {rank}"))
            .env("NCCL_SOCKET_IFNAME", "=lo")
            .env("NCCL_NET", "Socket");
        if std::env::var_os("NCCL_DEBUG_FILE").is_none() {
            // NCCL would write its messages to standard output.
            command.env_remove("NCCL_DEBUG");
        }
        command
    }

    fn start(&self, size: u32, args: &[&str]) -> Vec<Started> {
        let address = worlds::free_address();
        let member = |rank| Started::new(self.member(rank, size, &address, args));
        (0..size).map(member).collect()
    }

    fn alone(&self, args: &[&str]) -> Ended {
        let mut command = self.0.train(args);
        emulator::start().give(&mut command);
        Started::new(command).end()
    }
}

/// Arguments that set these keys.
fn sets<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().flat_map(|key| ["--set", key]).collect()
}

#[track_caller]
fn same_weights(processes: u32, keys: &[&str]) {
    if let Some(gpus) = Gpus::new() {
        same_weights_on(&gpus, processes, keys);
    }
}

#[track_caller]
fn same_weights_on(gpus: &Gpus, processes: u32, keys: &[&str]) {
    let short = sets(&["train.steps=2", "checkpoint.every=2"]);
    let args = [&short[..], &sets(keys), &["--weights-hash", "--run-dir"]].concat();
    let alone = gpus.alone(&[&args[..], &["alone"]].concat()).done();
    let several = all_done(end_all(gpus.start(processes, &[&args[..], &["several"]].concat())));
    assert_eq!(several.hash(), alone.hash(), "{keys:?}");
    assert_eq!(gpus.0.numbers("several"), gpus.0.numbers("alone"), "{keys:?}");
}

#[test]
fn two_processes_on_gpus_train_to_the_bits_of_one() {
    for dtype in ["pipeline.dtype=f32", "pipeline.dtype=bf16"] {
        same_weights(2, &["pipeline.devices=cuda:0", dtype, "pipeline.stages=2"]);
    }
}

/// In a mixture of experts, a pass waits for its GPU, and the GPU for other processes.
#[test]
fn experts_on_gpus_of_two_processes_train_to_the_bits_of_one() {
    let Some(gpus) = Gpus::with_experts() else { return };
    let keys = ["pipeline.devices=cuda:0", "pipeline.dtype=bf16", "pipeline.stages=2"];
    same_weights_on(&gpus, 2, &keys);
}

/// What NCCL has carried in a step: a line for each transfer, with sender, receiver and bytes.
fn sent_in_a_step(processes: u32, keys: &[&str]) -> String {
    let gpus = Gpus::new().expect("asked before");
    let address = worlds::free_address();
    let args = [&sets(keys)[..], &["--steps", "1"]].concat();
    let member = |rank| {
        let mut command = gpus.member(rank, processes, &address, &args);
        command.env("PIPEWRIGHT_EMULATOR_SENT", gpus.0.path("sent"));
        Started::new(command)
    };
    all_done(end_all((0..processes).map(member).collect()));
    fs::read_to_string(gpus.0.path("sent")).unwrap_or_default()
}

/// Whether NCCL carries the gradient of the tied table, from one of these members to the other, and the sum
/// back.
fn is_tied_by_nccl(processes: u32, members: [u32; 2], keys: &[&str]) -> bool {
    let sent = sent_in_a_step(processes, keys);
    let table = 256 * 16 * size_of::<f32>();
    let [there, back] = [members, [members[1], members[0]]].map(|[from, to]| format!("{from} {to} {table}"));
    sent.lines().any(|line| line == there) && sent.lines().any(|line| line == back)
}

#[test]
fn tied_gradients_go_by_nccl_where_it_can_have_both_ranks() {
    let Cuda::Emulated(_) = emulator::start() else {
        return;
    };
    let neighbours = ["pipeline.devices=cuda:0", "pipeline.stages=2"];
    assert!(is_tied_by_nccl(2, [1, 0], &neighbours));
    let far = ["pipeline.devices=cuda:0", "pipeline.stages=3"];
    assert!(is_tied_by_nccl(3, [2, 0], &far));
    same_weights(3, &far);
    // The first and the last rank exchange no wires with each other or with another process.
    let inside = ["pipeline.devices=cuda:0,cuda:1,cuda:0,cuda:1", "pipeline.stages=4"];
    assert!(is_tied_by_nccl(2, [3, 0], &inside));
    same_weights(2, &inside);
    same_weights(2, &[&inside[..], &["model.tied=false"]].concat());
    // They share their GPUs with their neighbours.
    let shared = ["pipeline.devices=cuda:0", "pipeline.stages=4"];
    assert!(!is_tied_by_nccl(2, [1, 0], &shared));
}

/// Each process has one shard, alone or beside replicas and stages: NCCL connects several groups of a rank.
#[test]
fn shards_on_gpus_of_several_processes_train_to_the_bits_of_one() {
    let shards = ["pipeline.devices=cuda:0", "pipeline.shards=2", "pipeline.shard_groups=2"];
    let of = |keys: &[&'static str]| [&shards[..], keys].concat();
    same_weights(2, &of(&["pipeline.stages=1", "pipeline.dtype=bf16"]));
    same_weights(4, &of(&["pipeline.stages=1", "pipeline.replicas=2", SHARDED]));
    same_weights(4, &of(&["pipeline.stages=2"]));
    if let Some(gpus) = Gpus::with_experts() {
        same_weights_on(&gpus, 2, &of(&["pipeline.stages=1", "pipeline.dtype=bf16"]));
    }
    if let Cuda::Emulated(_) = emulator::start() {
        let sent = sent_in_a_step(2, &of(&["pipeline.stages=1"]));
        // The rows of a micro-batch of one shard, [rows, dim] in `f32`.
        let is_rows = |line: &str| line.starts_with("0 1 ") || line.starts_with("1 0 ");
        assert!(sent.lines().filter(|line| is_rows(line)).count() > 10, "by NCCL: {sent}");
    }
}

#[test]
fn several_stages_a_rank_train_on_gpus_to_the_bits_of_one_process() {
    for schedule in ["pipeline.schedule=interleaved-1f1b", "pipeline.schedule=zb-v"] {
        same_weights(2, &["pipeline.devices=cuda:0", "pipeline.dtype=bf16", schedule, "pipeline.stages=4"]);
    }
}

#[test]
fn wires_between_gpus_and_the_cpu_go_over_sockets() {
    for dtype in ["pipeline.dtype=f32", "pipeline.dtype=bf16"] {
        same_weights(3, &["pipeline.devices=cuda:0,cuda:0,cpu", dtype, "pipeline.stages=3"]);
    }
}

#[test]
fn a_process_that_is_killed_ends_the_transfers_of_the_others() {
    for (victim, new) in
        [(0, Gpus::new as fn() -> _), (1, Gpus::new), (0, Gpus::with_experts), (1, Gpus::with_experts)]
    {
        let Some(gpus) = new() else { return };
        let keys = sets(&["pipeline.devices=cuda:0", "pipeline.stages=2"]);
        let mut started = gpus.start(2, &[&LONG[..], &keys].concat());
        gpus.0.await_steps();
        started[victim].signal("-KILL");
        drop(started.remove(victim));
        let said = started.remove(0).end().failed(1);
        let line = format!(
            "process {}: error: process {victim} has stopped without saying why: \
             its connections were closed, so it was killed or it crashed\n",
            1 - victim
        );
        assert!(said.ends_with(&line), "{said}");
    }
}

/// Otherwise it would hang.
#[test]
fn launches_that_block_are_refused_where_processes_send_to_each_other() {
    let Some(gpus) = Gpus::new() else { return };
    let keys = sets(&["pipeline.devices=cuda:0", "pipeline.stages=2"]);
    let args = [&keys[..], &["--steps", "1"]].concat();
    let address = worlds::free_address();
    let member = |rank| {
        let mut command = gpus.member(rank, 2, &address, &args);
        command.env("CUDA_LAUNCH_BLOCKING", "1");
        Started::new(command)
    };
    for ended in end_all((0..2).map(member).collect()) {
        has(
            &ended.failed(2),
            &["CUDA_LAUNCH_BLOCKING=1: CUDA waits for each piece of work", "unset CUDA_LAUNCH_BLOCKING"],
        );
    }
}

#[test]
fn without_nccl_all_processes_say_how_to_get_it() {
    let Some(gpus) = Gpus::new() else { return };
    let Cuda::Emulated(libraries) = emulator::start() else {
        return;
    };
    for library in ["libcuda.so", "libnvrtc.so", "libcublasLt.so"] {
        symlink(libraries.join(library), gpus.0.path(library)).unwrap();
    }
    let address = worlds::free_address();
    let keys = sets(&["pipeline.devices=cuda:0", "pipeline.stages=2"]);
    let member = |rank| {
        let mut command = gpus.member(rank, 2, &address, &keys);
        // A Python environment has no library either.
        command
            .env("LD_LIBRARY_PATH", gpus.0.path("."))
            .env("HOME", gpus.0.path("."))
            .env("PATH", "/usr/bin:/bin")
            .env_remove("PYENV_ROOT")
            .env_remove("VIRTUAL_ENV");
        Started::new(command)
    };
    for process in end_all([0, 1].map(member).into()) {
        has(&process.failed(2), &["no NCCL (libnccl.so.2) was found: `pip install nvidia-nccl"]);
    }
}

#[test]
fn processes_on_one_gpu_are_told_to_take_one_each() {
    let Some(gpus) = Gpus::new() else { return };
    let address = worlds::free_address();
    let keys = sets(&["pipeline.devices=cuda:0", "pipeline.stages=2"]);
    let member = |rank| {
        let mut command = gpus.member(rank, 2, &address, &keys);
        command.env("NCCL_HOSTID", "the same");
        Started::new(command)
    };
    for process in end_all([0, 1].map(member).into()) {
        let said = process.failed(2);
        has(&said, &["Duplicate GPU detected"]);
        has(&said, &["ranks that send to other processes need a GPU each"]);
    }
}

/// Its numbers have other last bits.
#[test]
fn attention_by_wgmma_in_one_process_only_is_refused() {
    let Some(gpus) = Gpus::new() else { return };
    let address = worlds::free_address();
    let keys = sets(&["pipeline.devices=cuda:0", "pipeline.stages=2"]);
    let member = |rank| {
        let mut command = gpus.member(rank, 2, &address, &keys);
        if rank == 1 {
            command.env("PIPEWRIGHT_ATTENTION", "wgmma");
        }
        Started::new(command)
    };
    for process in end_all([0, 1].map(member).into()) {
        has(&process.failed(2), &["process 1 differs from process 0", "PIPEWRIGHT_ATTENTION", "wgmma"]);
    }
}

#[test]
fn ranks_of_one_process_on_one_gpu_may_not_both_send_to_others() {
    let Some(gpus) = Gpus::new() else { return };
    let ring = ["pipeline.stages=8", "pipeline.schedule=interleaved-1f1b"];
    let keys = [&["pipeline.devices=cuda:0"], &ring[..]].concat();
    for process in end_all(gpus.start(2, &sets(&keys))) {
        let said = process.failed(2);
        let expected =
            "ranks 0 and 1 of one process are both on cuda:0 and both have links to other processes";
        has(&said, &[expected]);
    }
    // In a chain of ranks, only those at the boundary between processes use NCCL.
    same_weights(2, &["pipeline.devices=cuda:0", "pipeline.stages=4"]);
}

/// Trains in replicas over processes, and compares with one rank on a GPU.
#[track_caller]
fn same_as_one_rank(processes: u32, keys: &[&str], model: &[&str]) {
    let Some(gpus) = Gpus::new() else { return };
    let short = [&sets(&["train.steps=2", "checkpoint.every=2"])[..], &sets(model)].concat();
    let plain = sets(&["pipeline.devices=cuda:0", "pipeline.stages=1"]);
    let args = [&short[..], &plain, &["--weights-hash", "--run-dir", "alone"]].concat();
    let alone = gpus.alone(&args).done();
    let args = [&short[..], &sets(keys), &["--weights-hash", "--run-dir", "several"]].concat();
    let several = all_done(end_all(gpus.start(processes, &args)));
    assert_eq!(several.hash(), alone.hash(), "{keys:?}");
    assert_eq!(gpus.0.numbers("several"), gpus.0.numbers("alone"), "{keys:?}");
}

const SHARDED: &str = "optimizer.sharded=true";

#[test]
fn replicas_on_gpus_of_several_processes_train_to_the_bits_of_one() {
    // CUDA is loaded before the number of GPUs is asked for.
    if emulator::start().is_none() {
        return;
    }
    let one = ["pipeline.devices=cuda:0", "pipeline.stages=1"];
    let two = [&one[..], &["pipeline.replicas=2"]].concat();
    same_as_one_rank(2, &two, &["pipeline.dtype=f32"]);
    same_as_one_rank(2, &[&two[..], &[SHARDED]].concat(), &["pipeline.dtype=bf16"]);
    // 8 micro-batches for 3 replicas, and enough numbers that each replica adds up a part of them.
    let three = [&one[..], &["pipeline.replicas=3"]].concat();
    same_as_one_rank(3, &three, &["model.dim=32", "pipeline.micro_batches=8"]);
    // Two of four replicas are in one process. NCCL wants a GPU for each.
    if devices::probe().gpus.is_ok_and(|gpus| gpus.len() > 1) {
        let devices = "pipeline.devices=cuda:0,cuda:1,cuda:0,cuda:1";
        let four = [devices, "pipeline.stages=1", "pipeline.replicas=4", SHARDED];
        same_as_one_rank(2, &four, &["model.dim=32"]);
    }
    // A process for each rank: both wires and sums go by NCCL.
    let both = ["pipeline.devices=cuda:0", "pipeline.replicas=2"];
    let two_stages = [&both[..], &["pipeline.stages=2", SHARDED]].concat();
    same_as_one_rank(4, &two_stages, &["pipeline.dtype=bf16"]);
    // The same with two GPUs.
    if devices::probe().gpus.is_ok_and(|gpus| gpus.len() > 1) {
        let apart = ["pipeline.devices=cuda:0,cuda:1,cuda:0,cuda:1", "pipeline.replicas=2"];
        let two_stages = [&apart[..], &["pipeline.stages=2", SHARDED]].concat();
        same_as_one_rank(4, &two_stages, &["pipeline.dtype=bf16"]);
    }
    // With 3 micro-batches their lists differ.
    let several_stages = ["pipeline.schedule=zb-v", "pipeline.stages=4"];
    let unequal = [&both[..], &several_stages[..]].concat();
    same_as_one_rank(4, &unequal, &["pipeline.micro_batches=3"]);
}

/// The sizes of what NCCL has carried in a step, except for the bytes by which it connects.
fn carried_in_a_step(processes: u32, keys: &[&str]) -> Vec<usize> {
    let sent = sent_in_a_step(processes, keys);
    let size = |line: &str| line.rsplit(' ').next().expect("a size").parse().expect("a number");
    sent.lines().map(size).filter(|size| *size > 4).collect()
}

#[test]
fn gradients_of_replicas_go_by_nccl_where_every_rank_has_a_gpu_of_its_own() {
    let Cuda::Emulated(_) = emulator::start() else {
        return;
    };
    let model = ["model.tied=false", "model.layers=1"];
    let replicas = [&["pipeline.replicas=2"], &model[..]].concat();
    let own = [&["pipeline.devices=cuda:0", "pipeline.stages=1"], &replicas[..]].concat();
    // Two tables of tokens, one of places, a layer of 12 matrices and 13 rows, and a norm.
    let numbers = 2 * 256 * 16 + 16 * 16 + 12 * 16 * 16 + 13 * 16 + 2 * 16;
    assert_eq!(carried_in_a_step(2, &own), [4 * numbers; 2]);
    // Two ranks of a process share a GPU.
    let shared = [&["pipeline.devices=cuda:0", "pipeline.stages=2"], &replicas[..]].concat();
    assert!(carried_in_a_step(2, &shared).is_empty());
    same_as_one_rank(2, &shared, &model);
    // One of the two is on the CPU.
    let mixed = [&["pipeline.devices=cuda:0,cpu", "pipeline.stages=1"], &replicas[..]].concat();
    assert!(carried_in_a_step(2, &mixed).is_empty());
}

#[test]
fn a_process_that_is_killed_ends_the_sums_of_its_replicas() {
    for victim in [0, 1] {
        let Some(gpus) = Gpus::new() else { return };
        let keys = ["pipeline.devices=cuda:0", "pipeline.stages=1", "pipeline.replicas=2"];
        let mut started = gpus.start(2, &[&LONG[..], &sets(&keys)].concat());
        gpus.0.await_steps();
        // It has nothing to wait for but sums: the other one reaches one, and is in it when this one dies.
        started[victim].signal("-STOP");
        std::thread::sleep(Duration::from_millis(300));
        started[victim].signal("-KILL");
        drop(started.remove(victim));
        let said = started.remove(0).end().failed(1);
        let line = format!(
            "process {}: error: process {victim} has stopped without saying why: \
             its connections were closed, so it was killed or it crashed\n",
            1 - victim
        );
        assert!(said.ends_with(&line), "{said}");
    }
}
