//! The scales: from time and memory to places on the page, and round values for labels.

use pipewright_stages::units::byte_unit;

use super::axis::round_step;
use super::figures::Figures;
use super::page::{LEFT, RIGHT, WIDTH, shorten};
use super::picture::{Picture, Units};
use crate::schedule::Timed;

/// The approximate height of the rows of a panel, for any number of ranks.
const ROWS_HEIGHT: f64 = 460.0;
/// The distance from one row to the next.
const PITCH: std::ops::RangeInclusive<f64> = 2.0..=30.0;
/// The height of a row, as a share of the distance between rows.
const ROW: f64 = 0.87;
/// How much wider the names of rows are that name a replica too.
const REPLICA: f64 = 48.0;
/// How much wider the names of rows are that name a shard too.
const SHARD: f64 = 44.0;
/// How many times further apart rows are when transfers are drawn between them.
const ROOM: f64 = 1.45;

/// The scales that all panels of a picture share.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) time: Quantity,
    pub(super) memory: Quantity,
    /// The distance from the left edge to the plots.
    pub(super) left: f64,
    /// Pixels a unit of time.
    pub(super) stretch: f64,
    /// The distance from one row to the next.
    pub(super) pitch: f64,
    /// The height of a row.
    pub(super) row: f64,
    /// The width of a pass, on average.
    pub(super) grain: f64,
}

impl Frame {
    pub(super) fn new(picture: &Picture<'_>) -> Self {
        let figures: Vec<_> = picture.timelines().map(Figures::of).collect();
        let most = |number: fn(&Figures) -> f64| figures.iter().map(number).fold(f64::MIN_POSITIVE, f64::max);
        let (end, peak) = (most(|of| of.end), most(|of| of.peak));
        let ranks = picture.timelines().map(|timeline| timeline.ranks.len()).max();
        let (time, memory) = match picture.units {
            Units::Plain => (Quantity::plain(end), Quantity::plain(peak)),
            Units::SecondsAndBytes => (Quantity::seconds(end), Quantity::bytes(peak)),
        };
        let pitch = (ROWS_HEIGHT / ranks.unwrap_or(1).max(1) as f64).clamp(*PITCH.start(), *PITCH.end());
        let replicated = picture.panels.iter().any(|panel| panel.replicas > 1);
        let sharded = picture.panels.iter().any(|panel| panel.shards > 1);
        let wider = |is: bool, by: f64| if is { by } else { 0.0 };
        let left = LEFT + wider(replicated, REPLICA) + wider(sharded, SHARD);
        let stretch = (WIDTH - left - RIGHT) / end;
        let all = || picture.timelines().flat_map(|timeline| timeline.ranks.iter().flatten());
        let (work, passes): (f64, usize) = (all().map(|pass| pass.end - pass.start).sum(), all().count());
        Self {
            time,
            memory,
            left,
            stretch,
            pitch: if picture.transfers { pitch * ROOM } else { pitch },
            row: pitch * ROW,
            grain: stretch * work / passes.max(1) as f64,
        }
    }

    /// The place of a time, from the left of the plot.
    pub(super) fn x(&self, time: f64) -> f64 {
        time * self.stretch
    }

    /// The width of a pass.
    pub(super) fn width(&self, pass: &Timed) -> f64 {
        self.x(pass.end - pass.start)
    }
}

/// A kind of number with its unit and its largest value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    pub(super) most: f64,
    /// How many base units one `name` has.
    unit: f64,
    name: &'static str,
}

impl Quantity {
    fn plain(most: f64) -> Self {
        Self { most, unit: 1.0, name: "" }
    }

    fn seconds(most: f64) -> Self {
        let (unit, name) = match most {
            1.0.. => (1.0, "s"),
            1e-3.. => (1e-3, "ms"),
            _ => (1e-6, "µs"),
        };
        Self { most, unit, name }
    }

    fn bytes(most: f64) -> Self {
        let (name, unit) = byte_unit(most);
        Self { most, unit, name }
    }

    /// The number with its unit, to four digits.
    pub(super) fn label(&self, value: f64) -> String {
        let number = value / self.unit;
        let decimals = match number.abs() {
            0.0..10.0 => 3,
            10.0..100.0 => 2,
            100.0..1000.0 => 1,
            _ => 0,
        };
        let short = shorten(&format!("{number:.decimals$}")).to_owned();
        if self.name.is_empty() { short } else { format!("{short} {}", self.name) }
    }

    /// Round values from 0 to the largest, about `count` of them, with their labels.
    pub(super) fn ticks(&self, count: f64) -> Vec<(f64, String)> {
        let most = self.most / self.unit;
        let step = round_step(most / count);
        let count = (most / step * 1.0001) as usize;
        let others = (1..=count).map(|index| index as f64 * step * self.unit);
        let zero = (0.0, "0".to_owned());
        std::iter::once(zero).chain(others.map(|value| (value, self.label(value)))).collect()
    }
}
