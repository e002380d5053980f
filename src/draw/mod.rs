//! Timelines as people look at them: a picture (SVG), and events for a trace viewer. Pure: text from numbers.
//!
//! A picture has a row for each rank, with its passes in colours; under the rows is the memory that each rank holds. It is written
//! by hand: a pass is a dozen characters of a path, where a plotting library spends a hundred and fifty on a rectangle of its own.

mod colours;
mod events;
mod figures;
mod legend;
mod memory;
mod page;
mod rows;
mod scale;

pub use events::trace_events;

use crate::Result;
use crate::error::PlanError;
use crate::schedule::{Pass, Timeline};
use figures::Figures;
use page::{MARGIN, Page};
use scale::Frame;

/// With more passes than this a picture shows nothing any more, and viewers give up.
const MOST_PASSES: usize = 250_000;

/// One or more timelines, one above the other on the same axes.
#[derive(Clone, Debug)]
pub struct Picture<'a> {
    /// What is drawn, from top to bottom.
    pub panels: Vec<Panel<'a>>,
    /// What the numbers of the timelines are.
    pub units: Units,
    /// Whether transfers are drawn, as lines between the rows.
    pub transfers: bool,
}

/// A timeline with its title.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// What it is called.
    pub title: String,
    /// What is drawn.
    pub timeline: &'a Timeline,
}

/// What the numbers of a timeline are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// Times in any one unit, memory in any one unit, as [`Costs`](crate::plan::Costs) have them.
    Plain,
    /// Times in seconds, memory in bytes.
    SecondsAndBytes,
}

impl Picture<'_> {
    /// The picture as an SVG document.
    ///
    /// # Errors
    /// [`PlanError::TooManyPasses`] when there are more passes than a picture can show.
    pub fn svg(&self) -> Result<String> {
        let passes: usize = self
            .timelines()
            .flat_map(|timeline| &timeline.ranks)
            .map(Vec::len)
            .sum();
        if passes > MOST_PASSES {
            let most = MOST_PASSES;
            return Err(PlanError::TooManyPasses { passes, most }.into());
        }
        let frame = Frame::new(self);
        let mut page = Page::new();
        for (index, panel) in self.panels.iter().enumerate() {
            heading(&mut page, &frame, panel);
            if index == 0 {
                legend::draw(&mut page, self, &frame);
            }
            rows::draw(&mut page, &frame, panel.timeline, self.transfers);
            memory::draw(&mut page, &frame, panel.timeline);
        }
        let titles: Vec<&str> = self.panels.iter().map(|panel| panel.title.as_str()).collect();
        Ok(page.finish(&titles.join("; ")))
    }

    fn timelines(&self) -> impl Iterator<Item = &Timeline> {
        self.panels.iter().map(|panel| panel.timeline)
    }
}

/// The title, and under it the figures of the step.
fn heading(page: &mut Page, frame: &Frame, panel: &Panel<'_>) {
    let figures = Figures::of(panel.timeline);
    page.down(28.0);
    page.text(MARGIN, "h", &panel.title);
    page.down(20.0);
    let time = |time: f64| frame.time.label(time);
    let summary = format!(
        "makespan {}, bubble {:.1} %  ·  longest span {}, bubble {:.1} %  ·  most memory held {} (rank {})",
        time(figures.makespan),
        100.0 * figures.bubble(figures.makespan),
        time(figures.span),
        100.0 * figures.bubble(figures.span),
        frame.memory.label(figures.peak),
        figures.peak_rank,
    );
    page.text(MARGIN, "s", &summary);
    page.down(12.0);
}

fn pass_name(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
        Pass::BackwardInput => "backward-input",
        Pass::BackwardWeight => "backward-weight",
    }
}
