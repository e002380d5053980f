//! Ranks of several processes on GPUs: their wires go by NCCL. The processes share one GPU, as different hosts.

use super::*;
use crate::emulator;

/// A place where processes have a GPU, or an emulated one; none where there is neither.
struct Gpus(Place);

impl Gpus {
    fn new() -> Option<Self> {
        (!emulator::start().is_none()).then(|| Self(Place::new()))
    }

    /// `train` in one process of several.
    fn member(&self, rank: u32, size: u32, address: &str, args: &[&str]) -> Command {
        let mut command = self.0.member(rank, size, address, args);
        emulator::start().give(&mut command);
        command
            .env("NCCL_HOSTID", format!("process {rank}"))
            .env("NCCL_SOCKET_IFNAME", "=lo")
            .env("NCCL_NET", "Socket");
        command
    }

    fn start(&self, size: u32, args: &[&str]) -> Vec<Started> {
        let address = worlds::free_address();
        let member = |rank| Started::new(self.member(rank, size, &address, args));
        (0..size).map(member).collect()
    }

    fn alone(&self, args: &[&str]) -> Ended {
        let mut command = self.0.command(args);
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
    let Some(gpus) = Gpus::new() else { return };
    let args = [&sets(keys)[..], &["--weights-hash", "--run-dir"]].concat();
    let alone = gpus.alone(&[&args[..], &["alone"]].concat()).done();
    let several = all_done(end_all(
        gpus.start(processes, &[&args[..], &["several"]].concat()),
    ));
    assert_eq!(several.hash(), alone.hash(), "{keys:?}");
    assert_eq!(gpus.0.numbers("several"), gpus.0.numbers("alone"), "{keys:?}");
}

#[test]
fn two_processes_on_gpus_train_to_the_bits_of_one() {
    for dtype in ["pipeline.dtype=f32", "pipeline.dtype=bf16"] {
        same_weights(2, &["pipeline.devices=cuda:0", dtype, "pipeline.stages=2"]);
    }
}

#[test]
fn several_stages_a_rank_train_on_gpus_to_the_bits_of_one_process() {
    for schedule in ["pipeline.schedule=interleaved-1f1b", "pipeline.schedule=zb-v"] {
        same_weights(
            2,
            &[
                "pipeline.devices=cuda:0",
                "pipeline.dtype=bf16",
                schedule,
                "pipeline.stages=4",
            ],
        );
    }
}

#[test]
fn wires_between_gpus_and_the_cpu_go_over_sockets() {
    for dtype in ["pipeline.dtype=f32", "pipeline.dtype=bf16"] {
        same_weights(
            3,
            &["pipeline.devices=cuda:0,cuda:0,cpu", dtype, "pipeline.stages=3"],
        );
    }
}
