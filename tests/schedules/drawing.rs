//! Pictures of timelines, and events for a trace viewer. They are well formed, complete, and no larger than
//! necessary.

use pipewright::draw::{Panel, Picture, Units, trace_events};
use pipewright::schedule::Timeline;
use roxmltree::{Document, Node};
use serde_json::Value;

use super::*;

/// A planned step. `None` if the schedule refuses the sizes.
fn timeline(name: &str, ranks: u32, micro_batches: u32, comm: f64) -> Option<Timeline> {
    let costs = Costs::share(StageCost::default(), comm).unwrap();
    let schedule = Schedule::make(name, ranks, None, micro_batches, &costs).ok()?;
    Some(schedule.timeline(&costs, LinkKind::Buffered).unwrap())
}

fn panel(timeline: &Timeline) -> Panel<'_> {
    Panel { title: "a step".to_owned(), timeline, replicas: 1, shards: 1 }
}

fn picture(timelines: &[&Timeline], transfers: bool) -> String {
    let panels =
        timelines.iter().map(|&timeline| Panel { title: "a < b & \"c\"".to_owned(), ..panel(timeline) });
    let picture = Picture { panels: panels.collect(), units: Units::Plain, transfers };
    picture.svg().unwrap()
}

/// The classes that an element has.
fn classes<'a>(node: Node<'a, '_>) -> Vec<&'a str> {
    node.attribute("class").unwrap_or("").split(' ').collect()
}

/// How many strokes the paths of a class have, over a document. Each pass is one stroke.
fn strokes(document: &Document<'_>, is_class: impl Fn(&str) -> bool) -> usize {
    document
        .descendants()
        .filter(|node| node.has_tag_name("path") && classes(*node).iter().any(|class| is_class(class)))
        .map(|path| path.attribute("d").unwrap().matches('M').count())
        .sum()
}

/// Whether a class such as `F0` or `B1` names a pass and the number of its stage on the rank.
fn is_pass(class: &str) -> bool {
    matches!(class.split_at_checked(1), Some(("F" | "B" | "I" | "W", chunk)) if chunk.parse::<u32>().is_ok())
}

fn numbers(document: &Document<'_>) -> Vec<String> {
    document
        .descendants()
        .filter(|node| node.has_tag_name("text") && classes(*node).contains(&"n"))
        .map(|node| node.text().unwrap().to_owned())
        .collect()
}

fn passes(timeline: &Timeline) -> usize {
    timeline.ranks.iter().map(Vec::len).sum()
}

#[test]
fn every_schedule_has_every_pass_in_its_picture() {
    for name in Schedule::names() {
        for (ranks, micro_batches) in [(4, 8), (1, 1), (2, 1)] {
            let Some(step) = timeline(name, ranks, micro_batches, 0.5) else {
                continue;
            };
            let text = picture(&[&step], true);
            let document = Document::parse(&text).unwrap();
            let at = format!("{name} {ranks} x {micro_batches}");
            assert_eq!(strokes(&document, is_pass), passes(&step), "{at}");
            assert_eq!(
                strokes(&document, |class| ["a", "d"].contains(&class)),
                step.transfers.len() + 2,
                "{at}: transfers, and two lines of the legend"
            );
            assert_eq!(numbers(&document).len(), passes(&step), "{at}");
        }
    }
}

#[test]
fn a_small_picture_has_numbers_and_a_large_one_none() {
    let small = timeline("1f1b", 4, 8, 0.0).unwrap();
    let text = picture(&[&small], false);
    let document = Document::parse(&text).unwrap();
    let first: Vec<_> = numbers(&document).into_iter().take(8).collect();
    assert_eq!(first, ["0", "1", "2", "3", "0", "4", "1", "5"], "rank 0, in order");
    assert!(text.len() < 10_000, "{}", text.len());
    let large = timeline("1f1b", 32, 128, 0.0).unwrap();
    let text = picture(&[&large], false);
    let document = Document::parse(&text).unwrap();
    assert_eq!(numbers(&document), Vec::<String>::new());
    assert_eq!(strokes(&document, is_pass), 2 * 32 * 128);
    assert!(text.len() < 150_000, "{}", text.len());
}

#[test]
fn the_heading_has_both_bubbles_and_the_peak_and_the_legend_what_there_is() {
    let step = timeline("1f1b", 4, 8, 0.0).unwrap();
    let text = picture(&[&step], false);
    let document = Document::parse(&text).unwrap();
    let said: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    for words in [
        "a < b & \"c\"",
        "makespan 33, bubble 27.3 %  ·  longest span 33, bubble 27.3 %  ·  most memory held 4 (rank 0)",
        "forward",
        "backward",
        "idle",
        "rank 3",
        "30",
    ] {
        assert!(said.contains(&words), "{words} in {said:?}");
    }
    assert!(!said.contains(&"backward-weight") && !said.contains(&"activation"), "{said:?}");
}

