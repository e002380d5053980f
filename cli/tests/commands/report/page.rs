//! What a page has.

use super::*;

#[test]
fn the_page_of_a_run_has_every_section() {
    let place = Place::empty();
    place.make("first", 20);
    let (page, said) = place.page(&["first"]);
    assert_eq!(said, "");
    has(
        &page,
        &[
            "<h1>first</h1>",
            "20 of 700",
            "loss (nats per token)",
            "loss (nats per token), logarithmic",
            "data-name=\"training\"",
            "data-name=\"validation\"",
            "0.7000 after 20 steps",
            "learning rate",
            "tokens a second",
            "norm before clipping",
            "idle share of a step, mean over ranks (%)",
            "500.0 ms, bubble 25.0 %",
            "250.0 ms, bubble 12.5 %",
            "<title>rank 1, waiting: 30.0</title>",
            "<title>rank 0, most held: 1.91</title>",
            "<title>rank 0, planned: 2.86</title>",
            "kept for backward (MiB)",
            "7.15 MiB",
            "&lt;title&gt;100 %25 %231&lt;/title&gt;",
            "Samples over the steps",
            "<td><span class=\"given\">The </span>quick &lt;fox&gt;\nand</td>",
            "Abacus 9, cores 2, threads 4",
            "<th>model.dim</th><td>64</td>",
            "<td>2026-01-31 12:00:00</td><td>0</td><td>began</td>",
        ],
    );
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("http:") && !elsewhere.contains("https:"), "it needs no network");
}

#[test]
fn runs_are_on_the_same_charts_and_what_differs_comes_first() {
    let place = Place::empty();
    place.make("a", 20);
    place.make("b", 30);
    place.write("b/config.toml", "[model]\ndim = 96\n[train]\nname = \"x\"\nsteps = 700\n");
    let (page, _) = place.page(&["a", "b", "--out", "both.html"]);
    has(
        &page,
        &[
            "<h1>a and b</h1>",
            "aria-label=\"Loss, training: loss (nats per token)\"",
            "aria-label=\"Loss, validation: loss (nats per token), logarithmic\"",
            "<path class=\"line s0\" data-name=\"a\"",
            "<path class=\"line s1 dash\" data-name=\"b\"",
            "<th>model.dim</th><td>64</td><td>96</td>",
            "<th>Steps</th><td>20 of 700</td><td>30 of 700</td>",
            "rank 0, a",
            "rank 1, b",
            "Settings that are equal",
            "The last traced step beside the planned one: b",
        ],
    );
    let differ = page.split("Settings that are equal").next().unwrap();
    assert!(!differ.contains("train.steps"), "an equal setting is further down");
    assert!(!place.path("a/report.html").exists());
}

#[test]
fn up_to_seven_runs_have_a_colour_each_and_those_of_one_name_have_their_paths() {
    let place = Place::empty();
    let names: Vec<String> = (0..8).map(|number| format!("sweep-{number}/run")).collect();
    for name in &names {
        place.make(name, 20);
    }
    let args = |count: usize| -> Vec<&str> {
        let names = names[..count].iter().map(String::as_str);
        names.chain(["--out", "all.html"]).collect()
    };
    let (page, _) = place.page(&args(7));
    let lines = page.split("<path class=\"line s").skip(1);
    let named = lines.filter_map(|line| line.split_once("data-name=\"")?.1.split('\"').next());
    let named: std::collections::BTreeSet<&str> = named.filter(|name| name.starts_with("sweep")).collect();
    assert_eq!(named.into_iter().collect::<Vec<_>>(), names[..7]);
    let colours = [0, 1, 2, 3, 5, 6, 7].map(|colour| format!("class=\"line s{colour} dash\" data-name"));
    has(&page, &colours.each_ref().map(String::as_str));
    has(
        &page,
        &["sweep-0/run, sweep-1/run, sweep-2/run, sweep-3/run, sweep-4/run, sweep-5/run and sweep-6/run"],
    );
    assert_eq!(
        place.report(&args(8)).refused(),
        "error: a page compares at most 7 runs, and 8 are named: more lines cannot be told apart\n"
    );
}

