//! `plan` and `tune` for several replicas of a config's pipeline.

use pipewright::mesh::Map;
use pipewright_cli::config::Config;

use super::*;
use crate::tune::measured;

fn plan(place: &Place, args: &[&str]) -> serde_json::Value {
    let plan = ["plan", "my.toml", "--costs", "costs.json", "--format", "json"];
    let said = place.run(&[&plan[..], args].concat()).done().stdout();
    serde_json::from_str(&said).unwrap()
}

fn number(plan: &serde_json::Value, key: &str) -> f64 {
    plan[key].as_f64().unwrap()
}

#[test]
fn slower_links_make_a_step_longer_and_expose_more_of_the_reduction() {
    let place = measured();
    let two = set(&["pipeline.replicas=2"]);
    let at = |bandwidth: &str| {
        let between = ["--hosts", "2", "--between-bandwidth", bandwidth];
        plan(&place, &[&two[..], &between].concat())
    };
    let (fast, slow) = (at("1000GB"), at("10KB"));
    let share = |plan: &serde_json::Value| number(plan, "exposed_reduction");
    assert!(number(&slow, "step_with_barrier") > number(&fast, "step_with_barrier"));
    assert!(share(&slow) > 0.5 && share(&slow) > share(&fast) && share(&slow) < 1.0);
    let unused = plan(&place, &[&two[..], &["--between-bandwidth", "10KB"]].concat());
    assert!(share(&unused) < share(&slow), "on one host no message goes between hosts");
    let one = plan(&place, &["--link-latency", "0.5"]);
    assert!(number(&one, "exposed_transfer") > 0.5, "{one}");
    let said = place.run(&["plan", "my.toml", "--costs", "costs.json", "--link-latency", "-1"]);
    has(&said.refused(), &["link: the cost latency is -1; it has to be a number from 0 on"]);
}

#[test]
fn metrics_of_replicas_tell_how_long_ranks_only_added_up_gradients() {
    let place = Place::new();
    let reducing = |replicas: &str| -> Vec<Option<f64>> {
        let (replicas, folder) = (format!("pipeline.replicas={replicas}"), format!("runs/{replicas}"));
        place.run(&["train", "my.toml", "--set", &replicas, "--run-dir", &folder]).done();
        let lines = place.lines(&folder);
        lines.iter().map(|line| line.get("reducing").and_then(serde_json::Value::as_f64)).collect()
    };
    assert_eq!(reducing("1"), [None; 6]);
    let of_two = reducing("2");
    let share = |&reducing: &Option<f64>| reducing.is_some_and(|share| share > 0.0 && share < 1.0);
    assert!(of_two.len() == 6 && of_two.iter().all(share), "{of_two:?}");
}

#[test]
fn metrics_and_the_report_tell_how_long_shards_waited_for_others() {
    let place = Place::new();
    let waiting = |shards: &str| -> Vec<Option<Vec<f64>>> {
        let (shards, folder) = (format!("pipeline.shards={shards}"), format!("runs/{shards}"));
        let train = ["train", "my.toml", "--set", "pipeline.shard_groups=2", "--set", &shards];
        place.run(&[&train[..], &["--run-dir", &folder, "--trace=2"]].concat()).done();
        let lines = place.lines(&folder);
        let numbers = |line: &serde_json::Value, key: &str| -> Option<Vec<f64>> {
            line.get(key).map(|list| serde_json::from_value(list.clone()).unwrap())
        };
        for line in &lines {
            let (all, shards) = (numbers(line, "waiting").unwrap(), numbers(line, "shard_waiting"));
            let parts = shards.iter().flatten();
            assert!(parts.zip(&all).all(|(part, all)| part <= all), "{line}");
        }
        lines.iter().map(|line| numbers(line, "shard_waiting")).collect()
    };
    assert_eq!(waiting("1"), vec![None; 6]);
    let of_two = waiting("2");
    let ranks = of_two[0].as_ref().unwrap().len();
    let counted = |line: &Option<Vec<f64>>| line.as_ref().is_some_and(|of| of.iter().all(|part| *part > 0.0));
    assert!(ranks % 2 == 0 && of_two.iter().all(counted), "{of_two:?}");
    place.run(&["report", "runs/2"]).done();
    let page = fs::read_to_string(place.path("runs/2/report.html")).unwrap();
    has(&page, &["rank 0, shard 1", "waiting for shards", "waits for a shard"]);
    let trace = fs::read_to_string(place.path("runs/2/trace.json")).unwrap();
    has(&trace, &["rank 0, shard 1", "waits for shard 0"]);
}

