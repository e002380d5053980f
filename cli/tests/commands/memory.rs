//! What the commands do where there is too little memory.

use super::*;

/// Runs a command that may take so much memory.
fn within(place: &Place, memory: &str, args: &[&str]) -> Run {
    let mut command = place.command(args);
    Run(command.env("PIPEWRIGHT_MEMORY", memory).output().unwrap())
}

/// Bytes of each rank, by the JSON of a plan.
fn memory_of(plan: &str) -> Vec<[f64; 7]> {
    let plan: serde_json::Value = serde_json::from_str(plan).unwrap();
    let ranks = plan["memory"].as_array().unwrap().iter();
    let parts = ["weights", "gradients", "optimizer", "copies", "activations", "buffers", "all"];
    ranks.map(|rank| parts.map(|part| rank[part].as_f64().unwrap())).collect()
}

#[test]
fn plan_warns_and_train_refuses_in_every_format_with_costs_and_without() {
    let place = Place::new();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    let needs = "training needs about ";
    let limit = " of memory, and PIPEWRIGHT_MEMORY allows 10.00 KiB: ";
    for command in ["train", "profile"] {
        has(&within(&place, "10KiB", &[command, "my.toml"]).refused(), &[needs, limit]);
    }
    assert!(!place.path("runs").exists());
    for costs in [&[][..], &["--costs", "costs.json"]] {
        for format in ["table", "csv", "json", "svg"] {
            let plan = [&["plan", "my.toml", "--format", format], costs].concat();
            let run = within(&place, "10KiB", &plan).done();
            let said = run.stderr();
            assert!(
                said.starts_with("warning: my.toml:") || said.starts_with("warning: pipeline."),
                "{said}"
            );
            assert!(said.contains(needs) && said.contains(limit), "{plan:?}: {said}");
            let enough = within(&place, "1GiB", &plan).done();
            assert!(!enough.stderr().contains("warning"), "{}", enough.stderr());
            if format == "csv" {
                assert_eq!(run.stdout(), enough.stdout());
            }
            if format == "json" {
                assert_eq!(memory_of(&run.stdout()), memory_of(&enough.stdout()));
            }
        }
    }
    let plan = within(&place, "10KiB", &["plan", "my.toml"]).done();
    let (said, told) = (plan.stdout(), plan.stderr());
    assert!(
        said.starts_with("my.toml: not measured, every pass takes the time 1\n")
            && said.contains("memory        weights "),
        "{said}"
    );
    has(&told, &["warning: the costs of layers are not measured"]);
}

#[test]
fn the_json_of_a_plan_has_the_memory_that_its_table_and_train_show() {
    let place = Place::new();
    let plan = place.run(&["plan", "my.toml", "--format", "json"]).done().stdout();
    let ranks = memory_of(&plan);
    let train = place.run(&["train", "my.toml", "--steps", "1"]).done().stdout();
    let shown: Vec<&str> = train.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(ranks.len(), shown.len());
    for (parts, shown) in ranks.iter().zip(shown) {
        let [all, sum] = [parts[6], parts[..6].iter().sum()];
        assert!((all - sum).abs() < 1.0, "{parts:?}");
        assert!(shown.ends_with(&format!(" {:.2} KiB", all / 1024.0)), "{all} {shown}");
    }
    let options = ["--ranks", "2", "--micro-batches", "2", "--schedule", "1f1b"];
    let plan = [&["plan"][..], &options, &["--format", "json"]].concat();
    assert!(!place.run(&plan).done().stdout().contains("\"memory\""));
}

