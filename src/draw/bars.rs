//! A chart of bars: what each rank has.

use std::fmt::Write;

use super::axis::Axis;
use super::page::{MARGIN, Page, cut, escaped, px, text_width};

/// The distance from the bars to the right edge.
const RIGHT: f64 = 22.0;
/// The distance from one rank to the next, and the most height of one bar.
const PITCH: std::ops::RangeInclusive<f64> = 3.0..=40.0;
const THICK: f64 = 15.0;
/// The approximate height of all ranks.
const HEIGHT: f64 = 460.0;
/// The least distance from one rank's name to the next.
const NAMES: f64 = 13.0;
const SWATCH: f64 = 12.0;
/// The most width of names, as a share of the whole.
const MOST_NAME: f64 = 0.45;

/// Bars of all ranks, from top to bottom.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What stands above the bars.
    pub title: String,
    /// What is shown, with its unit.
    pub value: String,
    /// The parts of bars, each with the number of its colour in the style.
    pub parts: Vec<Segment>,
    /// The ranks, from top to bottom.
    pub rows: Vec<Row>,
    /// The end of the axis. `None`: the end of the longest bar.
    pub most: Option<f64>,
}

/// A part of bars.
#[derive(Clone, Debug)]
pub struct Segment {
    /// What the part is, in the legend.
    pub name: String,
    /// From 0 to 4.
    pub colour: usize,
}

/// The bars of one rank.
#[derive(Clone, Debug)]
pub struct Row {
    /// The rank.
    pub name: String,
    /// Each bar consists of parts, by their number, one after the other.
    pub bars: Vec<Vec<(usize, f64)>>,
}

impl Bars {
    /// A part of a page that has the styles.
    pub fn part(&self, width: f64) -> String {
        let mut page = Page::new(width);
        page.down(26.0);
        page.text(MARGIN, "h", &self.title);
        page.down(22.0);
        page.text(MARGIN, "s", &self.value);
        self.legend(&mut page, width);
        page.down(12.0);
        let widest = self.rows.iter().map(|row| text_width(&row.name, 12.0)).fold(0.0, f64::max);
        let left = MARGIN + widest.min(width * MOST_NAME) + 8.0;
        let scale = Scale {
            axis: Axis::from_zero(self.most()),
            left,
            wide: width - RIGHT - left,
            pitch: (HEIGHT / self.rows.len().max(1) as f64).clamp(*PITCH.start(), *PITCH.end()),
        };
        self.draw(&mut page, &scale);
        page.part(&format!("{}: {}", self.title, self.value), "")
    }

    fn most(&self) -> f64 {
        let lengths = self.rows.iter().flat_map(|row| &row.bars);
        let longest = lengths.map(|bar| bar.iter().map(|(_, length)| length).sum()).fold(0.0, f64::max);
        self.most.unwrap_or(longest * 1.02)
    }

    fn legend(&self, page: &mut Page, width: f64) {
        page.down(19.0);
        let mut x = MARGIN;
        for part in &self.parts {
            let name = cut(&part.name, 12.0, width - 2.0 * MARGIN - SWATCH - 6.0);
            let wide = SWATCH + 6.0 + text_width(&name, 12.0);
            if x > MARGIN && x + wide > width - RIGHT {
                page.down(17.0);
                x = MARGIN;
            }
            page.add(&format!(
                "<rect class=\"f{}\" x=\"{}\" y=\"{}\" width=\"{SWATCH}\" height=\"{SWATCH}\"/>",
                part.colour,
                px(x),
                px(page.y() - 10.0)
            ));
            page.text(x + SWATCH + 6.0, "", &name);
            x += wide + 16.0;
        }
    }

    fn draw(&self, page: &mut Page, scale: &Scale) {
        let top = page.y();
        let height = scale.pitch * self.rows.len() as f64;
        let mut grid = String::new();
        for (value, label) in scale.axis.ticks(5) {
            let x = scale.left + scale.length(value);
            let _ = write!(grid, "M{} {}v{}", px(x), px(top), px(height + 4.0));
            page.text_at(x, top + height + 16.0, "k m", &label);
        }
        page.path("g", &grid);
        let every = (NAMES / scale.pitch).ceil().max(1.0) as usize;
        for (index, row) in self.rows.iter().enumerate() {
            let middle = top + scale.pitch * (index as f64 + 0.5);
            if index.is_multiple_of(every) {
                let name = cut(&row.name, 12.0, scale.left - 8.0);
                page.text_at(scale.left - 8.0, middle + 4.0, "e", &name);
            }
            self.row(page, scale, row, middle);
        }
        page.down(height + 20.0);
    }

    fn row(&self, page: &mut Page, scale: &Scale, row: &Row, middle: f64) {
        let bars = row.bars.len().max(1) as f64;
        let room = (scale.pitch * 0.8 / bars).min(THICK);
        for (index, bar) in row.bars.iter().enumerate() {
            let y = middle + room * (index as f64 - bars / 2.0);
            let mut x = scale.left;
            for &(part, length) in bar {
                let Segment { name, colour } = &self.parts[part];
                page.add(&format!(
                    "<rect class=\"f{colour}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}, {}: {}\
                     </title></rect>",
                    px(x),
                    px(y),
                    px(scale.length(length)),
                    px(room * 0.9),
                    escaped(&row.name),
                    escaped(name),
                    rounded(length)
                ));
                x += scale.length(length);
            }
        }
    }
}

#[derive(Debug)]
struct Scale {
    axis: Axis,
    left: f64,
    wide: f64,
    pitch: f64,
}

impl Scale {
    fn length(&self, value: f64) -> f64 {
        self.axis.share(value).clamp(0.0, 1.0) * self.wide
    }
}

/// A value to about three digits.
fn rounded(value: f64) -> String {
    let decimals = if value.abs() < 10.0 { 2 } else { 1 };
    format!("{value:.decimals$}")
}