#[test]
fn metrics_of_the_loss_have_charts_and_what_is_null_is_left_out() {
    let place = Place::empty();
    place.make("own", 0);
    let lines: String = (0..20)
        .map(|step| {
            let mut line: serde_json::Value = serde_json::from_str(&line(step, 2.0)).unwrap();
            line["accuracy"] = json!(0.25 + 0.01 * step as f64);
            line["mean_distance"] = match step {
                0 => json!(1000.0),
                7 => json!(null),
                _ => json!(400.0 / (1 + step) as f64),
            };
            if step == 9 {
                line["validation_accuracy"] = json!(0.75);
            }
            format!("{line}\n")
        })
        .collect();
    place.write("own/metrics.jsonl", lines);
    let (page, said) = place.page(&["own"]);
    assert_eq!(said, "", "no line is damaged");
    has(
        &page,
        &[
            "aria-label=\"Accuracy: share of targets that were predicted right\"",
            "aria-label=\"Mean distance: metric of the loss, logarithmic\"",
            "<th>Last training accuracy</th><td>0.4400</td>",
            "<th>Last validation accuracy</th><td>0.7500</td>",
            "<th>Last training mean distance</th><td>20.0</td>",
        ],
    );
    assert!(!page.contains("Last validation mean distance"));
    let chart = page.split("aria-label=\"Mean distance").nth(1).unwrap();
    assert_eq!(chart.split("</svg>").next().unwrap().matches("<circle").count(), 19);
    // Seven charts: the first one has two places.
    has(&page, &["<figure class=\"switch broad\">", "<label id=\"smoothing\" hidden>"]);
    place.make("none", 20);
    let (page, _) = place.page(&["none"]);
    assert!(!page.contains("Accuracy") && !page.contains("accuracy"));
    let (page, _) = place.page(&["none", "own", "--out", "both.html"]);
    has(
        &page,
        &[
            "<th>Last training accuracy</th><td>–</td><td>0.4400</td>",
            "aria-label=\"Accuracy, validation: share of targets that were predicted right\"",
        ],
    );
}

#[test]
fn a_run_that_has_less_lacks_those_sections() {
    let place = Place::empty();
    fs::create_dir(place.path("bare")).unwrap();
    place.write("bare/metrics.jsonl", "");
    let (page, said) = place.page(&["bare"]);
    assert_eq!(said, "");
    has(&page, &["No step is done yet."]);
    // Lines of an earlier version have no times of ranks.
    let mut old: serde_json::Value = serde_json::from_str(&line(0, 2.0)).unwrap();
    for key in ["busy", "waiting"] {
        old.as_object_mut().unwrap().remove(key);
    }
    place.write("bare/metrics.jsonl", format!("{old}\n"));
    let (page, said) = place.page(&["bare"]);
    assert_eq!(said, "");
    has(&page, &["loss", "Memory by rank"]);
    for part in ["Time by rank", "planned", "traced", "Machine", "<h2>Settings", "History of"] {
        assert!(!page.contains(part), "{part}");
    }
}

#[test]
fn a_run_that_still_trains_is_shown_up_to_its_last_whole_line() {
    let place = Place::empty();
    place.make("live", 3);
    let half = line(3, 1.0);
    let whole = place.text("live/metrics.jsonl");
    place.write("live/metrics.jsonl", whole + &half[..half.len() / 2]);
    let (page, said) = place.page(&["live"]);
    assert_eq!(said, "");
    has(&page, &["3 of 700"]);
}

#[test]
fn damaged_files_are_named_and_the_rest_is_shown() {
    let place = Place::empty();
    place.make("hurt", 5);
    let damage = |file: &str, text: &str| fs::write(place.path("hurt").join(file), text).unwrap();
    let lines = place.text("hurt/metrics.jsonl");
    damage("metrics.jsonl", &lines.replacen("{\"bubble\"", "{\"bub", 1));
    damage("about.json", "{\"machine\":");
    damage("config.toml", "[model\n");
    damage("history.jsonl", "?\n");
    damage("plan-and-trace.svg", "<svg ");
    let (page, said) = place.page(&["hurt"]);
    for notice in [
        "metrics.jsonl: lines that could not be read and are left out: 1",
        "about.json is damaged (",
        "config.toml is damaged (",
        "history.jsonl: lines that could not be read and are left out: 1",
        "plan-and-trace.svg is damaged (it is no whole picture): the traced step is left out",
    ] {
        assert!(said.contains(&format!("warning: {notice}")), "{notice} in {said}");
        has(&page, &[notice]);
    }
    assert_eq!(said.lines().count(), 5, "{said}");
    has(&page, &["data-name=\"training\""]);
}

