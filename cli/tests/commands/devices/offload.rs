//! What ranks on GPUs have on the host, in `plan` and `tune`.

use super::*;

#[test]
fn the_json_of_a_plan_has_copies_exactly_if_something_is_offloaded() {
    let machine = Machine::new();
    machine.write_config();
    let plan = |more: &[&str]| -> Value {
        let args = ["plan", "my.toml", "--device", "h100", "--format", "json"];
        let sets = [
            "model.dim=64",
            "model.heads=1",
            "pipeline.dtype=bf16",
            "pipeline.schedule=gpipe",
            "pipeline.micro_batches=8",
        ];
        let args = [&args[..], &set(&sets), &set(more)].concat();
        serde_json::from_str(&machine.run(&args).done().stdout()).unwrap()
    };
    let keys = ["offloaded", "copies", "waiting_for_copies"];
    let kept = plan(&[]);
    assert!(keys.iter().all(|key| kept.get(key).is_none()), "{kept}");
    let with = plan(&["pipeline.offload=1MiB"]);
    assert_eq!(with["offloaded"], serde_json::json!([6, 6]));
    for rank in 0..2 {
        let [copies, waiting] = ["copies", "waiting_for_copies"].map(|key| with[key][rank].as_f64().unwrap());
        assert!(copies > 0.0 && waiting <= copies, "{with}");
        let [on_host, kept] = [(&with, "offloaded"), (&kept, "activations")]
            .map(|(plan, part)| plan["memory"][rank][part].as_f64().unwrap());
        assert!(0.0 < on_host && on_host < kept, "{with}");
    }
}

/// What `tune` chooses if each layer keeps `saved` bytes, each of its passes takes a millisecond, and a rank
/// may hold less than the three layers of a stage keep of one micro-batch. Copies go at 25 GB/s.
fn chosen(machine: &Machine, mut costs: Value, saved: f64) -> String {
    for layer in costs["layers"].as_array_mut().unwrap() {
        for (key, cost) in [
            ("forward", 1e-3),
            ("backward_input", 1e-3),
            ("backward_weight", 1e-3),
            ("backward", 2e-3),
            ("update", 1e-6),
            ("saved", saved),
            ("pending", 0.0),
            ("output", 1e4),
        ] {
            layer[key] = cost.into();
        }
    }
    costs["host"] = 4e-11.into();
    machine.write("costs.json", costs.to_string());
    let memory = (2.5 * saved).to_string();
    let tune = ["tune", "my.toml", "--costs", "costs.json", "--ranks", "2"];
    let sets =
        set(&["pipeline.devices=cuda:0,cuda:1", "pipeline.micro_batches=8", "pipeline.offload=100GiB"]);
    let said = machine.run(&[&tune[..], &["--memory", &memory], &sets].concat()).done().stdout();
    said.lines().last().unwrap().to_owned()
}

#[test]
fn tune_offloads_where_copies_are_hidden_and_recomputes_where_they_are_slow() {
    let Some(machine) = emulated() else { return };
    machine.run(&["profile", "my.toml", "--set", "pipeline.devices=cuda:0"]).done();
    let costs = machine.text("costs.json");
    let costs: Value = serde_json::from_str(&costs).unwrap();
    let fast = chosen(&machine, costs.clone(), 1e6);
    assert!(fast.contains(", offload 100.00 GiB") && !fast.contains("recompute"), "{fast}");
    has(&chosen(&machine, costs, 1e9), &[", recompute full"]);
}

#[test]
fn tune_leaves_state_on_the_host_only_if_nothing_else_fits() {
    let machine = Machine::new();
    machine.write_config();
    let sizes = set(&["model.dim=1024", "model.heads=8", "model.layers=2"]);
    let tune = [&["tune", "my.toml", "--device", "h100", "--dtype", "bf16"][..], &sizes].concat();
    let with = |memory: &str| {
        machine.run(&[&tune[..], &["--device-memory", memory, "--out", "tuned.toml"]].concat())
    };
    let said = with("1KB").refused();
    let told = said.split_once("the least that was found is ").expect("it says so").1;
    let (least, setting) = told.split_once(" (").expect("its setting");
    let least = least.replace(' ', "");
    has(setting, &[", state on the host"]);
    let said = with(&least).done().stdout();
    has(&said, &["  state on host  ", ", state on the host", "; written to tuned.toml"]);
    has(&machine.text("tuned.toml"), &["state_on_host = true"]);
    fs::remove_file(machine.path("tuned.toml")).unwrap();
    let said = with("80GB").done().stdout();
    assert!(!said.contains("on host") && !said.contains("on the host"), "{said}");
    assert!(!machine.text("tuned.toml").contains("state_on_host = true"));
    // Without momentum there is no state.
    let plain = set(&["optimizer.kind=sgd", "optimizer.momentum=0"]);
    let said = machine.run(&[&tune[..], &["--device-memory", "1KB"], &plain].concat()).refused();
    assert!(!said.contains("on the host"), "{said}");
}

/// Costs of updates with the copies of state are for such a config alone. To others they are added.
#[test]
fn costs_say_whether_they_were_measured_with_state_on_the_host() {
    let Some(machine) = emulated() else { return };
    let on_gpu = set(&["pipeline.devices=cuda:0"]);
    let with = set(&["pipeline.devices=cuda:0", "optimizer.state_on_host=true"]);
    let plan = |sets: &[&str]| {
        let args = ["plan", "my.toml", "--set", "pipeline.costs=costs.json", "--format", "json"];
        machine.run(&[&args[..], sets].concat())
    };
    let step = |sets: &[&str]| -> f64 {
        let plan: Value = serde_json::from_str(&plan(sets).done().stdout()).unwrap();
        plan["step_with_barrier"].as_f64().unwrap()
    };
    machine.run(&[&["profile", "my.toml"][..], &on_gpu].concat()).done();
    let mut costs: Value = serde_json::from_str(&machine.text("costs.json")).unwrap();
    assert!(!machine.text("costs.json").contains("state_on_host"));
    // So slow that the copies show beside what was measured.
    costs["host"] = 1e-3.into();
    machine.write("costs.json", costs.to_string());
    assert!(step(&with) > step(&on_gpu) + 1.0, "{} {}", step(&with), step(&on_gpu));
    fs::remove_file(machine.path("costs.json")).unwrap();
    machine.run(&[&["profile", "my.toml"][..], &with].concat()).done();
    let mut costs: Value = serde_json::from_str(&machine.text("costs.json")).unwrap();
    costs["host"] = 1e-3.into();
    machine.write("costs.json", costs.to_string());
    assert!(step(&with) < 1.0, "they are not added again");
    has(&plan(&on_gpu).refused(), &["measured for other settings (optimizer.state_on_host"]);
}
