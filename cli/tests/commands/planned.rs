//! What `plan CONFIG` shows is what `train CONFIG` runs.

use super::*;

/// `--set` arguments for these keys of `[pipeline]`.
fn sets(keys: &[String]) -> Vec<String> {
    let set = |key: &String| ["--set".to_owned(), format!("pipeline.{key}")];
    keys.iter().flat_map(set).collect()
}

fn run(place: &Place, command: &[&str], sets: &[String]) -> Run {
    let sets = sets.iter().map(String::as_str);
    let args: Vec<&str> = command.iter().copied().chain(sets).collect();
    place.run(&args).done()
}

/// The passes of each rank in the trace of a run, in the order in which they ran. The format is the same as
/// of `plan --format csv`.
fn traced(place: &Place, folder: &str) -> String {
    let text = fs::read_to_string(place.path(folder).join("trace.json")).unwrap();
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut rows: Vec<Vec<(f64, String)>> = Vec::new();
    for event in events["traceEvents"].as_array().unwrap() {
        if event["ph"] != "X" {
            continue;
        }
        let rank = event["tid"].as_u64().unwrap() as usize;
        rows.resize(rows.len().max(rank + 1), Vec::new());
        let name = event["name"].as_str().unwrap().to_owned();
        rows[rank].push((event["ts"].as_f64().unwrap(), name));
    }
    let row = |mut row: Vec<(f64, String)>| {
        row.sort_by(|a, b| a.0.total_cmp(&b.0));
        let names: Vec<String> = row.into_iter().map(|(_, name)| name).collect();
        names.join(",") + "\n"
    };
    rows.into_iter().map(row).collect()
}

/// Every schedule by name, `auto`, and one in a file, for two ranks with the schedule's number of stages.
fn schedules(place: &Place) -> Vec<Vec<String>> {
    let mine = ["plan", "--ranks=2", "--micro-batches=3", "--schedule=zb-h1", "--format=csv"];
    place.write("mine.csv", place.run(&mine).done().stdout());
    let named = Schedule::names().map(|name| (name, 2 * *Schedule::chunks(name).unwrap().start()));
    let all = named.chain([("auto", 2), ("file:mine.csv", 2)]);
    all.map(|(name, stages)| vec![format!("schedule={name}"), format!("stages={stages}")]).collect()
}

fn numbers(values: &serde_json::Value) -> Vec<f64> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_f64().unwrap()).collect()
}

#[test]
fn the_order_that_is_planned_is_the_order_that_runs_with_costs_and_without() {
    let place = Place::new();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    let costs = vec!["costs=costs.json".to_owned()];
    let train = ["train", "my.toml", "--run-dir", "run", "--steps", "3", "--trace=1"];
    for schedule in schedules(&place) {
        for costs in [&[][..], &costs] {
            let sets = sets(&[&schedule[..], costs].concat());
            let planned = run(&place, &["plan", "my.toml", "--format", "csv"], &sets).stdout();
            let _ = fs::remove_dir_all(place.path("run"));
            run(&place, &train, &sets);
            // Where PyTorch may run two passes at once, they run one after the other.
            let planned = planned.replace('(', "").replace(';', ",").replace(")OVERLAP_F_B", "");
            assert_eq!(planned, traced(&place, "run"), "{sets:?}");
        }
    }
}

#[test]
fn the_memory_that_is_planned_is_the_memory_that_is_held_with_costs_and_without() {
    let place = Place::new();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    let train = ["train", "my.toml", "--run-dir", "run", "--steps", "1"];
    let held = |sets: &[String]| {
        let plan = run(&place, &["plan", "my.toml", "--format", "json"], sets).stdout();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        let _ = fs::remove_dir_all(place.path("run"));
        run(&place, &train, sets);
        let held = &place.lines("run")[0]["peak_bytes"];
        assert_eq!(numbers(&plan["peak_memory"]), numbers(held), "{sets:?}");
    };
    for schedule in schedules(&place) {
        held(&sets(&[&schedule[..], &["costs=costs.json".to_owned()]].concat()));
    }
    held(&sets(&["schedule=zb-h1".to_owned()]));
}

#[test]
fn costs_of_the_command_line_are_those_of_the_config() {
    let place = Place::new();
    place.run(&["profile", "my.toml", "--out", "costs.json"]).done();
    let schedule = sets(&["schedule=zb-h1".to_owned()]);
    let plan = ["plan", "my.toml", "--format", "csv"];
    let given = run(&place, &[&plan[..], &["--costs", "costs.json"]].concat(), &schedule);
    let named = [schedule, sets(&["costs=costs.json".to_owned()])].concat();
    assert_eq!(given.stdout(), run(&place, &plan, &named).stdout());
}