#[test]
fn each_copy_of_offloaded_activations_is_a_mark_and_the_legend_has_both_directions() {
    let schedule = Schedule::named("1f1b", 8, 16).unwrap();
    let schedule = schedule.offloading(&[1.0; 8], f64::INFINITY);
    let marks = |copy| {
        let cost = StageCost { copy, ..StageCost::default() };
        let costs = Costs::share(cost, 0.0).unwrap();
        let step = schedule.timeline(&costs, LinkKind::Buffered).unwrap();
        let text = picture(&[&step], false);
        let document = Document::parse(&text).unwrap();
        let said: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
        let named = said.contains(&"to the host") && said.contains(&"back");
        let strokes = ["u", "v"].map(|class| strokes(&document, |of| of == class));
        (strokes, named, step.copies.len())
    };
    let ([out, back], named, copies) = marks(0.5);
    assert!(named && out > 0 && out == back && out + back == copies);
    assert_eq!(marks(0.0), ([0, 0], false, copies), "copies without time");
}

#[test]
fn curves_of_ranks_that_hold_the_same_lie_at_the_same_height_and_show_all_of_them() {
    let step = timeline("gpipe", 4, 8, 0.0).unwrap();
    let text = picture(&[&step], false);
    let document = Document::parse(&text).unwrap();
    let curves: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("path") && node.has_attribute("transform"))
        .filter(|node| node.has_attribute("stroke-width"))
        .collect();
    assert_eq!(curves.len(), 4, "one a rank");
    let top = |curve: &Node| {
        let levels = curve.attribute("d").unwrap().split(['V', 'H', 'M']);
        let levels = levels.filter_map(|number| number.parse::<f64>().ok());
        levels.fold(0.0, f64::min)
    };
    let place = |curve: &Node| (curve.attribute("transform").unwrap().to_owned(), top(curve));
    assert!(curves.iter().all(|curve| place(curve) == place(&curves[0])));
    let widths = curves.iter().map(|curve| curve.attribute("stroke-width").unwrap());
    let widths: Vec<f64> = widths.map(|width| width.parse().unwrap()).collect();
    assert!(widths.is_sorted_by(|wide, narrow| wide > narrow), "{widths:?}");
}

#[test]
fn two_panels_stand_on_one_time_axis() {
    let (short, long) = (timeline("gpipe", 2, 2, 0.0).unwrap(), timeline("gpipe", 2, 2, 3.0).unwrap());
    let ends = |timelines: &[&Timeline]| -> Vec<f64> {
        let text = picture(timelines, false);
        let document = Document::parse(&text).unwrap();
        let last = |row: Node<'_, '_>| {
            let paths = row.children().filter(|node| node.has_tag_name("path"));
            let strokes = paths.flat_map(|path| path.attribute("d").unwrap().split('M').skip(1));
            let end = |stroke: &str| {
                let (x, width) = stroke.split_once(" 0h").unwrap();
                x.parse::<f64>().unwrap() + width.parse::<f64>().unwrap()
            };
            strokes.map(end).fold(0.0, f64::max)
        };
        let rows = document.descendants().filter(|node| node.has_tag_name("g"));
        rows.map(last).collect()
    };
    let (alone, both) = (ends(&[&short]), ends(&[&short, &long]));
    assert_eq!((alone.len(), both.len()), (2, 4));
    assert!((alone[0] - both[2]).abs() < 1.0, "the longest ends at the edge: {alone:?} {both:?}");
    assert!((both[2] / both[0] - 15.0 / 9.0).abs() < 0.01, "{both:?}");
}

#[test]
fn too_many_passes_for_a_picture_are_refused() {
    let step = timeline("gpipe", 64, 2000, 0.0).unwrap();
    let picture = Picture { panels: vec![panel(&step)], units: Units::Plain, transfers: false };
    assert_eq!(
        picture.svg().unwrap_err().to_string(),
        "there are 256000 passes, and a picture shows 250000 at most: draw fewer ranks or micro-batches, \
         or a single replica"
    );
}

