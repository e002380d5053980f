//! Another cut of a model while it is trained, through the commands.

use super::*;

/// The hash after as many steps as `runs/small` has, of a run that nobody disturbs.
fn undisturbed(place: &Place, sets: &[&str]) -> String {
    let steps = place.steps("runs/small").len().to_string();
    let args = ["train", "my.toml", "--run-dir", "runs/other", "--steps", &steps, "--weights-hash"];
    let usual = set(&["train.steps=1000000", "train.validate_every=0"]);
    place.run(&[&args[..], &usual, &set(sets)].concat()).done().hash().to_owned()
}

#[test]
fn a_live_run_is_cut_elsewhere_and_its_weights_are_the_same() {
    let place = Place::new();
    let running = place.start(&["--weights-hash"]);
    let listed = place.run(&["replan", "runs/small"]).done().stdout();
    assert_eq!(
        listed,
        "runs/small: 6 layers by schedule 1f1b\n\
         stage 0, 4 layers: embed, h.0.attn, h.0.mlp, h.1.attn\n\
         stage 1, 2 layers: h.1.mlp, head\n"
    );
    for (layers, said) in [
        ("1,5", "the stages have 1, 5 layers instead of "),
        ("4,2", "have 4, 2 layers instead of 1, 5, as asked"),
    ] {
        let done = place.run(&["replan", "runs/small", layers]).done().stdout();
        assert!(done.starts_with("cut anew after ") && done.contains(said), "{done}");
    }
    for (layers, said) in [
        ("3,2", "3 + 2 layers are 5, and the model has 6"),
        ("2,2,2", "schedule 1f1b has 1 stage on each of 2 ranks: 3 stages would not fit"),
        ("6,0", "stage 1 would have no layer: each needs 1 or more"),
        ("18446744073709551615,7", "18446744073709551615 + 7 layers are 18446744073709551622, and the model"),
    ] {
        let refused = place.run(&["replan", "runs/small", layers]).refused();
        assert!(refused.contains(said), "{refused}");
    }
    let refused = place.run(&["replan", "runs/small", "4,2"]).refused();
    assert_eq!(refused, "error: runs/small: nothing would be other than now\n");
    running.signal("-INT");
    let ended = running.end();
    assert_eq!(undisturbed(&place, &[]), ended.hash());
    has(&ended.stdout(), &["cut anew after "]);

    let said = place.run(&["replan", "runs/small", "1,5"]).refused();
    has(&said, &["no process trains in runs/small: begin with another cut, by --set pipeline.partition="]);
    has(&said, &["or another pipeline.schedule"]);
    let listed = place.run(&["replan", "runs/small"]).done().stdout();
    has(&listed, &["runs/small: 6 layers: embed, h.0.attn, ", "head\nno process trains there\n"]);
    let said = place.run(&["replan", "runs/nothing", "1,5"]).refused();
    has(&said, &["there is no run in runs/nothing"]);
    place.run(&["report", "runs/small"]).done();
    let page = place.text("runs/small/report.html");
    has(&page, &["Cuts of the model", "the stages have 4, 2 layers instead of 1, 5, as asked"]);
    place.run(&["report", "runs/other"]).done();
    assert!(!place.text("runs/other/report.html").contains("Cuts of the model"));
}

