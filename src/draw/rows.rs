//! The rows: each rank's passes and reductions over time, and the transfers between ranks.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::colours::Colour;
use super::page::{Page, RIGHT, WIDTH, px, text_width};
use super::picture::Panel;
use super::scale::Frame;
use crate::id::{Rank, StageId};
use crate::schedule::{Flow, MoveStep, Pass, Timed, Timeline};

/// The font size of the numbers in passes, from the smallest readable one.
const DIGITS: std::ops::RangeInclusive<f64> = 8.0..=12.0;
/// The least distance from one rank's label to the next.
const LABELS: f64 = 13.0;

/// The height of a mark of a reduction, of a copy and of a wait for a shard, as a share of the row.
const REDUCTION: f64 = 0.2;
const COPY: f64 = 0.1;
const SHARD_WAIT: f64 = 0.2;

/// Draws a row for each rank, with a time axis under them.
pub(super) fn draw(page: &mut Page, frame: &Frame, panel: &Panel<'_>, transfers: bool) {
    let timeline = panel.timeline;
    let ranks = timeline.ranks.len();
    let top = page.y();
    let height = frame.pitch * ranks as f64;
    backdrop(page, frame, panel);
    axis(page, frame, top, height);
    page.style(&format!(".r{{stroke-width:{}}}", px(frame.row)));
    let digits = Digits::of(frame, timeline);
    for (rank, row) in timeline.ranks.iter().enumerate() {
        let y = top + frame.pitch * (rank as f64 + 0.5);
        page.add(&format!("<g class=\"r\" transform=\"translate({} {})\">", px(frame.left), px(y)));
        passes(page, frame, row);
        digits.draw(page, frame, row);
        page.add("</g>");
    }
    reductions(page, frame, timeline, top);
    copies(page, frame, timeline, top);
    shard_waits(page, frame, timeline, top);
    if transfers {
        lines(page, frame, timeline, top);
    }
    page.down(height + 24.0);
}

/// The names of the ranks and the ground of each row, which is visible where the rank is idle.
fn backdrop(page: &mut Page, frame: &Frame, panel: &Panel<'_>) {
    let ranks = panel.timeline.ranks.len();
    let mut data = String::new();
    let every = (LABELS / frame.pitch).ceil().max(1.0) as usize;
    for rank in 0..ranks {
        let y = page.y() + frame.pitch * (rank as f64 + 0.5);
        let _ = write!(data, "M{} {}h{}", px(frame.left), px(y), px(WIDTH - frame.left - RIGHT));
        if rank.is_multiple_of(every) {
            page.text_at(frame.left - 8.0, y + 4.0, "e", &panel.row_name(rank).to_string());
        }
    }
    page.path("z r", &data);
}

/// Vertical lines at round times, from `top` down, with their labels below.
fn axis(page: &mut Page, frame: &Frame, top: f64, height: f64) {
    let mut data = String::new();
    for (time, label) in frame.time.ticks(12.0) {
        let x = frame.left + frame.x(time);
        let _ = write!(data, "M{} {}v{}", px(x), px(top), px(height + 4.0));
        page.text_at(x, top + height + 16.0, "k m", &label);
    }
    page.path("g", &data);
    page.text_at(frame.left - 12.0, top + height + 16.0, "k e", "time");
}

/// A rank's passes. There is one path for each kind of pass and stage, and in it one stroke for each pass, as
/// thick as the row.
fn passes(page: &mut Page, frame: &Frame, row: &[Timed]) {
    let stages = stages(row);
    let mut paths: BTreeMap<(Pass, usize), String> = BTreeMap::new();
    for pass in row {
        let chunk = stages.iter().position(|stage| *stage == pass.cell.stage).unwrap_or(0);
        let data = paths.entry((pass.pass, chunk)).or_default();
        // A narrow gap keeps neighbours apart.
        let gap = (frame.grain * 0.06).min(1.0).min(frame.width(pass) * 0.25);
        let from = frame.x(pass.start);
        let width = (frame.width(pass) - gap).max(0.05);
        let _ = write!(data, "M{} 0h{}", px(from + gap / 2.0), px(width));
    }
    for ((pass, chunk), data) in paths {
        let class = format!("{}{chunk}", pass.letter());
        let colour = Colour::pass(pass, chunk, stages.len()).hex();
        page.style(&format!(".{class}{{stroke:{colour}}}"));
        page.path(&class, &data);
    }
}

/// The stages of a rank, in model order.
pub(super) fn stages(row: &[Timed]) -> Vec<StageId> {
    let mut stages: Vec<_> = row.iter().map(|pass| pass.cell.stage).collect();
    stages.sort();
    stages.dedup();
    stages
}

/// The numbers of micro-batches, in passes that are wide enough for the widest number.
#[derive(Debug)]
pub(super) struct Digits {
    size: f64,
    /// The least width of a pass that gets its number.
    least: f64,
}

impl Digits {
    pub(super) fn of(frame: &Frame, timeline: &Timeline) -> Self {
        let passes = timeline.ranks.iter().flatten();
        let last = passes.map(|pass| pass.cell.micro_batch.0).max().unwrap_or(0);
        let size = (frame.row * 0.75).min(*DIGITS.end());
        let least =
            if size < *DIGITS.start() { f64::INFINITY } else { text_width(&last.to_string(), size) + 1.0 };
        Self { size, least }
    }

