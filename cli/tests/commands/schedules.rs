use super::*;

#[test]
fn every_schedule_trains_to_the_same_weights() {
    let place = Place::new();
    let train = |folder: &str, sets: &[String]| {
        let args = ["train", "my.toml", "--weights-hash", "--run-dir", folder, "--steps", "2"];
        place.run_with(&args, sets).done().hash()
    };
    let whole = train("whole", &["pipeline.stages=1".to_owned()]);
    for name in Schedule::names() {
        let chunks = *Schedule::chunks(name).unwrap().start();
        let sets = [format!("pipeline.schedule={name}"), format!("pipeline.stages={}", 2 * chunks)];
        assert_eq!(train(name, &sets), whole, "{name}");
    }
    let sets = ["schedule=interleaved-1f1b", "stages=6", "chunks=3"].map(|set| format!("pipeline.{set}"));
    assert_eq!(train("three", &sets), whole);
    let sets = ["schedule=auto", "stages=4", "chunks=2"].map(|set| format!("pipeline.{set}"));
    assert_eq!(train("chosen", &sets), whole);
}

#[test]
fn auto_says_what_it_chose_and_keeps_to_a_memory_in_bytes() {
    let place = Place::new();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    let plan = |memory: &str| {
        let sets =
            ["schedule=auto", "stages=2", "costs=costs.json", memory].map(|set| format!("pipeline.{set}"));
        place.run_with(&["plan", "my.toml"], &sets)
    };
    let said = plan("memory=1GiB").done().stderr();
    has(&said, &["chose ", "the smallest makespan"]);
    let sets = ["schedule=auto", "stages=2", "barrier=false"].map(|set| format!("pipeline.{set}"));
    for costs in [&[][..], &["pipeline.costs=costs.json".to_owned()]] {
        let sets = [&sets, costs].concat();
        let said = place.run_with(&["plan", "my.toml"], &sets).done().stderr();
        has(&said, &["chose ", "the smallest span"]);
    }
    let refused = |run: Run, told: &[&str]| {
        let said = run.refused();
        assert!(told.iter().all(|part| said.contains(part)), "{said}");
    };
    refused(
        plan("memory=10B"),
        &["pipeline.memory: 10 B is less than any cut of 6 layers into 2 stages holds with auto; the least \
             found is "],
    );
    let train = |sets: &[&str]| place.run_with(&["train", "my.toml"], sets);
    refused(
        train(&["pipeline.schedule=auto", "pipeline.memory=1GiB"]),
        &["pipeline.memory: a limit in bytes needs measured costs", "pipewright profile"],
    );
    refused(train(&["pipeline.memory=lots"]), &["pipeline.memory", "200MiB"]);
    refused(
        train(&["pipeline.schedule=automatic"]),
        &["there is no schedule \"automatic\"", "; or auto, or file:PATH)"],
    );
}

#[test]
fn a_schedule_of_ones_own_trains_and_is_resumed_on_another() {
    let place = Place::new();
    let plan =
        place.run(&["plan", "--ranks=2", "--micro-batches=3", "--schedule=dualpipe-v", "--format=csv"]);
    place.write("mine.csv", plan.done().stdout());
    let own = ["train", "my.toml", "--set", "pipeline.schedule=file:mine.csv", "--set", "pipeline.stages=4"];
    let run = place.run(&[&own[..], &["--steps", "3"]].concat()).done();
    has(&run.stdout(), &["stages 4, schedule file:mine.csv"]);
    let looped = ["pipeline.schedule=looped-bfs", "pipeline.stages=6", "pipeline.chunks=3"];
    let resumed = place.run_with(&["train", "my.toml", "--resume", "--weights-hash"], &looped);
    let whole = place.run(&["train", "my.toml", "--run-dir", "whole", "--weights-hash"]).done();
    assert_eq!(resumed.done().hash(), whole.hash());
    fs::remove_file(place.path("mine.csv")).unwrap();
    place.run(&["sample", "runs/small", "--tokens", "1"]).done();
}

#[test]
fn two_directions_are_planned_and_checked_but_not_trained() {
    let place = Place::new();
    let csv =
        "0F0,3F0,0F1,3B0,0B0,3F1,0F2,3B1,0B1,3F2,3B2,0B2\n2F0,1F0,2F1,1B0,2B0,1F1,2F2,1B1,2B1,1F2,1B2,2B2\n";
    place.write("both.csv", csv);
    let checked = place.run(&["check", "both.csv"]).done().stdout();
    has(&checked, &["stages 4 (placement 0,1 and 1,0), micro-batches 3"]);
    let sets = ["--set", "pipeline.schedule=file:both.csv", "--set", "pipeline.stages=4"];
    let refused = place.run(&[&["train", "my.toml"][..], &sets].concat()).refused();
    has(&refused, &["pipeline.schedule: both.csv goes in 2 directions (placement 0,1 and 1,0)"]);
    let planned = place.run(&[&["plan", "my.toml"][..], &sets].concat()).refused();
    assert_eq!(planned, refused, "nothing is measured before");
}

/// The output of a plan with this memory. If the plan is refused, also the least memory that works.
fn least(place: &Place, sets: &[String]) -> String {
    let said = place.run_with(&["plan", "my.toml"], sets).refused();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("error: --set: pipeline.memory: 1.00 KiB is less than "), "{said}");
    let (_, least) = last.rsplit_once(" is ").unwrap();
    least.rsplit_once(", ").map_or(least, |(_, least)| least).replace(' ', "")
}

#[test]
fn every_schedule_is_held_against_the_memory_and_the_least_that_is_named_works() {
    let place = Place::new();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    let mine = place.run(&["plan", "--ranks=2", "--micro-batches=3", "--schedule=zb-v", "--format=csv"]);
    place.write("mine.csv", mine.done().stdout());
    let lists = "[[\"embed\"], [\"h.0.attn\"], [\"h.0.mlp\"], [\"h.1.attn..head\"]]";
    let names = Schedule::names().chain(["auto", "file:mine.csv"]);
    let cases = names.flat_map(|name| ["\"balanced\"", lists].map(|partition| (name, partition)));
    for (name, partition) in cases {
        let sets = |memory: &str| {
            [
                format!("pipeline.schedule={name}"),
                format!("pipeline.partition={partition}"),
                "pipeline.stages=4".to_owned(),
                "pipeline.costs=costs.json".to_owned(),
                format!("pipeline.memory={memory}"),
            ]
        };
        let least = least(&place, &sets("1KiB"));
        let limit = least.strip_suffix("KiB").unwrap().parse::<f64>().unwrap() * 1024.0;
        let _ = fs::remove_dir_all(place.path("runs"));
        place.run_with(&["train", "my.toml", "--steps", "1"], &sets(&least)).done();
        let held = place.lines("runs/small")[0]["peak_bytes"].clone();
        let held = held.as_array().unwrap().iter().map(|held| held.as_f64().unwrap());
        let most = held.fold(0.0, f64::max);
        assert!(most <= limit, "{name} {partition}: {most} above {limit}");
    }
}

#[test]
fn a_memory_without_costs_is_refused_for_a_schedule_in_a_file_too() {
    let place = Place::new();
    place.write("mine.csv", "0F0,0B0\n1F0,1B0\n");
    let sets = ["pipeline.schedule=file:mine.csv", "pipeline.memory=1GiB"];
    let said = place.run_with(&["train", "my.toml"], &sets).refused();
    has(&said, &["pipeline.memory: a limit in bytes needs measured costs"]);
}