#[test]
fn a_run_that_would_fit_without_copies_for_checkpoints_says_so() {
    let place = Place::new();
    let all = |set: &str| -> f64 {
        let plan = ["plan", "my.toml", "--format", "json", "--set", set];
        memory_of(&place.run(&plan).done().stdout()).iter().map(|rank| rank[6]).sum()
    };
    let whole = "checkpoint.beside=false";
    let (with, without) = (all("checkpoint.beside=true"), all(whole));
    assert_eq!(all("train.steps=1"), without, "no step follows a checkpoint");
    let two = ["optimizer.kind=sgd", "pipeline.replicas=2"].map(|set| {
        let plan = ["plan", "my.toml", "--format", "json", "--set", set];
        memory_of(&place.run(&plan).done().stdout())
    });
    for [weights, _, optimizer, copies, ..] in two.into_iter().flatten() {
        assert_eq!(copies, weights + optimizer);
    }
    let between = format!("{}", ((with + without) / 2.0) as u64);
    let said = within(&place, &between, &["train", "my.toml"]).refused();
    for part in [
        "checkpoint.beside: training needs about ",
        " for copies from which checkpoints are written; set it to false",
    ] {
        has(&said, &[part]);
    }
    within(&place, &between, &["train", "my.toml", "--set", whole]).done();
}

#[test]
fn tune_runs_nothing_that_does_not_fit() {
    let place = Place::new();
    let needed = |schedule: &str| -> f64 {
        let set = format!("pipeline.schedule={schedule}");
        let plan = ["plan", "my.toml", "--format", "json", "--set", &set];
        let plan = place.run(&plan).done().stdout();
        memory_of(&plan).iter().map(|rank| rank[6]).sum()
    };
    let (small, large) = (needed("zb-h1"), needed("gpipe"));
    assert!(small < large);
    let between = format!("{}", ((small + large) / 2.0) as u64);
    let tune = ["tune", "my.toml", "--ranks", "2", "--top", "1"];
    let run = within(&place, &between, &tune).done();
    let (said, table) = (run.stderr(), run.stdout());
    let left_out = "left out gpipe: ranks 2, stages each 1, micro-batches 3, rows 2: ";
    let line = said.lines().find(|line| line.starts_with(left_out)).unwrap_or_else(|| panic!("{said}"));
    has(&line, &[" of memory, and PIPEWRIGHT_MEMORY allows "]);
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let listed = rows.filter(|row| row.get(2) == Some(&"gpipe") && row.get(4) == Some(&"3"));
    assert_eq!(listed.count(), 0, "{table}");
}

#[test]
fn a_memory_that_is_no_size_is_refused() {
    let said = within(&Place::new(), "lots", &["train", "my.toml"]).refused();
    assert_eq!(
        said,
        "error: PIPEWRIGHT_MEMORY is `lots`: expected a size above 0 such as 200MiB, 1.5GiB or 1000000\n"
    );
}

#[test]
fn a_cut_that_needs_more_memory_than_there_is_is_refused_and_the_run_goes_on() {
    let place = Place::new();
    let partitions = [r#"[["embed"], ["h.0", "h.1", "head"]]"#, r#"[["embed", "h.0", "h.1"], ["head"]]"#];
    let sets = partitions.map(|partition| format!("pipeline.partition={partition}"));
    let [few, many] = sets.each_ref().map(|set| {
        let plan = place.run(&["plan", "my.toml", "--format", "json", "--set", set]).done().stdout();
        memory_of(&plan).iter().map(|rank| rank[6]).sum::<f64>()
    });
    assert!(few < many, "the first rank keeps more micro-batches: {few} {many}");
    let enough = format!("{}", (few + many) as u64 / 2);
    let running = place.start_as(&["--set", &sets[0]], |command| {
        let mut same = Command::new(command.get_program());
        same.current_dir(place.0.path()).args(command.get_args()).env("PIPEWRIGHT_MEMORY", &enough);
        same
    });
    let said = place.run(&["replan", "runs/small", "5,1"]).refused();
    has(&said, &["training needs about ", "PIPEWRIGHT_MEMORY allows "]);
    let steps = place.steps("runs/small").len();
    wait_until(|| place.steps("runs/small").len() > steps);
    running.signal("-INT");
    running.end();
}
