//! Processes whose replicas a parameter server keeps alike.

use super::ends::others_name;
use super::*;

const SERVER: [&str; 6] =
    ["--set", "pipeline.replicas=2", "--set", "pipeline.sync=server", "--set", "model.tied=false"];

/// The arguments for a server with this staleness, and more.
fn server<'a>(staleness: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&SERVER[..], &["--set", staleness], more].concat()
}

#[test]
fn a_server_without_staleness_trains_to_the_bits_of_reductions() {
    let place = Place::new();
    let reduced = ["--set", "model.tied=false", "--run-dir", "plain", "--weights-hash"];
    let expected = place.alone(&reduced).done().hash();
    for (processes, stages) in [(2, "pipeline.stages=1"), (2, "pipeline.stages=2"), (4, "pipeline.stages=2")]
    {
        let run = format!("run-{processes}-{stages}");
        let more = ["--set", stages, "--run-dir", &run, "--weights-hash"];
        let first = all_done(place.several(processes, &server("pipeline.max_staleness=0", &more)));
        assert_eq!(first.hash(), expected, "{processes} processes, {stages}");
        has(&first.stdout, &["2 replicas with a parameter server, stages "]);
        assert_eq!(place.numbers(&run), place.numbers("plain"));
    }
}

#[test]
fn a_server_has_moments_in_few_bits() {
    let place = Place::new();
    for state in ["optimizer.state=bf16", "optimizer.state=8bit"] {
        let [run, alone] = ["served", "plain"].map(|name| format!("runs/{name}-{}", &state[16..]));
        let reduced = ["--set", "model.tied=false", "--set", state, "--run-dir", &alone, "--weights-hash"];
        let expected = place.alone(&reduced).done().hash();
        let more = ["--set", state, "--run-dir", &run, "--weights-hash"];
        let first = all_done(place.several(2, &server("pipeline.max_staleness=0", &more)));
        assert_eq!(first.hash(), expected, "{state}");
    }
}

#[test]
fn a_run_with_stale_weights_says_how_stale_and_goes_on_without_a_server() {
    let place = Place::new();
    let steps = ["--steps", "9", "--set", "train.validate_every=4"];
    let first = all_done(place.several(2, &server("pipeline.max_staleness=2", &steps)));
    has(&first.stdout, &["2 replicas with a parameter server, weights at most 2 steps old, stages 2"]);
    let said = first.stdout.split(", weights at most ").last().expect("it says so");
    let largest: u32 = said[..1].parse().expect("a number");
    assert!(largest <= 2 && said[1..].starts_with(" steps old, "), "{}", first.stdout);
    let text = place.text("runs/small/metrics.jsonl");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Checkpoints are saved every second step, and nothing is stale after one. The first steps are traced.
    let of = |key: &str| -> Vec<u64> { lines.iter().map(|line| line[key].as_u64().unwrap()).collect() };
    assert_eq!(of("loss_step")[4..], [4, 4, 6, 6, 8]);
    assert!(of("staleness").iter().zip(of("step")).all(|(staleness, step)| *staleness <= step % 2));
    let more = ["--set", "model.tied=false", "--resume", "--steps", "11"];
    let resumed = place.alone(&more).done();
    has(&resumed.stdout, &["resumed after 9 steps"]);
    has(&resumed.stdout, &["changed   pipeline.max_staleness: 2 -> 0"]);
}

#[test]
fn a_process_that_is_killed_ends_the_others_of_a_server_and_is_named() {
    for victim in [0, 3] {
        let place = Place::new();
        let more = ["--set", "pipeline.stages=2"];
        let mut started = place.start_long(4, &server("pipeline.max_staleness=3", &more));
        started[victim].signal("-KILL");
        drop(started.remove(victim));
        others_name(victim, started);
    }
}

#[test]
fn an_interruption_of_one_process_saves_the_same_step_of_a_server() {
    for signalled in [0, 1] {
        let place = Place::new();
        let started = place.start_long(2, &server("pipeline.max_staleness=3", &[]));
        started[signalled].signal("-INT");
        let ended = end_all(started);
        for process in &ended {
            assert_eq!(process.status, Some(130), "{}{}", process.stdout, process.stderr);
        }
        assert!(ended[0].stdout.contains("\ninterrupted: "), "{}", ended[0].stdout);
        assert_eq!(place.checkpoints("runs/small").len(), 1);
    }
}
