//! A picture as an SVG document.

use super::figures::Figures;
use super::page::{MARGIN, Page, WIDTH};
use super::picture::{Panel, Picture};
use super::scale::Frame;
use super::{legend, memory, rows};
use crate::Result;
use crate::error::{Error, Problem};

/// The most passes in a picture. With more it shows nothing useful, and viewers fail.
const MOST_PASSES: usize = 250_000;

impl Picture<'_> {
    /// The picture as an SVG document.
    ///
    /// # Errors
    /// [`Error::Plan`] when there are more passes than a picture can show.
    pub fn svg(&self) -> Result<String> {
        let passes: usize = self.timelines().flat_map(|timeline| &timeline.ranks).map(Vec::len).sum();
        if passes > MOST_PASSES {
            let most = MOST_PASSES;
            return Err(Error::Plan(Problem::new(format!(
                "there are {passes} passes, and a picture shows {most} at most: draw fewer ranks or \
                 micro-batches, or a single replica"
            ))));
        }
        let frame = Frame::new(self);
        let mut page = Page::new(WIDTH);
        for (index, panel) in self.panels.iter().enumerate() {
            heading(&mut page, &frame, panel);
            if index == 0 {
                legend::draw(&mut page, self, &frame);
            }
            rows::draw(&mut page, &frame, panel, self.transfers);
            memory::draw(&mut page, &frame, panel);
        }
        let titles: Vec<&str> = self.panels.iter().map(|panel| panel.title.as_str()).collect();
        Ok(page.finish(&titles.join("; ")))
    }
}

/// The title, and under it the figures of the step.
fn heading(page: &mut Page, frame: &Frame, panel: &Panel<'_>) {
    let figures = Figures::of(panel.timeline);
    page.down(28.0);
    page.text(MARGIN, "h", &panel.title);
    page.down(20.0);
    let time = |time: f64| frame.time.label(time);
    let bubble = |time: f64| 100.0 * figures.bubble(time);
    let reduced = match figures.end > figures.makespan {
        true => format!("  ·  with reductions {}, bubble {:.1} %", time(figures.end), bubble(figures.end)),
        false => String::new(),
    };
    let waits = match figures.shard_waits > 0.0 {
        true => format!(", waits for shards {:.1} %", 100.0 * figures.shard_waits / figures.makespan),
        false => String::new(),
    };
    let summary = format!(
        "makespan {}, bubble {:.1} %{waits}{reduced}  ·  longest span {}, bubble {:.1} %  ·  most memory \
         held {} ({})",
        time(figures.makespan),
        bubble(figures.makespan),
        time(figures.span),
        bubble(figures.span),
        frame.memory.label(figures.peak),
        panel.row_name(figures.peak_rank),
    );
    page.text(MARGIN, "s", &summary);
    page.down(12.0);
}