#[test]
fn a_live_run_goes_on_by_other_schedules_and_its_weights_are_the_same() {
    let place = Place::new();
    let running = place.start(&["--weights-hash"]);
    for (args, said) in [
        (&["--schedule", "zb-h1"][..], "changed after "),
        // The schedule has four stages: estimates say how many layers each gets.
        (&["--schedule", "zb-v"], "the schedule is zb-v instead of zb-h1 and the stages have "),
        (&["2,1,1,2"], "cut anew after "),
        (&["--recompute", "full"], ": the stages recompute everything, as asked"),
        (
            &["1,5", "--schedule", "gpipe"],
            "the schedule is gpipe instead of zb-v and the stages have 1, 5 layers",
        ),
        (&["--recompute", "none"], ": the stages recompute nothing, as asked"),
        (
            &["3,3", "--schedule", "1f1b", "--recompute", "cheap"],
            "1f1b instead of gpipe, the stages recompute what is cheap and the stages have 3, 3 layers",
        ),
    ] {
        let done = place.run(&[&["replan", "runs/small"], args].concat()).done().stdout();
        assert!(done.contains(said), "{args:?}: {done}");
    }
    for (args, said) in [
        (&["--schedule", "zb-w"][..], "there is no schedule \"zb-w\", did you mean zb-v?"),
        (&["1,2,2,1"], "schedule 1f1b has 1 stage on each of 2 ranks: 4 stages would not fit"),
        (
            &["6", "--schedule", "zb-v"],
            "schedule zb-v has 2 stages on each of 2 ranks: 1 stage would not fit",
        ),
        (&["3,3", "--schedule", "zb-w"], "there is no schedule \"zb-w\", did you mean zb-v?"),
        (&["--schedule", "auto"], "there is no schedule \"auto\""),
        (&["--recompute", "cheap"], "nothing would be other than now"),
        (&["--recompute", "all"], "invalid value 'all' for '--recompute <WHAT>'"),
    ] {
        let refused = place.run(&[&["replan", "runs/small"], args].concat()).refused();
        assert!(refused.contains(said), "{args:?}: {refused}");
    }
    let listed = place.run(&["replan", "runs/small"]).done().stdout();
    has(&listed, &["runs/small: 6 layers by schedule 1f1b\nstage 0, 3 layers: embed, "]);
    running.signal("-INT");
    let ended = running.end();
    assert_eq!(undisturbed(&place, &[]), ended.hash());
    place.run(&["report", "runs/small"]).done();
    has(&place.text("runs/small/report.html"), &["the schedule is zb-h1 instead of 1f1b, as asked"]);
}

/// With measured costs a run may change its schedule. Times differ, so it may also find none that is faster.
#[test]
fn a_run_that_knows_its_costs_has_the_same_weights_whatever_schedule_it_finds() {
    let place = Place::new();
    place.run(&["profile", "my.toml"]).done();
    let run = |name: &str, sets: &[&str]| {
        let folder = format!("runs/{name}");
        let args = ["train", "my.toml", "--weights-hash", "--steps", "60", "--run-dir", &folder];
        let sets =
            [&["train.steps=60", "pipeline.costs=costs.json", "pipeline.schedule=gpipe"], sets].concat();
        place.run(&[&args, &set(&sets)[..]].concat()).done().hash()
    };
    let expected = run("kept", &[]);
    assert_eq!(run("auto", &["pipeline.replan=auto"]), expected);
    assert_eq!(run("limited", &["pipeline.replan=auto", "pipeline.memory=1GiB"]), expected);
}

#[test]
fn a_run_without_a_barrier_is_cut_elsewhere_and_ended_with_the_same_weights() {
    let place = Place::new();
    let sets = ["pipeline.schedule=zb-2p", "optimizer.clip=0.0"];
    let without = [&set(&sets)[..], &set(&["pipeline.barrier=false"])].concat();
    let running = place.start(&[&["--weights-hash"][..], &without].concat());
    let done = place.run(&["replan", "runs/small", "1,5"]).done().stdout();
    assert!(done.starts_with("cut anew after ") && done.contains("have 1, 5 layers"), "{done}");
    running.signal("-INT");
    let ended = running.end();
    assert_eq!(undisturbed(&place, &sets), ended.hash());
}

#[test]
fn a_run_that_replans_by_itself_has_the_weights_of_one_that_does_not() {
    let place = Place::new();
    let run = |name: &str, sets: &[&str]| {
        let folder = format!("runs/{name}");
        let args = ["train", "my.toml", "--weights-hash", "--steps", "60", "--run-dir", &folder];
        place.run(&[&args, &set(sets)[..]].concat()).done().hash()
    };
    let sets = ["train.steps=60", "pipeline.partition=[[\"embed\"], [\"h.0\", \"h.1\", \"head\"]]"];
    let expected = run("kept", &sets);
    assert_eq!(run("auto", &[&sets[..], &["pipeline.replan=auto"]].concat()), expected);
}

