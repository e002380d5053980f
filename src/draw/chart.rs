//! A chart of values over steps.

use std::fmt::Write;

use super::axis::Axis;
use super::page::{MARGIN, Page, cut, escaped, px, text_width};
use super::series::{Point, Series};
use super::style::CHART;

/// The distance from the plot to the right edge.
const RIGHT: f64 = 18.0;
/// The most points of a line that has a dot at each: in a chart with one or two lines, and with more lines.
const DOTS: usize = 48;
const FEW: usize = 12;
/// The height of a heading with a legend of one row.
const HEADING: f64 = 81.0;
/// The length of a line in the legend.
const SAMPLE: f64 = 20.0;

/// Values over steps.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// What stands above the chart.
    pub title: String,
    /// What is shown, with its unit.
    pub value: String,
    /// The lines, in the order of the legend.
    pub lines: Vec<ChartLine<'a>>,
    /// Whether the axis of values begins at 0.
    pub from_zero: bool,
    /// Whether it is logarithmic. All values must be above 0.
    pub is_log: bool,
}

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct ChartLine<'a> {
    /// What the line is, in the legend.
    pub name: String,
    /// Its values.
    pub series: &'a Series,
    /// The number of its colour in the style, from 0 to 7.
    pub colour: usize,
    /// Whether it is drawn dashed.
    pub is_dashed: bool,
}

/// Where values are drawn.
#[derive(Debug)]
struct Plot {
    steps: Axis,
    values: Axis,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Chart<'_> {
    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.series.is_empty())
    }

    /// A document of its own.
    pub fn document(&self, width: f64, height: f64) -> String {
        let (mut page, _) = self.draw(width, height);
        page.style(CHART);
        page.finish(&self.title)
    }

    /// A part of a page that has the styles. It is higher than `height` if its legend has many rows. Its
    /// attributes say where the plot is and what it spans, so that the page can read values from the lines.
    pub fn part(&self, width: f64, height: f64) -> String {
        let (page, plot) = self.draw(width, height);
        let span =
            |axis: &Axis, from: f64, to: f64| format!("{} {} {} {}", axis.from, axis.to, px(from), px(to));
        let attributes = format!(
            " class=\"chart\" data-x=\"{}\" data-y=\"{} {}\"",
            span(&plot.steps, plot.left, plot.right),
            span(&plot.values, plot.bottom, plot.top),
            if plot.values.is_log { "log" } else { "linear" },
        );
        page.part(&format!("{}: {}", self.title, self.value), &attributes)
    }

    fn draw(&self, width: f64, height: f64) -> (Page, Plot) {
        let mut page = Page::new(width);
        page.down(26.0);
        page.text(MARGIN, "h", &self.title);
        page.down(22.0);
        page.text(MARGIN, "s", &self.value);
        self.legend(&mut page, width);
        page.down(14.0);
        let height = height + (page.y() - HEADING).max(0.0);
        let (steps, values) = (self.steps(), self.values());
        let ticks = values.ticks(5);
        let widest = ticks.iter().map(|(_, label)| text_width(label, 11.0)).fold(0.0, f64::max);
        let plot = Plot {
            steps,
            values,
            left: MARGIN + widest + 8.0,
            right: width - RIGHT,
            top: page.y(),
            bottom: height - 44.0,
        };
        plot.axes(&mut page, &ticks);
        let dots = if self.lines.len() > 2 { FEW } else { DOTS };
        for line in &self.lines {
            plot.line(&mut page, line, dots);
        }
        page.down(height - 14.0 - page.y());
        (page, plot)
    }

    fn points(&self) -> impl Iterator<Item = Point> {
        self.lines.iter().flat_map(|line| line.series.points())
    }

    fn steps(&self) -> Axis {
        let last = self.lines.iter().map(|line| line.series.last_step()).max();
        Axis::from_zero(last.unwrap_or(0) as f64)
    }

    fn values(&self) -> Axis {
        let low = self.points().map(|point| point.low).fold(f64::INFINITY, f64::min);
        let high = self.points().map(|point| point.high).fold(f64::NEG_INFINITY, f64::max);
        let is_log = self.is_log && low > 0.0 && high.is_finite();
        if !low.is_finite() || (self.from_zero && low >= 0.0 && !is_log) {
            return Axis::from_zero(high * 1.05);
        }
        if is_log {
            let (from, to) = (low / 1.05, high * 1.05);
            return Axis { from, to, is_log };
        }
        let margin = ((high - low) * 0.05).max(high.abs() * 1e-3).max(1e-9);
        let from = if low >= 0.0 { (low - margin).max(0.0) } else { low - margin };
        let to = high + margin;
        Axis { from, to, is_log }
    }

    /// The lines and their names, if there are several, over as many rows as they need.
    fn legend(&self, page: &mut Page, width: f64) {
        if self.lines.len() < 2 {
            return;
        }
        page.down(19.0);
        let mut x = MARGIN;
        for line in &self.lines {
            let name = cut(&line.name, 12.0, width - 2.0 * MARGIN - SAMPLE - 6.0);
            let wide = SAMPLE + 6.0 + text_width(&name, 12.0);
            if x > MARGIN && x + wide > width - RIGHT {
                page.down(17.0);
                x = MARGIN;
            }
            let data = format!("M{} {}h{SAMPLE}", px(x), px(page.y() - 4.0));
            page.add(&format!("<path class=\"{}\" d=\"{data}\"/>", look(line)));
            page.text(x + SAMPLE + 6.0, "", &name);
            x += wide + 16.0;
        }
    }
}