#[test]
fn what_is_no_run_is_refused_and_so_is_a_file_that_is_no_page() {
    let place = Place::empty();
    for name in ["nothing", "."] {
        assert_eq!(
            place.report(&[name]).refused(),
            format!(
                "error: there is no run in {name}: it has no file metrics.jsonl; name the folder of a run, \
                 such as runs/gpt-text\n"
            )
        );
    }
    place.make("run", 2);
    place.write("mine.html", "<p>mine</p>");
    let said = place.report(&["run", "--out", "mine.html"]).refused();
    has(&said, &["mine.html: this file exists and is no page of a run"]);
    assert_eq!(place.text("mine.html"), "<p>mine</p>");
    place.page(&["run"]);
    place.page(&["run"]);
}

#[test]
fn names_and_texts_are_never_markup() {
    let place = Place::empty();
    let name = "<script>alert('x')<&\"";
    place.make(name, 12);
    let evil = "\"><img src=x onerror=alert(1)>";
    let run = place.path(name);
    fs::write(run.join("config.toml"), format!("[model]\nkind = '{evil}'\n")).unwrap();
    let about = json!({ "machine": [["processor", evil]], "loss": { "quantity": evil, "target": evil } });
    fs::write(run.join("about.json"), about.to_string()).unwrap();
    let entry = json!({ "time": evil, "pid": 1, "step": 0, "event": evil });
    fs::write(run.join("history.jsonl"), format!("{entry}\n")).unwrap();
    fs::write(run.join("plan-and-trace.svg"), format!("<svg>{evil}<script>alert(2)</script></svg>")).unwrap();
    place.make("other", 12);
    for args in [vec![name], vec![name, "other", "--out", "both.html"]] {
        let (page, _) = place.page(&args);
        assert_eq!(page.matches("<script>").count(), 1, "its own only");
        assert!(!page.contains("<img src=x"), "{page}");
        has(&page, &["&lt;script&gt;alert"]);
    }
}

#[test]
fn the_page_of_a_long_run_is_small_and_keeps_every_peak() {
    let place = Place::empty();
    place.make("long", 0);
    let lines: String = (0..40_000).map(|step| line(step, if step == 31_234 { 97.0 } else { 2.0 })).collect();
    place.write("long/metrics.jsonl", lines);
    let (page, _) = place.page(&["long"]);
    assert!(page.len() < 500_000, "{} bytes", page.len());
    has(&page, &["A line shows the mean of up to 128 steps"]);
    let loss = page.split("aria-label=\"Loss: ").nth(1).unwrap();
    let scale = loss.split("data-y=\"").nth(1).unwrap();
    let highest: f64 = scale.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(highest > 97.0, "the axis ends at {highest}");
    assert!(place.path("long/report.html").is_file());
}

#[test]
fn odd_numbers_are_no_panic() {
    let place = Place::empty();
    place.make("odd", 0);
    let odd = |change: serde_json::Value| {
        let mut line: serde_json::Value = serde_json::from_str(&line(9, 1.0)).unwrap();
        for (key, value) in change.as_object().unwrap() {
            line[key] = value.clone();
        }
        format!("{line}\n")
    };
    let lines = [
        odd(json!({ "step": u64::MAX, "tokens": u64::MAX, "loss": -1e308 })),
        odd(json!({ "step": 0, "tokens": u64::MAX, "loss": 1e308, "seconds": 0.0 })),
        odd(json!({ "busy": [], "waiting": [] })),
        odd(json!({ "bubble": -5.0, "lr": -1.0, "peak_bytes": [u64::MAX], "grad_norm": 1e-320 })),
        odd(json!({ "peak_bytes": [], "busy": [1e308, 1.0, 2.0], "validation_loss": 0.0 })),
        odd(json!({ "loss": null })),
    ];
    for count in 0..=lines.len() {
        place.write("odd/metrics.jsonl", lines[..count].concat());
        place.page(&["odd"]);
        place.write("odd/metrics.jsonl", lines[count..].concat());
        place.page(&["odd"]);
    }
    place.write("odd/config.toml", "[train]\nsteps = -7\n");
    place.page(&["odd"]);
}

#[test]
fn ranks_that_have_had_no_time_yet_have_no_shares() {
    let place = Place::empty();
    place.make("a", 20);
    place.make("b", 0);
    let started = line(0, 2.0).replace("\"seconds\":0.5", "\"seconds\":0.0");
    place.write("b/metrics.jsonl", started);
    let (page, _) = place.page(&["a", "b", "--out", "both.html"]);
    has(&page, &["<title>rank 1, a, waiting: 30.0</title>"]);
    assert!(!page.contains("inf"));
}