#[test]
fn what_cannot_be_cut_elsewhere_is_refused_by_its_key() {
    let place = Place::new();
    for (sets, expected) in [
        (
            &["pipeline.replicas=2", "pipeline.sync=server", "pipeline.max_staleness=1"][..],
            "pipeline.replan: weights that may be stale differ between replicas",
        ),
        (&["pipeline.devices=cpu,cuda:0"], "pipeline.replan: a layer has other bits on a GPU"),
        (&["pipeline.replan=on"], "pipeline.replan"),
    ] {
        let sets = [&["pipeline.replan=auto"], sets].concat();
        let said = place.run_with(&["train", "my.toml"], &sets).refused();
        assert!(said.contains(expected), "{sets:?}: {said}");
    }
}

/// By costs, and by what the config allows: gpipe holds all micro-batches, and 1f1b at most two.
#[test]
fn what_would_hold_more_than_the_config_allows_is_refused() {
    let place = Place::new();
    place.run(&["profile", "my.toml"]).done();
    let sets = ["pipeline.costs=costs.json", "pipeline.micro_batches=8", "pipeline.schedule=1f1b"];
    let plan = place.run_with(&["plan", "my.toml", "--format", "json"], &sets).done().stdout();
    let held = |plan: &str| {
        let plan: serde_json::Value = serde_json::from_str(plan).unwrap();
        let ranks = plan["peak_memory"].as_array().unwrap().iter();
        ranks.map(|bytes| bytes.as_f64().unwrap()).fold(0.0, f64::max)
    };
    let limit = format!("pipeline.memory={}", (1.05 * held(&plan)) as u64);
    let running = place.start(&set(&[&sets[..], &[&limit]].concat()));
    let said = place.run(&["replan", "runs/small", "--schedule", "gpipe"]).refused();
    has(&said, &["a rank would hold ", "for later backwards, and pipeline.memory allows "]);
    // Stages that keep only their inputs hold less.
    let done = place.run(&["replan", "runs/small", "--schedule", "gpipe", "--recompute", "full"]).done();
    has(&done.stdout(), &["the schedule is gpipe instead of 1f1b and the stages recompute everything"]);
    let said = place.run(&["replan", "runs/small", "--recompute", "cheap"]).refused();
    has(&said, &["a rank would hold "]);
    // Costs that were measured with another recomputation do not say what a rank would hold.
    let said = place.run(&["replan", "runs/small", "--recompute", "none"]).refused();
    has(
        &said,
        &["it is not known whether a rank would hold more than pipeline.memory allows (", "recompute"],
    );
    running.signal("-INT");
    running.end();
}

#[test]
fn a_run_by_a_schedule_in_a_file_goes_on_by_a_named_one_and_back() {
    let place = Place::new();
    let csv = place.run(&["plan", "my.toml", "--format", "csv"]).done().stdout();
    place.write("own.csv", &csv);
    let running = place.start(&set(&["pipeline.schedule=file:own.csv", "pipeline.gradient_groups=2"]));
    for (args, said) in [
        (&["--schedule", "zb-v"][..], "the schedule is zb-v instead of file:own.csv and the stages have "),
        (
            &["--schedule", "file:own.csv"],
            "the schedule is file:own.csv instead of zb-v and the stages have ",
        ),
        (
            &["--replicas", "2", "--schedule", "1f1b"],
            "the run has 2 replicas instead of 1, the schedule is 1f1b",
        ),
    ] {
        let done = place.run(&[&["replan", "runs/small"], args].concat()).done().stdout();
        assert!(done.contains(said), "{args:?}: {done}");
    }
    // It is for the ranks of a replica at launch.
    let said = place.run(&["replan", "runs/small", "--schedule", "file:own.csv"]).refused();
    has(
        &said,
        &["schedule file:own.csv was made for the replicas and ranks at launch: take a schedule with a"],
    );
    running.signal("-INT");
    running.end();
}

#[test]
fn of_several_questions_at_once_each_has_an_answer() {
    let place = Place::new();
    let running = place.start(&[]);
    for _ in 0..4 {
        let ask = |layers| Running::new(place.command(&["replan", "runs/small", layers]));
        for asked in ["1,5", "4,2", "2,4", "3,3"].map(ask) {
            let ended = asked.end();
            let all = [ended.stdout(), ended.stderr()].concat();
            let answers =
                ["cut anew after ", "somebody asks for another cut already", "nothing would be other"];
            assert!(answers.iter().any(|answer| all.contains(answer)), "{all}");
        }
    }
    running.signal("-INT");
    running.end();
}

