//! The memory that each rank holds for later backwards, as a curve under the rows.

use std::fmt::Write;

use super::colours::Colour;
use super::figures::heights;
use super::page::{MARGIN, Page, RIGHT, WIDTH, px};
use super::picture::Panel;
use super::scale::Frame;
use crate::schedule::Timed;

const HEIGHT: f64 = 96.0;
/// Where a micro-batch is narrower than this many pixels, its changes are drawn as one.
const FINEST: f64 = 12.0;
/// The width of the last rank's curve.
const THIN: f64 = 1.4;
/// How much wider the curves before it may become, all together. Every curve is drawn where it belongs. Where
/// ranks hold the same, the narrow lines of later ranks lie inside of the wide lines of earlier ones.
const WIDER: f64 = 4.2;
/// The most ranks that the key names.
const NAMED: usize = 8;

/// Draws a curve for each rank.
pub(super) fn draw(page: &mut Page, frame: &Frame, panel: &Panel<'_>) {
    let timeline = panel.timeline;
    page.down(20.0);
    names(page, panel);
    page.down(10.0);
    let bottom = page.y() + HEIGHT;
    axis(page, frame, bottom);
    let ranks = timeline.ranks.len();
    let wider = (WIDER / ranks as f64).min(1.4);
    for (rank, row) in timeline.ranks.iter().enumerate() {
        let class = colour(page, rank, ranks);
        let width = THIN + wider * (ranks - 1 - rank) as f64;
        let data = curve(frame, row);
        page.add(&format!(
            "<path class=\"{class}\" transform=\"translate({} {})\" stroke-width=\"{}\" d=\"{data}\"/>",
            px(frame.left),
            px(bottom),
            px(width)
        ));
    }
    page.down(HEIGHT + 6.0);
}

/// The class that gives the colour of a rank's curve.
fn colour(page: &mut Page, rank: usize, ranks: usize) -> String {
    let class = format!("c{rank}-{ranks}");
    let [light, dark] = Colour::rank(rank, ranks).map(Colour::hex);
    page.style(&format!(".{class}{{stroke:{light}}}"));
    page.dark_style(&format!(".{class}{{stroke:{dark}}}"));
    class
}

/// The title, and which colour is which rank.
fn names(page: &mut Page, panel: &Panel<'_>) {
    let ranks = panel.timeline.ranks.len();
    page.text(MARGIN, "s", "memory held; equal lines lie inside each other");
    let named = ranks.min(NAMED);
    let mut x = WIDTH - RIGHT - 40.0 * named as f64;
    let what = match (panel.replicas > 1, panel.shards > 1) {
        (false, false) => "rank",
        (true, false) => "replica.rank",
        (false, true) => "rank.shard",
        (true, true) => "replica.rank.shard",
    };
    page.text(x - 8.0, "k e", what);
    for index in 0..named {
        let rank = if named > 1 { index * (ranks - 1) / (named - 1) } else { 0 };
        let class = colour(page, rank, ranks);
        page.add(&format!(
            "<path class=\"{class}\" stroke-width=\"3\" d=\"M{} {}h14\"/>",
            px(x),
            px(page.y() - 4.0)
        ));
        let name = panel.row_name(rank).short();
        page.text(x + 18.0, "k", &name);
        x += 40.0;
    }
}

fn axis(page: &mut Page, frame: &Frame, bottom: f64) {
    let mut data = String::new();
    for (value, label) in frame.memory.ticks(4.0) {
        let y = bottom - height(frame, value);
        let _ = write!(data, "M{} {}h{}", px(frame.left), px(y), px(WIDTH - frame.left - RIGHT));
        page.text_at(frame.left - 8.0, y + 4.0, "k e", &label);
    }
    page.path("g", &data);
}

fn height(frame: &Frame, held: f64) -> f64 {
    HEIGHT * held / frame.memory.most
}

/// A rank's curve. It is level until a pass ends, except for memory that is held only during the pass. Where
/// passes are too narrow, it shows the most held in each micro-batch's time.
fn curve(frame: &Frame, row: &[Timed]) -> String {
    let count = row.iter().map(|pass| pass.cell.micro_batch.0 + 1).max().unwrap_or(1);
    let work: f64 = row.iter().map(|pass| frame.width(pass)).sum();
    let each = work / f64::from(count);
    let grain = if each < FINEST { each } else { 0.0 };
    let mut data = String::from("M0 0");
    let (mut level, mut from, mut most) = (0.0, 0.0, 0.0_f64);
    for (time, held) in heights(row) {
        let x = frame.x(time);
        if x - from >= grain {
            step(&mut data, frame, from, most, &mut level);
            (from, most) = (x, held);
        } else {
            most = most.max(held);
        }
    }
    step(&mut data, frame, from, most, &mut level);
    let _ = write!(data, "H{}", px(WIDTH - frame.left - RIGHT));
    data
}

/// Draws a level line to `x`, and from there a vertical line to the new amount.
fn step(data: &mut String, frame: &Frame, x: f64, held: f64, level: &mut f64) {
    if held != *level {
        let _ = write!(data, "H{}V{}", px(x), px(-height(frame, held)));
        *level = held;
    }
}
