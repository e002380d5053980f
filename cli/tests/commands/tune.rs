use super::*;

const LAYERS: [&str; 6] = ["embed", "h.0.attn", "h.0.mlp", "h.1.attn", "h.1.mlp", "head"];

/// A place with measured costs in `costs.json`.
pub(super) fn measured() -> Place {
    let place = Place::new();
    let said = place.run(&["profile", "my.toml"]).done().stdout();
    assert!(said.ends_with("written to costs.json\n"), "{said}");
    place
}

/// Changes the costs in `costs.json`.
fn change(place: &Place, change: impl FnOnce(&mut serde_json::Value)) {
    let mut costs = costs(place);
    change(&mut costs);
    place.write("costs.json", costs.to_string());
}

fn costs(place: &Place) -> serde_json::Value {
    serde_json::from_str(&place.text("costs.json")).unwrap()
}

#[test]
fn a_profile_has_every_layer_and_is_what_plan_and_train_go_by() {
    let place = measured();
    let layers = costs(&place)["layers"].clone();
    let names: Vec<_> =
        layers.as_array().unwrap().iter().map(|layer| layer["name"].as_str().unwrap()).collect();
    assert_eq!(names, LAYERS);
    for layer in layers.as_array().unwrap() {
        assert!(layer["forward"].as_f64().unwrap() > 0.0, "{layer}");
        // A micro-batch has 2 rows of 16 tokens. Each token has 256 logits in the head, and 16 numbers
        // elsewhere.
        let width = if layer["name"] == "head" { 256 } else { 16 };
        assert_eq!(layer["output"].as_f64(), Some(f64::from(2 * 16 * width * 4)), "{layer}");
    }
    let plan = place.run(&["plan", "my.toml", "--costs", "costs.json", "--format", "json"]).done().stdout();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!((plan["schedule"].as_str(), plan["ranks"].as_u64()), (Some("1f1b"), Some(2)));
    assert!(plan["targets_per_second"].as_f64().unwrap() > 0.0);
    let said = place.run(&["train", "my.toml", "--set", "pipeline.costs=costs.json"]).done().stdout();
    let last = said.lines().last().unwrap();
    has(&said, &[" % by the costs of its layers\n"]);
    assert!(last.starts_with("predicted step ") && last.contains(" %; measured step "), "{said}");
    let peaks: Vec<f64> =
        plan["peak_memory"].as_array().unwrap().iter().map(|peak| peak.as_f64().unwrap()).collect();
    let lines = place.lines("runs/small");
    let held: Vec<f64> =
        lines[0]["peak_bytes"].as_array().unwrap().iter().map(|peak| peak.as_f64().unwrap()).collect();
    assert_eq!(peaks, held, "what the plan says is held, and what is");
}

#[test]
fn costs_change_how_a_model_is_cut_and_no_weight() {
    let place = measured();
    let hash = |sets: &[&str]| {
        let _ = fs::remove_dir_all(place.path("runs"));
        place.run(&[&["train", "my.toml", "--weights-hash"], sets].concat()).done().hash()
    };
    let plain = hash(&[]);
    change(&place, |costs| costs["layers"][0]["forward"] = 1.0.into());
    let plan = place.run(&["plan", "my.toml", "--costs", "costs.json"]).done().stdout();
    has(&plan, &["layers of each stage: 1, 5;"]);
    assert_eq!(hash(&["--set", "pipeline.costs=costs.json"]), plain);
}

#[test]
fn without_costs_plan_measures_and_train_goes_by_its_first_steps() {
    let place = Place::new();
    let plan = place.run(&["plan", "my.toml"]).done();
    assert_eq!(plan.stderr(), "measuring what each layer costs, since no file tells\n");
    has(&plan.stdout(), &[": predicted step "]);
    let plan = place.run(&["plan", "my.toml", "--format", "csv"]).done();
    assert_eq!(plan.stderr(), "", "an order has no times in it");
    assert_eq!(plan.stdout().lines().count(), 2);
    let said = place.run(&["train", "my.toml"]).done().stdout();
    has(&said, &[" % by the passes of the first steps\n"]);
    assert!(said.lines().last().unwrap().contains(" %; measured step "), "{said}");
}