#[test]
fn a_question_is_taken_back_by_ctrl_c() {
    let place = Place::new();
    let running = place.start(&[]);
    running.signal("-STOP");
    let asked = Running::new(place.command(&["replan", "runs/small", "1,5"]));
    let question = place.path("runs/small/replan.json");
    wait_until(|| question.exists());
    asked.signal("-INT");
    let asked = asked.end();
    assert_eq!(asked.0.status.code(), Some(130));
    has(&asked.stderr(), &["the question is taken back"]);
    assert!(!question.exists());
    running.signal("-CONT");
    running.signal("-INT");
    running.end();
    assert!(!place.text("runs/small/history.jsonl").contains("cut anew"));
}

#[test]
fn a_live_run_gets_other_shapes_and_its_weights_are_the_same() {
    let place = Place::new();
    let groups = [
        "pipeline.stages=4",
        "pipeline.gradient_groups=4",
        "pipeline.shard_groups=2",
        "pipeline.micro_batches=4",
    ];
    let running = place.start(&[&["--weights-hash"][..], &set(&groups)].concat());
    let replan = |args: &[&str]| place.run(&[&["replan", "runs/small"], args].concat());
    let trains = |steps| {
        let done = place.steps("runs/small").len();
        wait_until(|| place.steps("runs/small").len() > done + steps);
    };
    // Enough steps before it and after it, to say what it has brought.
    trains(10);
    let done = replan(&["--replicas", "2"]).done().stdout();
    has(&done, &["the run has 2 replicas instead of 1 and the stages have "]);
    trains(14);
    for (args, said) in [
        (
            &["--shards", "2"][..],
            "a rank has 2 shards instead of 1 and the only stage has all 6 layers instead of ",
        ),
        (
            &["--replicas", "4", "--shards", "1"],
            "has 4 replicas instead of 2 and a rank has 1 shard instead of 2",
        ),
        (
            &["2,1,1,2", "--replicas", "1", "--schedule", "zb-h1"],
            "1 replica instead of 4, the schedule is zb-h1 instead of 1f1b and the stages have 2, 1, 1, 2",
        ),
        // Two stages a rank.
        (
            &["--replicas", "2", "--schedule", "zb-v"],
            "2 replicas instead of 1 and the schedule is zb-v instead",
        ),
        (&["--shards", "2"], "a rank has 2 shards instead of 1 and the stages have "),
        (
            &["3,3", "--shards", "1", "--schedule", "1f1b", "--recompute", "full"],
            "a rank has 1 shard instead of 2",
        ),
    ] {
        let done = replan(args).done().stdout();
        assert!(done.contains(said), "{args:?}: {done}");
    }
    for (args, said) in [
        (&["--replicas", "3"][..], "4 ranks cannot be divided into 3 replicas with 1 shard a rank"),
        (&["--replicas", "0"], "the numbers of replicas and shards are 1 or more"),
        (
            &["--replicas", "4294967295", "--shards", "4294967295"],
            "4 ranks cannot be divided into 4294967295 replicas",
        ),
        (
            &["--replicas", "1", "--shards", "4"],
            "4 shards cannot share 2 shard groups, because a shard has whole",
        ),
        (
            &["--replicas", "1", "--shards", "1", "--schedule", "zb-v"],
            "schedule zb-v needs 8 stages, 2 on each of 4 ranks, and the model has 6 layers",
        ),
        (&["--replicas", "-1"], "unexpected argument '-1'"),
        (
            &["2,2,2", "--replicas", "4"],
            "schedule 1f1b has 1 stage on each of 1 rank: 3 stages would not fit",
        ),
        (&["--replicas", "2"], "nothing would be other than now"),
    ] {
        let refused = replan(args).refused();
        assert!(refused.contains(said), "{args:?}: {refused}");
    }
    let listed = replan(&[]).done().stdout();
    has(&listed, &["runs/small: 6 layers by schedule 1f1b, 2 replicas\nstage 0, 3 layers: embed, "]);
    has(
        &listed,
        &["\npossible with its groups: 1 replica of 4 ranks; 1 replica of 2 ranks of 2 shards; 2 replicas"],
    );
    trains(5);
    running.signal("-INT");
    let ended = running.end();
    assert_eq!(undisturbed(&place, &groups), ended.hash());
    has(&ended.stdout(), &["\nwith the new cut a step takes ", "; before it took "]);
    // The page names the ranks as they are now, and counts them since then.
    place.run(&["report", "runs/small"]).done();
    let page = place.text("runs/small/report.html");
    has(
        &page,
        &["replica 1, rank 1", "share of the steps (%) since step ", "the run has 2 replicas instead of 1"],
    );
    assert!(!page.contains("rank 1, shard 1"));
    // A run that is resumed has the shape of its config again.
    let steps = place.steps("runs/small").len();
    let until = (steps + 3).to_string();
    let resumed = ["train", "my.toml", "--run-dir", "runs/small", "--resume", "--steps", &until];
    let resumed =
        place.run(&[&resumed[..], &set(&groups), &set(&["train.validate_every=0"])].concat()).done();
    let said = [resumed.stdout(), resumed.stderr()].concat();
    has(&said, &["begins with the cut of its config (schedule 1f1b, stages of "]);
    has(
        &said,
        &["), and ended with another one (schedule 1f1b, stages of 3, 3 layers, 2 replicas, 1 shard a rank)"],
    );
    place.run(&["report", "runs/small"]).done();
    let page = place.text("runs/small/report.html");
    has(&page, &[&format!("share of the steps (%) since step {steps}"), "rank 3"]);
    assert!(!page.contains("replica 1, rank 1"));
}