#[test]
fn the_map_says_what_goes_between_hosts() {
    let place = measured();
    let exposed = |map: &str| {
        let map = format!("launch.map={map}");
        let sets = set(&["pipeline.stages=2", "pipeline.replicas=2", &map]);
        let plan = plan(&place, &[&sets[..], &["--hosts", "2", "--between-latency", "1"]].concat());
        ["exposed_reduction", "exposed_transfer"].map(|key| number(&plan, key) > 0.5)
    };
    assert_eq!(exposed("pipeline"), [true, false]);
    assert_eq!(exposed("replicas"), [false, true]);
}

#[test]
fn tune_tries_both_maps_on_several_hosts_and_writes_the_one_it_chose() {
    let place = measured();
    let text = place.text("my.toml");
    place.write("my.toml", text + "\n[launch]\ndeadline = 30 # seconds\nmap = 'replicas'\n");
    let tune = |out: &str, hosts: &[&str]| {
        let tune = ["tune", "my.toml", "--costs", "costs.json", "--devices", "4", "--device-memory", "1GiB"];
        let out = ["--top", "0", "--out", out];
        place.run(&[&tune[..], hosts, &out].concat()).done().stdout()
    };
    let map = |file: &str| {
        let text = place.text(file);
        has(&text, &["deadline = 30 # seconds"]);
        Config::parse(file, &text, &[], &[]).unwrap().launch.map
    };
    let said = tune("one.toml", &[]);
    assert!(!said.contains("  map  "), "{said}");
    assert_eq!(map("one.toml"), Map::Replicas, "on one host it makes no difference");
    let said = tune("two.toml", &["--hosts", "2"]);
    let shown = |map: &str| said.lines().any(|line| line.split_whitespace().any(|word| word == map));
    assert!(shown("map") && shown("pipeline") && shown("replicas"), "{said}");
}

#[test]
fn tune_takes_short_wires_where_the_link_between_hosts_is_slow_and_somebody_asks() {
    let place = measured();
    let tune = |more: &[&str]| {
        let tune = ["tune", "my.toml", "--costs", "costs.json", "--devices", "2", "--top", "0"];
        place.run(&[&tune[..], more].concat())
    };
    let slow = ["--hosts", "2", "--between-bandwidth", "1MB"];
    let formats = |file: &str| {
        let pipeline = Config::parse(file, &place.text(file), &[], &[]).unwrap().pipeline;
        format!("{} {}", pipeline.wires, pipeline.sums)
    };
    let short = |more: &[&str], out: &str| {
        let args = [more, &["--short-wires", "--out", out]].concat();
        let said = tune(&args).done().stdout();
        (said, formats(out))
    };
    let said = tune(&slow).done().stdout();
    assert!(!said.contains("wires") && !said.contains("sums"), "nobody asks: {said}");
    let (said, found) = short(&slow, "slow.toml");
    has(&said, &["  wires  sums", "wires f32, sums f32: "]);
    has(&said, &["wires 8bit, sums f32: ", "wires f32, sums bf16: "]);
    assert_ne!(found, "f32 f32", "{said}");
    let chosen = said.lines().last().unwrap();
    assert!(chosen.contains(", wires 8bit") || chosen.contains(", sums bf16"), "{said}");
    let run = place.run(&["train", "slow.toml"]).done();
    assert_eq!(run.stderr(), "", "its costs fit");
    let fast = ["--hosts", "2", "--between-bandwidth", "100GB", "--between-latency", "0"];
    let (said, found) = short(&fast, "fast.toml");
    assert_eq!(found, "f32 f32", "not worth it: {said}");
    has(&tune(&["--short-wires"]).refused(), &["--short-wires: inside of a host nothing is faster"]);
    // Ranks in bf16 send bf16.
    let narrow = ["--dtype", "bf16", "--short-wires"];
    let tune = ["tune", "my.toml", "--devices", "2", "--top", "0"];
    let said = place.run(&[&tune[..], &slow, &narrow].concat()).done().stdout();
    assert!(!said.contains("wires bf16") && !said.contains("wires 8bit"), "{said}");
}

#[test]
fn a_sharded_optimizer_holds_its_part_and_groups_hold_their_sums() {
    let place = measured();
    let memory = |sets: &[&str], part: &str| -> f64 {
        let plan = plan(&place, &set(sets));
        let ranks = plan["memory"].as_array().unwrap().iter();
        ranks.map(|rank| rank[part].as_f64().unwrap()).sum()
    };
    let base = ["pipeline.replicas=3", "pipeline.gradient_groups=3"];
    let sharded = [&base[..], &["optimizer.sharded=true"]].concat();
    let weights = memory(&base, "weights");
    assert_eq!(memory(&base, "optimizer"), 2.0 * weights);
    assert!((memory(&sharded, "optimizer") - 2.0 * weights / 3.0).abs() < 1.0, "a third, in bytes");
    assert_eq!(memory(&base, "gradients"), weights, "a group each");
    let one = ["pipeline.gradient_groups=3"];
    assert_eq!(memory(&one, "gradients"), 2.0 * weights, "a sum waits while the next group grows");
    let all = |sets: &[&str]| memory(sets, "all") / memory(sets, "weights");
    assert!(all(&sharded) < all(&base));
}

