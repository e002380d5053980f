//! The page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::record::Record;
use super::{charts, ranks, tables};
use pipewright::draw::{CHART, Chart, DARK, FONT, LIGHT, where_dark};

/// By this, a file is known as a page that may be written anew.
pub(crate) const MARK: &str = "<meta name=\"generator\" content=\"pipewright report\">";

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page of one run, or of several that are compared. `is_live`: it is served, and asks for itself again.
pub fn page(runs: &[Record], is_live: bool) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = match names.as_slice() {
        [others @ .., before, last] => [others, &[&format!("{before} and {last}")]].concat().join(", "),
        _ => names.concat(),
    };
    let style = format!(":root{{--font:{FONT}}}{LIGHT}{CHART}{STYLE}{}", where_dark(DARK));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
         connect-src {}",
        if is_live { "'self'" } else { "'none'" }
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                (PreEscaped(MARK))
                meta http-equiv="Content-Security-Policy" content=(policy);
                @if is_live { noscript { meta http-equiv="refresh" content="10"; } }
                title { (title) " – Pipewright" }
                link rel="icon" href="data:,";
                style { (PreEscaped(style)) }
            }
            body data-live[is_live] {
                main { (content(runs, &title)) }
                div #tip role="status" hidden {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn content(runs: &[Record], title: &str) -> Markup {
    let each = runs.iter().map(|run| run.steps.loss.training.each()).max().unwrap_or(1);
    html! {
        h1 { (title) }
        p #state {}
        @for run in runs {
            @for notice in run.notices() { p.notice role="alert" { (run.name) ": " (notice) } }
        }
        (tables::summary(runs))
        @if runs.iter().all(|run| run.steps.done == 0) {
            p { "No step is done yet." }
        } @else {
            h2 { "Over the steps" }
            @if each > 1 {
                p.note {
                    "A line shows the mean of up to " (each) " steps, the band around it the lowest and the "
                    "highest of them."
                }
            }
            (over_steps(runs))
            h2 { "Ranks" }
            div.charts {
                @for chart in [ranks::time(runs), ranks::memory(runs)].into_iter().flatten() {
                    figure { (PreEscaped(chart)) }
                }
            }
            @for run in runs { (tables::planned_memory(run).unwrap_or_default()) }
        }
        @for run in runs {
            @if let Some(timeline) = &run.timeline { (traced(run, timeline, runs.len() > 1)) }
        }
        @if runs.iter().any(|run| run.history.iter().any(|entry| entry.of_cut)) {
            h2 { "Cuts of the model" }
            @for run in runs { (tables::cuts(run).unwrap_or_default()) }
        }
        @if runs.iter().any(|run| run.samples.has_some()) {
            h2 { "Samples over the steps" }
            @for run in runs {
                @if runs.len() > 1 && run.samples.has_some() { h3 { (run.name) } }
                (run.samples.table(&run.name).unwrap_or_default())
            }
        }
        @if let Some(machine) = tables::machine(runs) { h2 { "Machine" } (machine) }
        @if let Some(settings) = tables::settings(runs) { h2 { "Settings" } (settings) }
        @if runs.iter().any(|run| !run.history.is_empty()) {
            h2 { "History" }
            @for run in runs { (tables::history(run).unwrap_or_default()) }
        }
    }
}

/// The charts over the steps. If their number is odd, the first one has two places.
fn over_steps(runs: &[Record]) -> Markup {
    let (losses, others) = (charts::losses(runs), charts::others(runs));
    let is_odd = (losses.len() + others.len()) % 2 == 1;
    html! {
        // It needs the script, which shows it.
        label #smoothing hidden {
            "Smoothing of training "
            input type="range" min="0" max="0.98" step="0.02" value="0";
            " " output { "0" }
        }
        div.charts {
            @for (index, chart) in losses.iter().enumerate() { (scales(chart, index, is_odd && index == 0)) }
            @for chart in &others { figure { @for svg in charts::drawn(chart, false) { (PreEscaped(svg)) } } }
        }
    }
}

/// A chart on a linear and on a logarithmic scale. One of both is shown; that needs no script.
fn scales(chart: &Chart<'_>, index: usize, is_broad: bool) -> Markup {
    let logarithmic = charts::logarithmic(chart);
    let name = format!("scale-{index}");
    let scales = [("linear", Some(chart)), ("logarithmic", logarithmic.as_ref())];
    html! {
        figure.switch[logarithmic.is_some()].broad[is_broad] {
            @if logarithmic.is_some() {
                @for (scale, _) in scales {
                    @let id = format!("{scale}-{index}");
                    input .(scale) id=(id) type="radio" name=(name) checked[scale == "linear"];
                    label .(scale) for=(id) { (scale) }
                }
            }
            @for (scale, chart) in scales {
                @if let Some(chart) = chart {
                    div .(scale) {
                        @for (size, svg) in ["one", "two"].iter().zip(charts::drawn(chart, is_broad)) {
                            div .(size) { (PreEscaped(svg)) }
                        }
                    }
                }
            }
        }
    }
}

/// The picture of a traced step beside the planned one: a picture of its own, whose styles are its own.
fn traced(run: &Record, timeline: &str, is_one_of_several: bool) -> Markup {
    let escapes = [("%", "%25"), ("#", "%23"), ("\n", "")];
    let data = escapes.iter().fold(timeline.to_owned(), |data, (from, to)| data.replace(from, to));
    let what = format!("Planned and measured timeline of a step of {}", run.name);
    html! {
        h2 { "The last traced step beside the planned one" @if is_one_of_several { ": " (run.name) } }
        div.wide.timeline tabindex="0" role="region" aria-label=(what) {
            img src={ "data:image/svg+xml;charset=utf-8," (data) } alt=(what);
        }
    }
}
