//! The costs of layers are measured on the GPUs that a config names.

use super::*;

const ON_GPU: [&str; 4] = ["--set", "pipeline.devices=cuda:0", "--set", "pipeline.dtype=f32"];
const IN_BF16: [&str; 4] = ["--set", "pipeline.devices=cuda:0", "--set", "pipeline.dtype=bf16"];

/// The costs that `profile` writes with these settings.
fn profiled(machine: &Machine, sets: &[&str], out: &str) -> Value {
    machine.run(&[&["profile", "my.toml", "--out", out], sets].concat()).done();
    serde_json::from_str(&machine.text(out)).unwrap()
}

/// A cost of each layer.
fn of_layers(costs: &Value, key: &str) -> Vec<f64> {
    let layers = costs["layers"].as_array().unwrap().iter();
    layers.map(|layer| layer[key].as_f64().unwrap()).collect()
}

#[test]
fn a_profile_on_a_gpu_has_its_times_and_bytes() {
    let Some(machine) = emulated() else { return };
    let [f32, bf16] =
        [(ON_GPU, "f32.json"), (IN_BF16, "bf16.json")].map(|(sets, out)| profiled(&machine, &sets, out));
    for costs in [&f32, &bf16] {
        for key in ["forward", "backward_input", "backward", "update"] {
            assert!(of_layers(costs, key).iter().all(|time| *time > 0.0), "{key}: {costs}");
        }
        assert_eq!(costs["machine"]["gpus"], "1");
        assert!(costs["host"].as_f64() > Some(0.0), "{costs}");
        assert!(costs["machine"]["gpu"].is_string(), "{costs}");
    }
    for (full, half) in of_layers(&f32, "output").iter().zip(of_layers(&bf16, "output")) {
        assert_eq!(*full, 2.0 * half);
    }
    // The embedding keeps only tokens.
    let saved = [&f32, &bf16].map(|costs| of_layers(costs, "saved")[1..].to_vec());
    for (full, half) in saved[0].iter().zip(&saved[1]) {
        assert!(half < full && *half > 0.4 * full, "{half} of {full} bytes");
    }
    assert_eq!(bf16["settings"]["pipeline.devices"], "GPUs in bf16");
}

#[test]
fn what_is_planned_by_costs_of_a_gpu_is_held_there() {
    let Some(machine) = emulated() else { return };
    profiled(&machine, &IN_BF16, "costs.json");
    let plan = ["plan", "my.toml", "--costs", "costs.json", "--format", "json"];
    let plan = machine.run(&[&plan[..], &IN_BF16].concat()).done();
    assert_eq!(plan.stderr(), "", "costs of this machine");
    let plan: Value = serde_json::from_str(&plan.stdout()).unwrap();
    let train = ["train", "my.toml", "--steps", "1", "--set", "pipeline.costs=costs.json"];
    has(&machine.run(&[&train[..], &IN_BF16].concat()).done().stdout(), &[" % by the costs of its layers\n"]);
    let metrics = machine.text("runs/small/metrics.jsonl");
    let line: Value = serde_json::from_str(metrics.lines().next().unwrap()).unwrap();
    let numbers = |list: &Value| -> Vec<f64> {
        let list = list.as_array().unwrap().iter();
        list.map(|number| number.as_f64().unwrap()).collect()
    };
    assert_eq!(numbers(&plan["peak_memory"]), numbers(&line["peak_bytes"]));
}

#[test]
fn shards_on_gpus_are_measured_together() {
    let Some(machine) = emulated() else { return };
    let on_two = ["--set", "pipeline.devices=cuda:1,cuda:0", "--set", "pipeline.stages=1"];
    let shards = [&on_two[..], &["--set", "pipeline.shards=2"]].concat();
    let costs = profiled(&machine, &shards, "costs.json");
    assert_eq!(costs["shards"]["count"], 2);
    for key in ["forward", "backward_input", "update"] {
        assert!(of_layers(&costs, key).iter().all(|time| *time > 0.0), "{key}: {costs}");
    }
    machine.run(&[&["plan", "my.toml", "--costs", "costs.json"], &shards[..]].concat()).done();
    let tune = ["tune", "my.toml", "--ranks", "1", "--shards", "1,2", "--top", "1", "--set"];
    let said = machine.run(&[&tune[..], &["pipeline.devices=cuda:1,cuda:0"]].concat()).done();
    has(&said.stdout(), &["shards: the fastest setting with 2 is predicted "]);
}

#[test]
fn shards_of_a_rank_are_on_one_kind_of_gpu() {
    let Some(mut machine) = emulated() else { return };
    machine.variables.push(("PIPEWRIGHT_EMULATOR_KINDS", "2".into()));
    let train = |stages: &str, devices: &str| {
        let [stages, devices] = [format!("pipeline.stages={stages}"), format!("pipeline.devices={devices}")];
        let train = ["train", "my.toml", "--steps", "1", "--set", "pipeline.shards=2"];
        machine.run(&[&train[..], &["--set", &stages, "--set", &devices]].concat())
    };
    let said = train("1", "cuda:0,cuda:1").refused();
    has(
        &said,
        &["rank 0, shard 0 is on a Pipewright emulator, kind 0, and rank 0, shard 1 on a Pipewright \
             emulator, kind 1, which may round in another way: put all shards of a rank on GPUs of one kind"],
    );
    train("2", "cuda:0,cuda:2,cuda:1,cuda:3").done();
}