#[test]
fn a_server_holds_what_it_owns_and_the_sums_of_steps_that_are_no_updates_yet() {
    let place = measured();
    let memory = |sets: &[&str], part: &str| -> f64 {
        let base = ["pipeline.replicas=2", "pipeline.gradient_groups=2"];
        let plan = plan(&place, &set(&[&base[..], sets].concat()));
        let ranks = plan["memory"].as_array().unwrap().iter();
        ranks.map(|rank| rank[part].as_f64().unwrap()).sum()
    };
    let (server, stale) = ("pipeline.sync=server", "pipeline.max_staleness=2");
    let weights = memory(&[], "weights");
    assert_eq!(memory(&[server], "weights"), weights);
    assert_eq!(memory(&[server], "optimizer"), weights, "half of two numbers a weight");
    let stale = [server, stale, "checkpoint.every=0"];
    assert_eq!(memory(&stale, "optimizer"), weights);
    assert_eq!(
        memory(&stale, "weights"),
        2.5 * weights,
        "what it owns, and two versions of the other owner's"
    );
    assert_eq!(
        memory(&stale, "gradients"),
        4.5 * weights,
        "a gradient of what it owns, and both replicas' sums of three steps"
    );
    let long = [server, "pipeline.max_staleness=4000000000", "train.steps=2"];
    assert_eq!(memory(&long, "gradients"), 3.5 * weights, "the sums of two steps, because there are no more");
    let often = [server, "pipeline.max_staleness=4000000000", "checkpoint.every=1"];
    assert_eq!(memory(&often, "gradients"), 2.5 * weights);
    let sets = set(&[&stale[..], &["pipeline.replicas=2"]].concat());
    let said = place.run(&[&["plan", "my.toml", "--costs", "costs.json"], &sets[..]].concat());
    let said = said.done().stdout();
    has(&said, &["\nweights at most 2 steps old are not simulated: in the predicted step each replica"]);
}

#[test]
fn costs_files_from_before_replicas_are_read_and_wrong_ones_refused() {
    let place = measured();
    let file = place.path("costs.json");
    let whole: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let mut old = whole.clone();
    old.as_object_mut().unwrap().remove("add");
    fs::write(&file, old.to_string()).unwrap();
    plan(&place, &set(&["pipeline.replicas=2"]));
    for (key, value, part) in [
        ("add", serde_json::json!(-1), "the cost add is -1; it has to be a number from 0 on"),
        (
            "between",
            serde_json::json!({"latency": 1.0, "per_byte": -2.0, "one_host": true}),
            "the cost between: per_byte is -2; it has to be a number from 0 on",
        ),
        ("between", serde_json::json!({"latency": 1.0}), "between: missing field `per_byte`"),
    ] {
        let mut wrong = whole.clone();
        wrong[key] = value;
        fs::write(&file, wrong.to_string()).unwrap();
        let said = place.run(&["plan", "my.toml", "--costs", "costs.json"]).refused();
        assert!(said.starts_with("error: costs.json: ") && said.contains(part), "{said}");
    }
}

#[test]
fn a_schedule_in_a_file_is_for_one_replicas_share() {
    let place = Place::new();
    let mine = ["plan", "--ranks=2", "--micro-batches=2", "--schedule=1f1b", "--format=csv"];
    place.write("mine.csv", place.run(&mine).done().stdout());
    let plan = |micro_batches: &str| {
        let sets = ["pipeline.schedule=file:mine.csv", "pipeline.replicas=2", micro_batches];
        place.run(&[&["plan", "my.toml", "--format", "csv"][..], &set(&sets)].concat())
    };
    assert_eq!(plan("pipeline.micro_batches=4").done().stdout().lines().count(), 2);
    has(
        &plan("pipeline.micro_batches=3").refused(),
        &["pipeline.micro_batches: the schedule in mine.csv is for the 2 micro-batches of a replica, but \
             replica 0 has 1 of the batch: choose micro_batches and gradient_groups so that each replica \
             has 2"],
    );
}