/// Layers are measured with the shards of the config if each has a core, and a shard keeps what was measured.
#[test]
fn costs_are_those_of_a_shard() {
    let place = Place::new();
    let one = ["--set", "pipeline.stages=1", "--set", "pipeline.shard_groups=8"];
    let measured = |shards: &str| {
        let shards = format!("pipeline.shards={shards}");
        place.run(&[&["profile", "my.toml", "--set", &shards], &one[..]].concat()).done();
        costs(&place)
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let whole = measured("1");
    assert!(whole.get("shards").is_none(), "{whole}");
    let half = measured("2");
    let plan = |shards: &str| {
        let shards = format!("pipeline.shards={shards}");
        place.run(&[&["plan", "my.toml", "--costs", "costs.json", "--set", &shards], &one[..]].concat())
    };
    plan("2").done();
    if cores < 2 {
        assert_eq!(half.get("shards"), None);
        return;
    }
    assert_eq!(half["shards"]["count"], 2);
    assert!(half["shards"]["waits"].as_f64() > Some(0.0), "{half}");
    for (whole, half) in
        std::iter::zip(whole["layers"].as_array().unwrap(), half["layers"].as_array().unwrap())
    {
        let [whole, half] = [whole, half].map(|layer| layer["output"].as_f64().unwrap());
        assert_eq!(whole, 2.0 * half);
    }
    has(
        &plan("1").refused(),
        &["costs.json: measured with 2 shards of each rank, and there are now 1: measure again"],
    );
    change(&place, |costs| costs["shards"]["waits"] = (-1).into());
    has(&plan("2").refused(), &["costs.json: ", "waits of shards"]);
    change(&place, |costs| costs["shards"] = serde_json::json!({"count": 0, "waits": 0}));
    has(&plan("2").refused(), &["costs.json: costs of no shard"]);
}

#[test]
fn files_with_costs_that_do_not_fit_are_refused() {
    let place = measured();
    let whole = costs(&place);
    let plan = ["plan", "my.toml", "--costs", "costs.json"];
    let refused = |args: &[&str], part: &str| {
        let said = place.run(args).refused();
        assert!(said.starts_with("error: costs.json: ") && said.contains(part), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    refused(
        &[&plan[..], &["--set", "model.dim=32", "--set", "pipeline.micro_batch_size=4"]].concat(),
        "measured for other settings (model.dim 16, now 32; pipeline.micro_batch_size 2, now 4): measure \
         again with",
    );
    let wrong = |part: &str, with: &dyn Fn(&mut serde_json::Value)| {
        place.write("costs.json", whole.to_string());
        change(&place, |costs| with(costs));
        refused(&plan, part);
    };
    wrong("layer `h.0.mlp`: the cost forward is -1", &|costs| costs["layers"][2]["forward"] = (-1).into());
    wrong("layer `head`: saved: invalid type: null, expected f64: measure again", &|costs| {
        costs["layers"][5]["saved"] = serde_json::Value::Null;
    });
    wrong("layer `embed`: missing field `update`", &|costs| {
        costs["layers"][0].as_object_mut().unwrap().remove("update");
    });
    wrong("layer `h.1.attn` is missing", &|costs| {
        costs["layers"].as_array_mut().unwrap().remove(3);
    });
    wrong("costs of version 7", &|costs| costs["version"] = 7.into());
    wrong("missing field `link`", &|costs| {
        costs.as_object_mut().unwrap().remove("link");
    });
    wrong(
        "layer `head`: forwards: unknown field `forwards`, expected one of `name`, `forward`, ",
        &|costs| {
            costs["layers"][5]["forwards"] = 1.into();
        },
    );
    wrong("link: speed: unknown field `speed`", &|costs| costs["link"]["speed"] = 1.into());
    wrong("unit: unknown field `unit`", &|costs| costs["unit"] = "ms".into());
    wrong("all times of its layers are 0: measure again", &|costs| {
        for layer in costs["layers"].as_array_mut().unwrap() {
            for time in ["forward", "backward_input", "backward_weight", "backward", "update"] {
                layer[time] = 0.into();
            }
        }
    });
    place.write("costs.json", "{ \"version\": NaN }");
    refused(&plan, "JSON has no NaN and no Infinity");
    place.write("costs.json", "{ \"version\": 1");
    refused(&plan, "was it cut short or edited?");
    let said = place.run(&["plan", "my.toml", "--costs", "none.json"]).refused();
    assert!(said.starts_with("error: cannot read none.json: "), "{said}");
    let said = place.run(&["train", "my.toml", "--set", "pipeline.costs=none.json"]).refused();
    has(&said, &["cannot read none.json: "]);
    assert!(!place.path("runs").exists());
    has(&place.run(&["plan", "my.toml", "--ranks", "2"]).refused(), &["cannot be used with"]);
}

#[test]
fn costs_of_another_machine_are_used_with_a_warning() {
    let place = measured();
    change(&place, |costs| costs["machine"]["cpu"] = "an abacus".into());
    let run = place.run(&["plan", "my.toml", "--costs", "costs.json"]).done();
    let said = run.stderr();
    assert!(
        said.starts_with("warning: costs.json: measured under other conditions (cpu an abacus, now "),
        "{said}"
    );
}

#[test]
fn tune_finds_settings_of_the_same_batch_that_fit_and_train() {
    let place = Place::new();
    let text = place.text("my.toml");
    place.write("my.toml", text.replace("[pipeline]\n", "[pipeline]\n# how it is cut\n"));
    let tune = ["tune", "my.toml", "--ranks", "2", "--memory", "60KiB"];
    let said = place.run(&[&tune[..], &["--top", "2", "--out", "tuned.toml"]].concat()).done().stdout();
    let rows: Vec<Vec<&str>> = said
        .lines()
        .skip(1)
        .take_while(|line| line.trim_start().starts_with(|first: char| first.is_ascii_digit()))
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in &rows {
        let [micro_batches, size] = [5, 6].map(|column| row[column].parse::<u32>().unwrap());
        assert_eq!(micro_batches * size, 6, "{said}");
        assert!(row[13].parse::<f64>().unwrap() <= 60.0 / 1024.0 + 0.005, "{said}");
    }
    assert_eq!(rows.iter().filter(|row| row.len() == 17).count(), 2, "two were run\n{said}");
    has(&said, &[" more would need over 60.00 KiB on a rank\n"]);
    assert!(said.lines().last().unwrap().ends_with("; written to tuned.toml"), "{said}");
    let tuned = place.text("tuned.toml");
    has(&tuned, &["[pipeline]\n# how it is cut\n"]);
    has(&tuned, &["costs = \"tuned.costs.json\"\n"]);
    let run = place.run(&["train", "tuned.toml"]).done();
    let warned = run.stderr();
    assert!(!warned.contains("warning"), "its costs are those that it was tuned by: {warned}");
    let held = place.lines("runs/small")[0]["peak_bytes"].clone();
    for held in held.as_array().unwrap() {
        assert!(held.as_u64().unwrap() <= 60 * 1024, "{held}");
    }
}

#[test]
fn tune_says_the_least_memory_that_works_and_refuses_sizes_and_ranks_that_are_none() {
    let place = Place::new();
    let tune = ["tune", "my.toml", "--ranks", "1"];
    let said = place.run(&[&tune[..], &["--memory", "1KB"]].concat());
    assert_eq!(said.0.status.code(), Some(2));
    let (said, message) = (said.stdout(), said.stderr());
    assert_eq!(said, "");
    has(
        &message,
        &[
            "error: nothing fits into 1000 B on a rank: the least that works is ",
            " KiB (1f1b: ranks 1, stages each 1, micro-batches 6, rows 1): raise --memory",
        ],
    );
    for (option, value, part) in [
        ("--memory", "much", "expected a size above 0 such as 200MiB"),
        ("--memory", "-1MiB", "expected a size above 0 such as 200MiB"),
        ("--ranks", "0", "--ranks: 0 ranks cannot train"),
        ("--ranks", "7", "a model of 6 layers has stages for 6 ranks at most"),
    ] {
        has(&place.run(&["tune", "my.toml", &format!("{option}={value}")]).refused(), &[part]);
    }
}

#[test]
fn moments_are_stored_in_fewer_bits_only_if_nothing_else_fits() {
    let place = Place::new();
    let sizes = ["--set", "model.dim=64", "--set", "model.heads=1", "--set", "model.layers=1"];
    let tune = [&["tune", "my.toml", "--device", "h100", "--dtype", "bf16"][..], &sizes].concat();
    let least = |state: &str| {
        let set = format!("optimizer.state={state}");
        let args = [&tune[..], &["--device-memory", "1KB", "--set", &set]].concat();
        let said = place.run(&args).refused();
        let least = said.split("the least that was found is ").nth(1).expect("it says so");
        least.split(" (").next().unwrap().replace(' ', "")
    };
    for (state, tried) in [("f32", 0), ("bf16", 1), ("8bit", 2)] {
        let memory = least(state);
        let limit = ["--device-memory", &memory, "--out", "tuned.toml"];
        let found = place.run(&[&tune[..], &limit, &["--smaller-state"]].concat()).done();
        assert_eq!(found.stderr().matches("nothing fits: fewer bits are tried").count(), tried, "{state}");
        has(&place.text("tuned.toml"), &[&format!("state = \"{state}\"")]);
        let without = place.run(&[&tune[..], &limit[..2]].concat());
        assert_eq!(without.0.status.success(), tried == 0, "{state}");
        fs::remove_file(place.path("tuned.toml")).unwrap();
    }
    let lion = ["--smaller-state", "--set", "optimizer.kind=lion"];
    has(
        &place.run(&[&tune[..], &lion].concat()).refused(),
        &["optimizer.kind: only adamw has moments in fewer"],
    );
}

#[test]
fn what_cannot_be_tuned_or_written_is_refused_before_anything_is_measured() {
    let place = Place::new();
    let refused = |args: &[&str], part: &str| {
        let said = place.run(args).refused();
        assert!(said.starts_with(&format!("error: {part}")), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    };
    for command in ["tune", "profile"] {
        refused(
            &[command, "my.toml", "--out", "none/costs.json"],
            "--out none/costs.json: there is no folder none: make it",
        );
        refused(&[command, "my.toml", "--out", "."], "--out .: this is a folder");
        // In /proc no process may write, not even as root.
        refused(
            &[command, "my.toml", "--out", "/proc/costs.json"],
            "--out /proc/costs.json: cannot be written: ",
        );
    }
    let each = "pipeline.recompute=[\"none\", \"full\"]";
    for command in ["tune", "profile", "plan"] {
        refused(
            &[command, "my.toml", "--set", each],
            "--set: pipeline.recompute: costs are for stages that all recompute the same",
        );
    }
    for [option, value] in [["--devices", "1000000"], ["--replicas", "7"]] {
        refused(
            &["tune", "my.toml", option, value],
            "nothing fits: no schedule works with these numbers: take at most 6 ranks, one for each \
             layer, and at most 6 replicas, one for each micro-batch",
        );
    }
}

#[test]
fn tune_compares_shards_and_says_whether_they_pay() {
    let place = Place::new();
    let tune = ["tune", "my.toml", "--ranks", "1", "--shards", "1,2", "--top", "0", "--out", "tuned.toml"];
    let said = place.run(&tune).done().stdout();
    let pays = "shards: the fastest setting with 2 is predicted ";
    has(
        &said,
        &["ranks  shards  schedule", pays, " than the fastest with 1: a shard waits ", " instead of "],
    );
    for (args, part) in [
        (&["--shards", "3"][..], "3 shard groups are no power of two"),
        (&["--shards", "8"], "h.0.attn"),
        (&["--shards", "2", "--devices", "3"], "--shards: no given number divides 3 devices"),
        (&["--shards", "2", "--set", "optimizer.kind=muon"], "update whole parameters only"),
    ] {
        has(&place.run(&[&["tune", "my.toml"], args].concat()).refused(), &[part]);
    }
}

/// The ranks, the shards and the bubble in percent of each row, where the command has one core.
fn rows_on_one_core(place: &Place, args: &[&str]) -> Vec<[f64; 3]> {
    let command = place.command(&[&["tune", "my.toml", "--shards", "1,2", "--top", "0"], args].concat());
    let mut shell = Command::new("sh");
    let first =
        "core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//'); exec taskset -c \"$core\" \"$0\" \"$@\"";
    shell.args(["-c", first]).arg(command.get_program()).args(command.get_args());
    let output = shell.current_dir(place.0.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let of_row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let percent = words.iter().position(|word| *word == "%")?;
        let number = |at: usize| words[at].parse().ok();
        words[0].ends_with('.').then_some(())?;
        Some([number(2)?, number(3)?, number(percent - 1)?])
    };
    text.lines().filter_map(of_row).collect()
}

#[test]
fn tune_takes_threads_that_share_a_core_as_such() {
    let place = Place::new();
    let rows = rows_on_one_core(&place, &[]);
    assert!(rows.iter().any(|[_, shards, _]| *shards == 2.0), "{rows:?}");
    assert!(rows.iter().all(|[ranks, ..]| *ranks == 1.0), "by itself it tries no more ranks: {rows:?}");
    let rows = rows_on_one_core(&place, &["--ranks", "1,2", "--replicas", "1,2"]);
    assert!(rows.iter().any(|[ranks, ..]| *ranks == 2.0), "{rows:?}");
    for [ranks, shards, bubble] in rows {
        let idle = 100.0 * (1.0 - 1.0 / (ranks * shards));
        assert!(bubble >= idle - 0.1, "{ranks} ranks of {shards} shards on one core: {bubble} %");
    }
}

/// The weights of a shard, and what it keeps, are a part; the time is predicted by the same costs.
#[test]
fn a_plan_with_shards_is_of_one_of_them() {
    let place = measured();
    let plan = |shards: &str| {
        let shards = format!("pipeline.shards={shards}");
        let plan = ["plan", "my.toml", "--costs", "costs.json", "--format", "json"];
        let args = [&plan[..], &["--set", "pipeline.stages=1", "--set", &shards]].concat();
        let plan: serde_json::Value = serde_json::from_str(&place.run(&args).done().stdout()).unwrap();
        let first = |key: &str| plan[key][0].as_f64().unwrap();
        [
            plan["step_with_barrier"].as_f64().unwrap(),
            first("peak_memory"),
            plan["memory"][0]["weights"].as_f64().unwrap(),
        ]
    };
    let ([step, peak, weights], [with, own_peak, own_weights]) = (plan("1"), plan("2"));
    assert!(with > step / 2.0, "{with} s with messages, {step} s without");
    assert_eq!((own_peak, own_weights), (peak / 2.0, weights / 2.0));
    let args = ["plan", "my.toml", "--set", "pipeline.shards=2", "--set", "model.heads=1"];
    has(&place.run(&args).refused(), &["pipeline.shards", "h.0.attn"]);
}

#[test]
fn devices_with_more_memory_than_this_machine_are_other_ones() {
    let place = Place::new();
    let tune = ["tune", "my.toml", "--devices", "2", "--device-memory", "30MiB"];
    let mut command = place.command(&tune);
    let said = Run(command.env("PIPEWRIGHT_MEMORY", "40MiB").output().unwrap()).done();
    let (table, told) = (said.stdout(), said.stderr());
    has(&told, &["2 devices with 30.00 MiB each have more memory than this machine"]);
    assert!(table.contains("chosen: ") && !told.contains("running"), "{table}{told}");
}

#[test]
fn a_tuned_config_keeps_comments_order_and_what_is_not_about_speed() {
    let place = Place::new();
    let text = place.text("my.toml");
    let given = "[pipeline] # the cut\n# rows of a step\nbatch_size = 6\n  # how many\n\
                 micro_batches = 3 # of them\npin = false\n";
    let text = text.replace("[pipeline]\nmicro_batches = 3\nmicro_batch_size = 2\n", given);
    place.write("my.toml", &text);
    let tune = ["tune", "my.toml", "--ranks", "1", "--top", "0", "--memory", "1GiB", "--out", "tuned.toml"];
    place.run(&tune).done();
    let tuned = place.text("tuned.toml");
    let (before, after) = tuned.split_once("micro_batches = ").unwrap();
    assert!(before.ends_with("[pipeline] # the cut\n# rows of a step\n  # how many\n"), "{tuned}");
    let (number, after) = after.split_once(' ').unwrap();
    number.parse::<u32>().unwrap();
    assert!(after.starts_with("# of them\npin = false\n"), "{tuned}");
    let rest = |text: &str| text.split_once("\n[train]").unwrap().1.to_owned();
    assert_eq!(rest(&tuned), rest(&text));
    place.run(&["train", "tuned.toml"]).done();
}