#[test]
fn costs_are_for_the_devices_and_numbers_that_they_were_measured_in() {
    let Some(machine) = emulated() else { return };
    let mut of_cpu = profiled(&machine, &[], "costs.json");
    let plan = |sets: &[&str]| machine.run(&[&["plan", "my.toml", "--costs", "costs.json"], sets].concat());
    has(
        &plan(&ON_GPU).refused(),
        &["costs.json: measured for other settings (pipeline.devices cpu, now GPUs in f32): measure again"],
    );
    // Costs without a device are from before GPUs were measured, so they are the CPU's.
    of_cpu["settings"].as_object_mut().unwrap().remove("pipeline.devices");
    machine.write("costs.json", of_cpu.to_string());
    plan(&[]).done();
    plan(&ON_GPU).refused();
    let mut of_gpu = profiled(&machine, &ON_GPU, "costs.json");
    let said = plan(&IN_BF16).refused();
    has(&said, &["(pipeline.devices GPUs in f32, now GPUs in bf16)"]);
    of_gpu["machine"]["gpu"] = "an abacus".into();
    machine.write("costs.json", of_gpu.to_string());
    let warned = |machine: &Machine| {
        let plan = ["plan", "my.toml", "--costs", "costs.json"];
        let said = machine.run(&[&plan[..], &ON_GPU].concat()).done().stderr();
        let warning = "warning: costs.json: measured under other conditions (gpu an abacus, now ";
        assert!(said.starts_with(warning), "{said}");
    };
    warned(&machine);
    let without = Machine { place: machine.place, variables: Vec::new() };
    warned(&without);
}

#[test]
fn tune_on_gpus_finds_settings_that_train() {
    let Some(machine) = emulated() else { return };
    let sets = ["--set", "pipeline.devices=cuda:1,cuda:0", "--set", "pipeline.micro_batches=1"];
    let args = ["tune", "my.toml", "--ranks", "1,2", "--top", "1", "--out", "tuned.toml"];
    let said = machine.run(&[&args[..], &sets].concat()).done().stdout();
    assert!(said.ends_with("; written to tuned.toml\n"), "{said}");
    let run = machine.run(&["train", "tuned.toml", "--steps", "1"]).done();
    let told = run.stderr();
    assert!(!told.contains("warning"), "its costs are those that it was tuned by: {told}");
    has(&run.stdout(), &["\ndevices   cuda:1"]);
}

#[test]
fn sizes_that_a_gpu_has_no_memory_for_are_left_out() {
    let Some(mut machine) = emulated() else { return };
    // The memory is only enough for one rank's workspace for matrix products, so two ranks cannot start.
    let memory = (34 << 20).to_string();
    machine.variables.push(("PIPEWRIGHT_EMULATOR_MEMORY", memory.into()));
    let one = ["--set", "pipeline.micro_batches=1", "--set", "pipeline.micro_batch_size=1"];
    let tune = [&["tune", "my.toml", "--top", "1", "--ranks"][..], &["1,2"], &ON_GPU, &one].concat();
    let run = machine.run(&tune).done();
    has(&run.stderr(), &["left out ranks 2, micro-batches 1, rows 1: stage ", "out of memory on cuda:0"]);
    has(&run.stdout(), &["chosen: 1f1b: ranks 1, "]);
}

#[test]
fn what_cannot_be_measured_on_gpus_says_what_can() {
    let machine = Machine::new().with("LD_LIBRARY_PATH", "cuda");
    machine.install("cuda", DRIVER);
    machine.write_config();
    for command in ["profile", "tune", "plan"] {
        let refused = |devices: &str| {
            let set = format!("pipeline.devices={devices}");
            machine.run(&[command, "my.toml", "--set", &set]).refused()
        };
        has(
            &refused("cpu,cuda:0"),
            &["pipeline.devices: one cost of a layer is for all ranks, and these ranks \
                 are not all on the CPU, or all on GPUs"],
        );
        has(
            &refused("cuda:3"),
            &[
                "pipeline.devices: the costs of layers are measured where they run, and there is no cuda:3",
                "of a kind of GPU (--device)",
                "--set pipeline.devices=cpu",
            ],
        );
    }
    let mixed = ["--set", "pipeline.devices=cpu,cuda:0", "--set", "pipeline.memory=1MiB"];
    has(
        &machine.run(&[&["train", "my.toml"], &mixed[..]].concat()).refused(),
        &["measured costs, and none can be measured for ranks on both the CPU and GPUs: leave it out"],
    );
}