/// The rows of `tune`'s table.
fn rows(said: &str) -> Vec<Vec<String>> {
    let is_row = |line: &&str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        first.ends_with('.') && first.trim_end_matches('.').parse::<u32>().is_ok()
    };
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    said.lines().filter(is_row).map(words).collect()
}

#[test]
fn tune_uses_all_devices_within_their_memory_and_runs_nothing_for_given_costs() {
    let place = measured();
    let tune = |args: &[&str]| {
        let tune = ["tune", "my.toml", "--costs", "costs.json", "--devices", "6"];
        let micro_batches = set(&["pipeline.micro_batches=6"]);
        place.run(&[&tune[..], args, &micro_batches].concat())
    };
    let run = tune(&["--out", "tuned.toml"]).done();
    assert_eq!(run.stderr(), "", "nothing is measured or run");
    let said = run.stdout();
    let table = rows(&said);
    assert_eq!(table.len(), 10, "{said}");
    for row in &table {
        let [replicas, ranks] = [1, 2].map(|column| row[column].parse::<u32>().unwrap());
        assert_eq!(replicas * ranks, 6, "{said}");
    }
    let tuned = place.text("tuned.toml");
    let config = pipewright_cli::config::Config::parse("tuned.toml", &tuned, &[], &[]).unwrap();
    let best = &table[0];
    assert_eq!(config.pipeline.micro_batches, 6);
    assert!(said.contains(&format!("chosen: {}: ", config.pipeline.schedule)), "{best:?} {said}");

    let memories = |said: &str| -> Vec<f64> {
        let memory = |row: Vec<String>| row[14].parse::<f64>().unwrap();
        rows(said).into_iter().map(memory).collect()
    };
    let least = memories(&said).into_iter().fold(f64::INFINITY, f64::min) + 0.01;
    let limit = format!("{:.0}", least * f64::from(1 << 20));
    let limited = tune(&["--device-memory", &limit]).done().stdout();
    assert!(memories(&limited).iter().all(|memory| *memory <= least + 0.005), "{limited}");
    let said = tune(&["--device-memory", "1KiB"]).0;
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(
        said.contains("error: nothing fits into 1.00 KiB on a rank: the least that was found is ")
            && said.ends_with("): raise --device-memory, or take more --devices\n"),
        "{said}"
    );
}

#[test]
fn tune_says_how_many_ranks_and_replicas_there_can_be() {
    let place = measured();
    let tune = ["tune", "my.toml", "--costs", "costs.json", "--devices", "19"];
    let said = place.run(&tune).refused();
    let most = "take at most 6 ranks, one for each layer, and at most 3 replicas, one for each micro-batch";
    has(&said, &[most]);
}

#[test]
fn tune_refuses_devices_with_ranks_and_numbers_that_are_none() {
    let place = Place::new();
    for (args, part) in [
        (&["--devices", "4", "--ranks", "2"][..], "cannot be used with"),
        (&["--devices", "0"], "0 is not in 1.."),
        (&["--replicas", "0"], "0 is not in 1.."),
        (&["--costs", "none.json"], "cannot read none.json: "),
    ] {
        has(&place.run(&[&["tune", "my.toml"][..], args].concat()).refused(), &[part]);
    }
}

/// Each shard holds what a row of the table says.
#[test]
fn the_memory_in_all_counts_the_shards() {
    let place = Place::new();
    for (sets, pipeline, all) in [
        (
            &["pipeline.shards=2"][..],
            "stages 2, shards 2, schedule",
            " in all, with 2 shards of each rank, estimated",
        ),
        (
            &["pipeline.shards=2", "pipeline.replicas=2"],
            "2 replicas, stages 2, shards 2, schedule",
            " in all 2 replicas, with 2 shards of each rank, estimated",
        ),
    ] {
        let said = place.run_with(&["train", "my.toml", "--steps", "1"], sets).done().stdout();
        has(&said, &[pipeline, all]);
        let kib = |line: &str| -> f64 {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let unit = parts.iter().rposition(|part| part.ends_with("iB")).unwrap();
            let times = if parts[unit] == "MiB" { 1024.0 } else { 1.0 };
            times * parts[unit - 1].parse::<f64>().unwrap()
        };
        let ranks: f64 = said.lines().filter(|line| line.starts_with("rank ")).map(kib).sum();
        let sum = kib(said.lines().find(|line| line.ends_with(all)).unwrap());
        // Only the first replica has copies for checkpoints.
        let shards_in_all = 2.0 * sets.len() as f64;
        assert!((0.7..1.01).contains(&(sum / (shards_in_all * ranks))), "{said}");
        fs::remove_dir_all(place.path("runs")).unwrap();
    }
}