#[test]
fn events_are_what_a_trace_viewer_reads() {
    let step = timeline("zb-h1", 3, 5, 0.25).unwrap();
    let trace: Value = serde_json::from_str(&trace_events(&panel(&step))).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| -> Vec<&Value> { events.iter().filter(|event| event["ph"] == phase).collect() };
    let number = |event: &Value, key: &str| event[key].as_f64().unwrap();
    for event in events {
        assert!(event["name"].is_string() && event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        assert!(event["ph"] == "M" || event["ts"].is_f64(), "{event}");
    }
    assert_eq!(of("M").iter().filter(|event| event["name"] == "thread_name").count(), 3);
    assert_eq!((of("X").len(), of("C").len()), (passes(&step), passes(&step)));
    for rank in 0..3 {
        let row: Vec<_> = of("X").into_iter().filter(|event| event["tid"] == rank).collect();
        for pair in row.windows(2) {
            let end = number(pair[0], "ts") + number(pair[0], "dur");
            assert!(end <= number(pair[1], "ts") + 1e-6, "{pair:?}");
        }
        assert_eq!((&row[0]["name"], &row[0]["cat"]), (&format!("{rank}F0").into(), &"forward".into()));
        assert_eq!((&row[0]["args"]["stage"], &row[0]["args"]["micro_batch"]), (&rank.into(), &0.into()));
    }
    let (starts, ends) = (of("s"), of("f"));
    assert_eq!((starts.len(), ends.len()), (step.transfers.len(), step.transfers.len()));
    for (start, end) in starts.iter().zip(&ends) {
        assert_eq!((&start["id"], &start["name"]), (&end["id"], &end["name"]));
        for event in [start, end] {
            let holds = |pass: &&Value| {
                let from = number(pass, "ts");
                let inside = from <= number(event, "ts") && number(event, "ts") < from + number(pass, "dur");
                pass["tid"] == event["tid"] && inside
            };
            assert_eq!(of("X").into_iter().filter(holds).count(), 1, "a flow's end is in a pass: {event}");
        }
    }
}

#[test]
fn what_a_backward_makes_again_is_a_peak_of_the_curve_and_of_the_counter() {
    let cost = StageCost::default().recomputed(0.25);
    let schedule = Schedule::make("1f1b", 1, None, 1, &Costs::default()).unwrap();
    let costs = Costs::share(cost, 0.0).unwrap();
    let step = schedule.timeline(&costs, LinkKind::Buffered).unwrap();
    has(&picture(&[&step], false), &["most memory held 1 (rank 0)"]);
    let events: Value = serde_json::from_str(&trace_events(&panel(&step))).unwrap();
    let counters = events["traceEvents"].as_array().unwrap().iter();
    let held: Vec<_> = counters
        .filter(|event| event["ph"] == "C")
        .map(|event| (event["ts"].as_f64().unwrap() / 1e6, event["args"]["bytes"].as_f64().unwrap()))
        .collect();
    assert_eq!(held, [(1.0, 0.25), (1.0, 1.0), (4.0, 0.0)]);
}

#[test]
fn a_reduction_is_a_mark_on_its_ranks_row_and_an_event_of_its_own() {
    let cost = StageCost { reduce: 2.0, ..StageCost::default() };
    let costs = Costs::share(cost, 0.0).unwrap();
    let plain = Schedule::named("zb-v", 3, 4).unwrap();
    let step = plain.clone().for_replicas(2).timeline(&costs, LinkKind::Buffered).unwrap();
    let text = picture(&[&step], false);
    let document = Document::parse(&text).unwrap();
    assert_eq!(strokes(&document, |class| class == "q"), 6, "one a stage");
    assert_eq!(strokes(&document, is_pass), passes(&step));
    assert!(document.descendants().any(|node| node.text() == Some("reduction")), "the legend");
    let events: Value = serde_json::from_str(&trace_events(&panel(&step))).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    for reduction in &step.reductions {
        let name = format!("{}REDUCE_GRAD", reduction.stage);
        let ends = events.iter().filter(|event| event["name"] == name.as_str());
        let ends: Vec<_> =
            ends.map(|event| (event["ph"].as_str().unwrap(), event["ts"].as_f64().unwrap())).collect();
        assert_eq!(ends, [("b", 1e6 * reduction.start), ("e", 1e6 * reduction.end)]);
    }
    // Three passes of each of four micro-batches, and two reductions of a time of 1, which end later.
    let end = step.reductions.iter().map(|reduction| reduction.end).fold(0.0, f64::max);
    let bubble = 100.0 * (1.0 - 12.0 / end);
    let said = format!("  ·  with reductions {end}, bubble {bubble:.1} %  ·  longest span ");
    assert!(text.contains(&said), "{said}: {text}");
    let without = plain.timeline(&costs, LinkKind::Buffered).unwrap();
    let text = picture(&[&without], false);
    assert!(!text.contains("reduction") && !text.contains("class=\"q\""), "{text}");
}