/// Costs of other shards say nothing, and then nobody knows whether the limit is kept.
#[test]
fn a_limit_that_cannot_be_looked_at_in_another_shape_is_no_less_a_limit() {
    let place = Place::new();
    place.run(&["profile", "my.toml"]).done();
    let sets = ["pipeline.costs=costs.json", "pipeline.memory=1GiB", "pipeline.gradient_groups=2"];
    let running = place.start(&set(&sets));
    let done = place.run(&["replan", "runs/small", "--replicas", "2"]).done().stdout();
    has(&done, &["the run has 2 replicas instead of 1"]);
    place.run(&["replan", "runs/small", "--replicas", "1"]).done();
    fs::remove_file(place.path("costs.json")).unwrap();
    let said = place.run(&["replan", "runs/small", "--replicas", "2"]).refused();
    has(&said, &["costs.json"]);
    running.signal("-INT");
    running.end();
}

/// The groups at launch bound what is possible.
#[test]
fn a_run_without_more_groups_cannot_have_more_replicas_or_shards() {
    let place = Place::new();
    let running = place.start(&[]);
    for (args, said) in [
        (&["--replicas", "2"], "2 replicas cannot share 1 gradient group, because a replica has"),
        (&["--shards", "2"], "2 shards cannot share 1 shard group, because a shard has whole"),
    ] {
        let refused = place.run(&[&["replan", "runs/small"][..], args].concat()).refused();
        has(&refused, &[said, "begin the run with pipeline."]);
    }
    running.signal("-INT");
    running.end();
}

/// With measured costs a run may change its shape. Times differ, so it may also find none that is faster.
#[test]
fn a_run_that_knows_its_costs_has_the_same_weights_in_whatever_shape_it_finds() {
    let place = Place::new();
    let usual = ["pipeline.gradient_groups=2", "pipeline.shard_groups=2", "train.steps=60"];
    place.run(&[&["profile", "my.toml"][..], &set(&usual)].concat()).done();
    let run = |name: &str, sets: &[&str]| {
        let folder = format!("runs/{name}");
        let args = ["train", "my.toml", "--weights-hash", "--run-dir", &folder];
        let sets = [&usual[..], &["pipeline.costs=costs.json", "pipeline.schedule=gpipe"], sets].concat();
        place.run(&[&args, &set(&sets)[..]].concat()).done().hash()
    };
    let expected = run("kept", &[]);
    assert_eq!(run("auto", &["pipeline.replan=auto"]), expected);
    assert_eq!(
        run("zero", &["pipeline.replan=auto", "optimizer.sharded=true", "pipeline.replicas=2"]),
        expected
    );
}
