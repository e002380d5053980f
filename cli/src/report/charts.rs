//! The charts of values over steps.

use std::collections::BTreeSet;

use super::record::Record;
use super::steps::{Curves, Steps};
use pipewright::draw::{Chart, ChartLine, Series};
use pipewright::run::LossUnit;

/// The width and height of a chart, in its own units.
const SIZE: (f64, f64) = (420.0, 260.0);
/// The width of a chart that has the place of two.
const BROAD: f64 = 852.0;
/// The most runs in a chart: each has a colour.
pub(crate) const MOST_RUNS: usize = 7;
/// The colours of runs, by their numbers in the style.
const COLOURS: [usize; MOST_RUNS] = [0, 1, 2, 3, 5, 6, 7];
/// How many times the lowest value the highest one is where a metric has a logarithmic scale.
const WIDE: f64 = 20.0;

/// The values of a run that a chart shows.
type Values = fn(&Steps) -> &Series;

/// The losses.
pub(super) fn losses(runs: &[Record]) -> Vec<Chart<'_>> {
    let unit = runs.iter().find_map(|run| run.about.loss.as_ref());
    both(runs, "Loss", &LossUnit::title(unit), |steps| Some(&steps.loss))
}

/// The metrics of the loss, learning rate, targets a second, gradient norm and bubble.
pub(super) fn others(runs: &[Record]) -> Vec<Chart<'_>> {
    let names: BTreeSet<&str> =
        runs.iter().flat_map(|run| run.steps.metrics.keys().map(String::as_str)).collect();
    let metrics = names.into_iter().flat_map(|name| metric(runs, name));
    metrics.chain(of_steps(runs)).collect()
}

/// A chart in the place of one and, if it `is_broad`, also in the place of two.
pub(super) fn drawn(chart: &Chart<'_>, is_broad: bool) -> Vec<String> {
    let widths = [SIZE.0, BROAD].into_iter().take(1 + usize::from(is_broad));
    widths.map(|width| chart.part(width, SIZE.1)).collect()
}

/// The chart on a logarithmic scale, if all its values are above 0.
pub(super) fn logarithmic<'a>(chart: &Chart<'a>) -> Option<Chart<'a>> {
    let (low, _) = range(chart)?;
    (low > 0.0).then(|| Chart {
        value: format!("{}, logarithmic", chart.value),
        is_log: true,
        ..chart.clone()
    })
}

/// A metric of the loss, of training and of validations.
fn metric<'a>(runs: &'a [Record], name: &str) -> Vec<Chart<'a>> {
    let what = match name {
        "accuracy" => "share of targets that were predicted right",
        "perplexity" => "e to the power of the loss",
        _ => "metric of the loss",
    };
    let charts = both(runs, &title(name), what, |steps| steps.metrics.get(name));
    let scaled = |chart: Chart<'a>| match range(&chart) {
        Some((low, high)) if high > WIDE * low => logarithmic(&chart).unwrap_or(chart),
        _ => chart,
    };
    charts.into_iter().map(scaled).collect()
}

/// The name of a metric as a title.
pub(super) fn title(name: &str) -> String {
    let mut letters = name.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    let words: String = first.into_iter().chain(letters).collect();
    words.replace('_', " ")
}

/// A number of training and of validations: in one chart for one run, otherwise in two.
fn both<'a>(
    runs: &'a [Record],
    title: &str,
    value: &str,
    of: impl Fn(&'a Steps) -> Option<&'a Curves>,
) -> Vec<Chart<'a>> {
    let lines = |of_validation: bool| {
        let all = runs.iter().enumerate().filter_map(|(index, run)| {
            let curves = of(&run.steps)?;
            let (kind, series) = match of_validation {
                true => ("validation", &curves.validation),
                false => ("training", &curves.training),
            };
            let (name, colour) = match runs.len() {
                1 => (kind.to_owned(), usize::from(of_validation)),
                _ => (run.name.clone(), COLOURS[index % COLOURS.len()]),
            };
            (!series.is_empty()).then_some(ChartLine { name, series, colour, is_dashed: of_validation })
        });
        all.collect::<Vec<_>>()
    };
    let chart = |title: String, lines| Chart {
        title,
        value: value.to_owned(),
        lines,
        from_zero: false,
        is_log: false,
    };
    let [training, validation] = [lines(false), lines(true)];
    if runs.len() == 1 || validation.is_empty() {
        let lines = training.into_iter().chain(validation).collect();
        return vec![chart(title.to_owned(), lines)];
    }
    vec![chart(format!("{title}, training"), training), chart(format!("{title}, validation"), validation)]
}

/// The lowest and the highest value of a chart, if there is one.
fn range(chart: &Chart<'_>) -> Option<(f64, f64)> {
    let points = chart.lines.iter().flat_map(|line| line.series.points());
    points
        .map(|point| (point.low, point.high))
        .reduce(|(low, high), other| (low.min(other.0), high.max(other.1)))
}

/// What each step has besides the loss.
fn of_steps(runs: &[Record]) -> Vec<Chart<'_>> {
    let targets = runs.iter().find_map(|run| run.about.loss.as_ref());
    let targets = targets.map_or("targets".to_owned(), |unit| format!("{}s", unit.target));
    let charts: [(&str, String, Values); 4] = [
        ("Learning rate", "learning rate of the step".to_owned(), |steps| &steps.learning_rate),
        ("Speed", format!("{targets} a second"), |steps| &steps.rate),
        ("Gradient norm", "norm before clipping".to_owned(), |steps| &steps.gradient_norm),
        ("Bubble", "idle share of a step, mean over ranks (%)".to_owned(), |steps| &steps.bubble),
    ];
    let draw = |(title, value, of): (&str, String, Values)| {
        let lines = runs.iter().enumerate().map(|(index, run)| ChartLine {
            name: match runs.len() {
                1 => value.clone(),
                _ => run.name.clone(),
            },
            series: of(&run.steps),
            colour: COLOURS[index % COLOURS.len()],
            is_dashed: false,
        });
        Chart { title: title.to_owned(), lines: lines.collect(), value, from_zero: true, is_log: false }
    };
    charts.into_iter().map(draw).collect()
}