impl Plot {
    fn x(&self, step: f64) -> f64 {
        self.left + self.steps.share(step) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom + self.values.share(value) * (self.top - self.bottom)
    }

    fn axes(&self, page: &mut Page, ticks: &[(f64, String)]) {
        let mut grid = String::new();
        for (value, label) in ticks {
            let y = self.y(*value);
            let _ = write!(grid, "M{} {}H{}", px(self.left), px(y), px(self.right));
            page.text_at(self.left - 6.0, y + 4.0, "k e", label);
        }
        page.path("g", &grid);
        let mut marks = format!("M{} {}H{}", px(self.left), px(self.bottom), px(self.right));
        for (step, label) in self.steps.ticks(6) {
            let x = self.x(step);
            let _ = write!(marks, "M{} {}v4", px(x), px(self.bottom));
            page.text_at(x, self.bottom + 16.0, "k m", &label);
        }
        page.path("x", &marks);
        page.text_at((self.left + self.right) / 2.0, self.bottom + 33.0, "m", "step");
    }

    fn line(&self, page: &mut Page, line: &ChartLine<'_>, dots: usize) {
        let points: Vec<Point> = line.series.points().collect();
        if points.is_empty() {
            return;
        }
        if line.series.each() > 1 {
            let edge =
                |value: fn(&Point) -> f64| move |point: &Point| (self.x(point.step), self.y(value(point)));
            let upper = points.iter().map(edge(|point| point.high));
            let lower = points.iter().rev().map(edge(|point| point.low));
            let data = through(upper.chain(lower));
            page.add(&format!("<path class=\"band f{}\" d=\"{data}Z\"/>", line.colour));
        }
        let places = || points.iter().map(|point| (self.x(point.step), self.y(point.mean)));
        page.add(&format!(
            "<path class=\"{}\" data-name=\"{}\" d=\"{}\"/>",
            look(line),
            escaped(&line.name),
            through(places())
        ));
        // More dots would hide the other lines.
        if points.len() <= dots {
            for (x, y) in places() {
                page.add(&format!(
                    "<circle class=\"f{}\" cx=\"{}\" cy=\"{}\" r=\"2.4\"/>",
                    line.colour,
                    px(x),
                    px(y)
                ));
            }
        }
    }
}

/// A path through these places.
fn through(places: impl Iterator<Item = (f64, f64)>) -> String {
    let mut data = String::new();
    for (x, y) in places {
        let letter = if data.is_empty() { 'M' } else { 'L' };
        let _ = write!(data, "{letter}{} {}", px(x), px(y));
    }
    data
}

fn look(line: &ChartLine<'_>) -> String {
    let dash = if line.is_dashed { " dash" } else { "" };
    format!("line s{}{dash}", line.colour)
}
