//! The charts of values over steps.

use super::record::Record;
use super::steps::Steps;
use crate::draw::{Chart, Line, Series};
use crate::run::LossUnit;

/// The width and height of a chart, in its own units.
const SIZE: (f64, f64) = (420.0, 260.0);

/// The values of a run that a chart shows.
type Values = fn(&Steps) -> &Series;

/// The losses, on a linear axis and, if all are above 0, on a logarithmic one.
pub(super) fn losses(runs: &[Record]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for (kind, series) in [
            ("training", &run.steps.training),
            ("validation", &run.steps.validation),
        ] {
            if !series.is_empty() {
                let colour = 2 * index + usize::from(kind == "validation");
                lines.push(line(runs, run, kind, series, colour, index));
            }
        }
    }
    let unit = runs.iter().find_map(|run| run.about.loss.as_ref());
    let chart = |is_log, scale: &str| Chart {
        title: "Loss".to_owned(),
        value: format!("{}{scale}", LossUnit::title(unit)),
        lines: lines.clone(),
        from_zero: false,
        is_log,
    };
    let all_above_zero = lines
        .iter()
        .flat_map(|line| line.series.points())
        .all(|point| point.low > 0.0);
    let linear = chart(false, "").part(SIZE.0, SIZE.1);
    match all_above_zero && !lines.is_empty() {
        true => vec![linear, chart(true, ", logarithmic").part(SIZE.0, SIZE.1)],
        false => vec![linear],
    }
}

/// Learning rate, targets a second, gradient norm and bubble.
pub(super) fn others(runs: &[Record]) -> Vec<String> {
    let targets = runs.iter().find_map(|run| run.about.loss.as_ref());
    let targets = targets.map_or("targets".to_owned(), |unit| format!("{}s", unit.target));
    let charts: [(String, String, Values); 4] = [
        (
            "Learning rate".to_owned(),
            "learning rate of the step".to_owned(),
            |steps| &steps.learning_rate,
        ),
        ("Speed".to_owned(), format!("{targets} a second"), |steps| {
            &steps.rate
        }),
        (
            "Gradient norm".to_owned(),
            "norm before clipping".to_owned(),
            |steps| &steps.gradient_norm,
        ),
        (
            "Bubble".to_owned(),
            "idle share of a step, mean over ranks (%)".to_owned(),
            |steps| &steps.bubble,
        ),
    ];
    let draw = |(title, value, of): (String, String, Values)| {
        let lines = runs.iter().enumerate().map(|(index, run)| {
            let series = of(&run.steps);
            line(runs, run, &value, series, 2 * index, index)
        });
        let lines = lines.collect();
        Chart {
            title,
            value: value.clone(),
            lines,
            from_zero: true,
            is_log: false,
        }
    };
    charts
        .map(draw)
        .iter()
        .map(|chart| chart.part(SIZE.0, SIZE.1))
        .collect()
}

/// A line of a run, which bears the run's name if there are several.
fn line<'a>(
    runs: &[Record],
    run: &Record,
    kind: &str,
    series: &'a Series,
    colour: usize,
    index: usize,
) -> Line<'a> {
    let name = match (runs.len(), kind) {
        (1, _) => kind.to_owned(),
        (_, "training" | "validation") => format!("{}, {kind}", run.name),
        _ => run.name.clone(),
    };
    let is_dashed = index > 0;
    Line {
        name,
        series,
        colour,
        is_dashed,
    }
}
