//! `loss.svg`: the losses over the steps, in the style of the other pictures.

use std::ops::Range;
use std::path::Path;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::FontDesc;

use super::curve::{Curve, Point};
use super::files::replace;
use crate::{Error, Result};

const SIZE: (u32, u32) = (960, 480);
const FONT: &str = "Helvetica,Arial,sans-serif";
const INK: RGBColor = RGBColor(36, 41, 47);
const AXIS: RGBColor = RGBColor(87, 96, 106);
const GRID: RGBColor = RGBColor(233, 236, 239);
const TRAINING: RGBColor = RGBColor(100, 149, 204);
const VALIDATION: RGBColor = RGBColor(190, 60, 30);

/// Steps to the right, losses upwards.
type Plane = Cartesian2d<RangedCoordf64, RangedCoordf64>;

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// The texts in the picture.
#[derive(Clone, Debug)]
pub(super) struct Labels {
    pub(super) title: String,
    pub(super) unit: Option<LossUnit>,
}

impl Labels {
    /// What the loss counts, in the plural.
    pub(super) fn targets(&self) -> String {
        let target = self.unit.as_ref().map_or("target", |unit| &unit.target);
        format!("{target}s")
    }
}

/// The unit of the loss, and what it is the mean over: nats per token.
#[derive(Clone, Debug)]
pub(super) struct LossUnit {
    pub(super) quantity: String,
    pub(super) target: String,
}

/// Draws the training loss, and the validation loss if there is one.
pub(super) fn draw(curve: &Curve, labels: &Labels, path: &Path) -> Result<()> {
    let training: Vec<Point> = curve.training.points().collect();
    let validation: Vec<Point> = curve.validation.points().collect();
    let Some(&(last, _)) = training.last() else {
        return Ok(());
    };
    let losses = || training.iter().chain(&validation).map(|(_, loss)| *loss);
    let lowest = losses().fold(f64::INFINITY, f64::min);
    let highest = losses().fold(f64::NEG_INFINITY, f64::max);
    let margin = ((highest - lowest) * 0.05).max(0.01);
    let range = (lowest - margin).max(0.0)..highest + margin;
    let mut svg = String::new();
    chart(
        &mut svg,
        labels,
        (0.0..last.max(1.0), range),
        training,
        validation,
    )
    .map_err(|error| Error::io("draw", path)(std::io::Error::other(error.to_string())))?;
    replace(path, &svg)
}

fn chart(
    svg: &mut String,
    labels: &Labels,
    (steps, losses): (Range<f64>, Range<f64>),
    training: Vec<Point>,
    validation: Vec<Point>,
) -> Drawn {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let title = FontDesc::from((FONT, 16)).style(FontStyle::Bold);
    area.draw(&Text::new(labels.title.as_str(), (16, 14), title.color(&INK)))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .margin_top(36)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(steps, losses)?;
    axes(&mut chart, labels)?;
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
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 13).into_font().color(&INK))
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    Ok(())
}

fn axes(chart: &mut ChartContext<'_, SVGBackend<'_>, Plane>, labels: &Labels) -> Drawn {
    let axis = match &labels.unit {
        Some(LossUnit { quantity, target }) => format!("loss ({quantity} per {target})"),
        None => "loss".to_owned(),
    };
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc(axis)
        .label_style((FONT, 11).into_font().color(&AXIS))
        .axis_desc_style((FONT, 13).into_font().color(&INK))
        .axis_style(AXIS)
        .bold_line_style(GRID)
        .x_label_formatter(&|step| format!("{step:.0}"))
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(())
}
