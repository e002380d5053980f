//! What people write: configs, changes of them, schedules; and measured costs.

use pipewright::schedule::{LinkKind, Schedule};
use pipewright_cli::compose;
use pipewright_cli::config::{Config, launched};
use pipewright_cli::profile::Measured;

use super::*;

/// What parts a config from environment variables and from `--set` arguments.
const PART: &str = "\n----\n";

/// A config, variables and `--set` arguments in one input.
fn read_config(input: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.splitn(3, PART);
    let config = parts.next().unwrap_or_default();
    let variables = parts.next().unwrap_or_default().lines();
    let variables: Vec<(String, String)> = variables
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let sets: Vec<String> = parts.next().unwrap_or_default().lines().map(str::to_owned).collect();
    let _ = launched(&variables);
    let config = told(Config::parse("config", config, &variables, &sets))?;
    let _ = config.membership(&variables);
    let resolved = told(config.resolved_toml())?;
    let again = told(Config::parse("resolved", &resolved, &[], &[])).expect("what is written can be read");
    assert_eq!(told(again.resolved_toml())?, resolved);
    assert!(told(again.changes_from(&config))?.is_empty());
    told(config.in_common())?;
    told(compose::check(&config))
}

#[test]
fn configs() {
    let _alone = alone();
    let text = fs::read_to_string(here("examples/gpt-text.toml")).expect("an example");
    let variables =
        "PIPEWRIGHT_MODEL__DIM=16\nRANK=0\nWORLD_SIZE=2\nMASTER_ADDR=localhost\nMASTER_PORT=29500";
    let sets =
        "pipeline.stages=2\ntrain.steps=3\noptimizer.lr=1e-3\ndata.path=a,b\nlaunch.address=10.0.0.1:1";
    let slurm =
        "SLURM_PROCID=1\nSLURM_NTASKS=2\nSLURM_JOB_NODELIST=a[1-2,7],b\nPIPEWRIGHT_TOKEN=secret secret";
    let slurm = format!("{slurm}\nSLURM_JOB_ID=7\nSLURM_STEP_ID=0\nJOB_COMPLETION_INDEX=1");
    let mut seeds = vec![
        [&text, variables, sets].join(PART).into_bytes(),
        [&text, &slurm, "model.kind=llama\nmodel.kv_heads=1"].join(PART).into_bytes(),
    ];
    for name in ["mnist", "lora-smollm2", "finetune-smollm2"] {
        seeds.push(contents(&here(&format!("examples/{name}.toml"))));
    }
    let full = Config::parse("built-in", &text, &[], &[]).and_then(|config| config.resolved_toml());
    seeds.push(full.expect("it is written").into_bytes());
    Target {
        name: "configs",
        seeds,
        words: "auto, model, lora, data, pipeline, optimizer, train, checkpoint, metrics, launch, \
                balanced, zb-2p, interleaved-1f1b, server, cuda:0, bf16, 4GiB, file:a.csv",
        inputs: 1500,
        bytes: 64 * MIB,
        blocks: 4_000_000,
    }
    .fuzz(read_config);
}

#[test]
fn schedules() {
    let _alone = alone();
    let named =
        |name: &str, ranks, micro_batches| Schedule::named(name, ranks, micro_batches).expect("it fits");
    let mut seeds = vec![
        contents(&here("examples/mine.csv")),
        contents(&here("examples/missing.csv")),
        contents(&here("examples/stuck.csv")),
    ];
    for (name, ranks, micro_batches) in
        [("1f1b", 2, 4), ("zb-2p", 3, 5), ("zb-v", 2, 4), ("interleaved-1f1b", 2, 4)]
    {
        let schedule = named(name, ranks, micro_batches);
        seeds.extend([schedule.csv().into_bytes(), schedule.csv_with_comms().into_bytes()]);
    }
    Target {
        name: "schedules",
        seeds,
        words: "0F0, 1B3, 0I1, 1W1, 0SEND_F0, 1RECV_F0, 0RECV_B0, 1SEND_B0, UNSHARD, OVERLAP_F_B, \
                0REDUCE_GRAD, (0F0;1B0), \n, 4294967295F4294967295, ,",
        inputs: 1500,
        bytes: 128 * MIB,
        blocks: 4_000_000,
    }
    .fuzz(|input| {
        let text = String::from_utf8_lossy(input);
        let read = |links| Schedule::from_csv("input", &text, None, links).map_err(|error| error.to_string());
        let _ = read(LinkKind::Buffered);
        let schedule = read(LinkKind::Ordered)?.schedule;
        let again = Schedule::from_csv("again", &schedule.csv_with_comms(), None, LinkKind::Ordered);
        let again = again.expect("what is written can be read").schedule;
        assert_eq!(again.csv_with_comms(), schedule.csv_with_comms());
        Ok(())
    });
}

/// A file of costs of two layers.
fn measured() -> Value {
    let layer = |name| {
        json!({
            "name": name, "forward": 1.0, "backward_input": 1.0, "backward_weight": 0.5, "backward": 1.5,
            "update": 0.1, "saved": 64.0, "shared": 0.0, "pending": 32.0, "output": 512.0
        })
    };
    json!({
        "version": 1,
        "settings": {"model.dim": "32", "model.kind": "gpt"},
        "machine": {"cores": "2"},
        "input": 512.0,
        "link": {"latency": 0.00001, "per_byte": 1e-10},
        "between": {"latency": 0.0001, "per_byte": 1e-9, "one_host": false},
        "add": 1e-10,
        "layers": [layer("h.0"), layer("h.1")]
    })
}

#[test]
fn costs() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("costs.json");
    Target {
        name: "costs",
        seeds: vec![format!("{:#}", measured()).into_bytes()],
        words: "layers, link, between, version, h.0, settings",
        inputs: 1500,
        bytes: 64 * MIB,
        blocks: 4_000_000,
    }
    .fuzz(|input| {
        write(&path, input);
        let measured = told(Measured::read(&path))?;
        write(&path, measured.to_json().as_bytes());
        let again = told(Measured::read(&path)).expect("what is written can be read");
        assert_eq!(again.to_json(), measured.to_json());
        told(measured.linked(&again.cluster(2))).map(|_| ())
    });
}

#[test]
fn costs_are_read_with_all_their_digits() {
    let _alone = alone();
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("costs.json");
    let mut costs = measured();
    costs["link"]["latency"] = json!(0.00009223372036854775);
    write(&path, costs.to_string().as_bytes());
    let link = Measured::read(&path).expect("it is whole").costs.link();
    assert_eq!(link.latency, 0.00009223372036854775);
}
