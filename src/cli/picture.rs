//! `loss.svg`: the loss over the steps.

use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

use super::run_dir::Line;
use crate::{Error, Result};

const SIZE: (u32, u32) = (800, 480);
const FONT: (&str, u32) = ("sans-serif", 14);
const TRAINING: RGBColor = RGBColor(150, 180, 220);
const VALIDATION: RGBColor = RGBColor(190, 60, 30);

/// A step and a loss.
type Point = (f64, f64);

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Draws the training loss, averaged where there are more steps than pixels, and the validation loss where
/// there is one.
pub(super) fn draw(lines: &[Line], path: &Path) -> Result<()> {
    let each = lines.len().div_ceil(SIZE.0 as usize).max(1);
    let training: Vec<Point> = lines.chunks(each).map(mean).collect();
    let validation = lines
        .iter()
        .filter_map(|line| Some((line.step as f64, line.validation_loss?)));
    let validation: Vec<Point> = validation.collect();
    let Some(&(last, _)) = training.last() else {
        return Ok(());
    };
    let losses = || training.iter().chain(&validation).map(|(_, loss)| *loss);
    let lowest = losses().fold(f64::INFINITY, f64::min);
    let highest = losses().fold(f64::NEG_INFINITY, f64::max);
    let margin = ((highest - lowest) * 0.05).max(0.01);
    let range = (lowest - margin).max(0.0)..highest + margin;
    chart(path, 0.0..last.max(1.0), range, training, validation)
        .map_err(|error| Error::io("draw", path)(std::io::Error::other(error.to_string())))
}

/// The middle of some steps.
fn mean(lines: &[Line]) -> Point {
    let count = lines.len() as f64;
    let sum = |number: fn(&Line) -> f64| lines.iter().map(number).sum::<f64>() / count;
    (sum(|line| line.step as f64), sum(|line| line.loss))
}

fn chart(
    path: &Path,
    steps: Range<f64>,
    losses: Range<f64>,
    training: Vec<Point>,
    validation: Vec<Point>,
) -> Drawn {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(steps, losses)?;
    let mut mesh = chart.configure_mesh();
    mesh.x_desc("step")
        .y_desc("loss")
        .label_style(FONT)
        .axis_desc_style(FONT);
    mesh.x_label_formatter(&|step| format!("{step:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let mut series = |name: &str, points: Vec<Point>, style: ShapeStyle| -> Drawn {
        if !points.is_empty() {
            let line = chart.draw_series(LineSeries::new(points, style))?;
            line.label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
        Ok(())
    };
    series("training", training, TRAINING.stroke_width(1))?;
    series("validation", validation, VALIDATION.stroke_width(2))?;
    chart
        .configure_series_labels()
        .label_font(FONT)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}