    /// Whether this pass gets its number.
    pub(super) fn fit(&self, frame: &Frame, pass: &Timed) -> bool {
        frame.width(pass) >= self.least
    }

    fn draw(&self, page: &mut Page, frame: &Frame, row: &[Timed]) {
        let stages = stages(row);
        page.style(&format!(".n{{font-size:{}px;text-anchor:middle}}", px(self.size)));
        for pass in row.iter().filter(|pass| self.fit(frame, pass)) {
            let number = pass.cell.micro_batch.to_string();
            let chunk = stages.iter().position(|stage| *stage == pass.cell.stage).unwrap_or(0);
            let dark = Colour::pass(pass.pass, chunk, stages.len()).is_dark();
            let middle = frame.x((pass.start + pass.end) / 2.0);
            page.text_at(middle, self.size * 0.36, if dark { "n l" } else { "n" }, &number);
        }
    }
}

/// A mark for each reduction, along the lower edge of its rank's row: passes go on at the same time. On
/// buffered links two reductions of a rank may overlap, and then their marks look like one. The events of a
/// trace tell them apart.
fn reductions(page: &mut Page, frame: &Frame, timeline: &Timeline, top: f64) {
    let marks =
        Marks { class: "q", colour: Colour::REDUCTION, thick: REDUCTION, below: 0.5 - REDUCTION / 2.0 };
    let spans = timeline.reductions.iter();
    let spans = spans.map(|reduction| (reduction.rank, [reduction.start, reduction.end]));
    marks.draw(page, frame, top, spans);
}

/// A mark for each copy that takes time, along the upper edge of its rank's row: to the host above, back
/// below.
fn copies(page: &mut Page, frame: &Frame, timeline: &Timeline, top: f64) {
    let rows = [(MoveStep::Out, "u", Colour::OUT), (MoveStep::Back, "v", Colour::BACK)];
    for ((step, class, colour), row) in rows.into_iter().zip([0.5, 1.5]) {
        let marks = Marks { class, colour, thick: COPY, below: row * COPY - 0.5 };
        let spans = timeline.copies.iter().filter(|copy| copy.step == step);
        let spans = spans.filter(|copy| copy.end > copy.start);
        let spans = spans.map(|copy| (copy.rank, [copy.start, copy.end]));
        marks.draw(page, frame, top, spans);
    }
}

/// A mark for each wait for another shard, along the upper edge of its pass.
fn shard_waits(page: &mut Page, frame: &Frame, timeline: &Timeline, top: f64) {
    let marks =
        Marks { class: "w", colour: Colour::SHARD_WAIT, thick: SHARD_WAIT, below: SHARD_WAIT / 2.0 - 0.5 };
    let spans = timeline.shard_waits.iter().map(|wait| (wait.rank, [wait.start, wait.end]));
    marks.draw(page, frame, top, spans);
}

/// Marks in the rows of ranks. Lengths are shares of a row's height.
#[derive(Debug)]
struct Marks {
    class: &'static str,
    colour: Colour,
    thick: f64,
    /// How far below the middle of the row.
    below: f64,
}

impl Marks {
    fn draw(&self, page: &mut Page, frame: &Frame, top: f64, spans: impl Iterator<Item = (Rank, [f64; 2])>) {
        let mut data = String::new();
        for (rank, [start, end]) in spans {
            let middle = top + frame.pitch * (f64::from(rank.0) + 0.5);
            let (x, y) = (frame.left + frame.x(start), middle + frame.row * self.below);
            let width = frame.x(end - start).max(0.05);
            let _ = write!(data, "M{} {}h{}", px(x), px(y), px(width));
        }
        if !data.is_empty() {
            let (class, colour) = (self.class, self.colour.hex());
            let thick = px(frame.row * self.thick);
            page.style(&format!(".{class}{{stroke:{colour};stroke-width:{thick}}}"));
            page.path(class, &data);
        }
    }
}

/// A line for each transfer, from the edge of the sender's row to the edge of the receiver's.
fn lines(page: &mut Page, frame: &Frame, timeline: &Timeline, top: f64) {
    let thick = px((frame.grain * 0.08).clamp(0.15, 0.9));
    page.style(&format!(".a,.d{{stroke-width:{thick}}}"));
    let row = |rank: Rank| top + frame.pitch * (f64::from(rank.0) + 0.5);
    for (flow, class) in [(Flow::Activation, "a"), (Flow::Gradient, "d")] {
        let mut data = String::new();
        for transfer in timeline.transfers.iter().filter(|transfer| transfer.flow == flow) {
            let edge = (frame.row / 2.0).copysign(row(transfer.to) - row(transfer.from));
            let from = (frame.left + frame.x(transfer.start), row(transfer.from) + edge);
            let to = (frame.left + frame.x(transfer.end), row(transfer.to) - edge);
            let _ = write!(data, "M{} {}L{} {}", px(from.0), px(from.1), px(to.0), px(to.1));
        }
        page.path(class, &data);
    }
}
