use super::*;

use roxmltree::Document;

#[test]
fn a_traced_run_leaves_pictures_and_events_and_the_same_weights() {
    let place = Place::new();
    let run = place.run(&["train", "my.toml", "--trace=3", "--weights-hash"]).done();
    let said = run.stdout();
    has(&said, &[": trace.svg, trace.json (for ui.perfetto.dev) and plan-and-trace.svg in runs/small\n"]);
    let read = |name: &str| fs::read_to_string(place.path("runs/small").join(name)).unwrap();
    let titles = |name: &str| -> Vec<String> {
        let text = read(name);
        let document = Document::parse(&text).unwrap();
        let titles = document.descendants().filter(|node| node.attribute("class") == Some("h"));
        titles.map(|node| node.text().unwrap().to_owned()).collect()
    };
    let sizes = "1f1b: ranks 2, stages 2, micro-batches 3";
    let [measured] = &titles("trace.svg")[..] else { panic!("one panel") };
    let step =
        measured.strip_prefix(&format!("{sizes}, step ")).and_then(|rest| rest.strip_suffix(" as measured"));
    assert!(["2", "3", "4"].contains(&step.unwrap()), "{measured}");
    assert_eq!(
        titles("plan-and-trace.svg"),
        [format!("{sizes}, planned at the measured medians"), measured.clone()]
    );
    let events: serde_json::Value = serde_json::from_str(&read("trace.json")).unwrap();
    let passes = events["traceEvents"].as_array().unwrap().iter();
    assert_eq!(passes.filter(|event| event["ph"] == "X").count(), 2 * 2 * 3);
    let plain = ["train", "my.toml", "--run-dir", "plain", "--weights-hash"];
    assert_eq!(place.run(&plain).done().hash(), run.hash());
    assert!(!place.path("plain/trace.svg").exists());
}

#[test]
fn a_run_too_short_to_trace_is_refused() {
    let place = Place::new();
    let refused = |args: &[&str], part: &str| {
        has(&place.run(&[&["train", "my.toml"], args].concat()).refused(), &[part]);
    };
    refused(
        &["--trace"],
        "--trace=5: 0 of 6 steps are done, so 6 are to come, and the first 2 of these are not traced: trace \
         at least 1 and at most 4",
    );
    refused(&["--trace=0"], "trace at least 1 and at most 4");
    refused(&["--trace=1", "--steps", "2"], "let the run go on for at least 3 steps");
    refused(&["--trace", "5"], "write `--trace=5`, with an equals sign and no space");
    refused(&["--trace=x"], "invalid value 'x' for '--trace[=<STEPS>]'");
    assert!(!place.path("runs").exists());
    place.run(&["train", "my.toml", "--steps", "3"]).done();
    let resume = ["train", "my.toml", "--resume", "--trace=2"];
    let said = place.run(&resume).refused();
    has(&said, &["--trace=2: 3 of 6 steps are done, so 3 are to come"]);
    has(&said, &["trace at least 1 and at most 1"]);
    let resumed = place.run(&["train", "my.toml", "--resume", "--trace=1"]).done();
    has(&resumed.stdout(), &["traced    step 5: "]);
}
